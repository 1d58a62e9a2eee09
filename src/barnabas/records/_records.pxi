# The records of one batch: checked in one pass, decoded one by one, or encoded; part of _kernel.pyx.


cdef inline int read_header(const uint8_t **at, const uint8_t *stop, HeaderView *out) noexcept nogil:
    """Parse one header. A second pass over the bytes checks them again: they may have changed meanwhile."""
    if read_varint(at, stop, &out.name_size):
        return BAD_VARINT
    if out.name_size < 0 or out.name_size > stop - at[0]:
        return BAD_FIELD
    out.name = at[0]
    at[0] += out.name_size
    if read_varint(at, stop, &out.value_size):
        return BAD_VARINT
    if out.value_size > stop - at[0]:
        return BAD_FIELD
    out.value = at[0]
    at[0] += max(out.value_size, 0)
    return OK


cdef int skip_headers(const uint8_t **at, const uint8_t *stop, int32_t count) noexcept nogil:
    cdef HeaderView header
    cdef int fault
    for _ in range(count):
        fault = read_header(at, stop, &header)
        if fault != OK:
            return fault
    return OK


cdef inline int read_record(const uint8_t **cursor, const uint8_t *end, RecordView *out) noexcept nogil:
    """Parse one record; every length is checked against the record, and the record against `end`."""
    cdef const uint8_t *at = cursor[0]
    cdef const uint8_t *stop
    cdef int32_t size
    cdef int fault
    if at == end:
        return MISSING_RECORDS
    if read_varint(&at, end, &size):
        return BAD_VARINT
    if size < 0 or size > end - at:
        return BAD_RECORD_LENGTH
    stop = at + size
    if at == stop:
        return BAD_FIELD
    at += 1
    if read_varlong(&at, stop, &out.timestamp_delta) or read_varint(&at, stop, &out.offset_delta):
        return BAD_VARINT
    out.tail = at
    if read_varint(&at, stop, &out.key_size):
        return BAD_VARINT
    out.key = at
    if out.key_size > 0:
        if out.key_size > stop - at:
            return BAD_FIELD
        at += out.key_size
    if read_varint(&at, stop, &out.value_size):
        return BAD_VARINT
    out.value = at
    if out.value_size > 0:
        if out.value_size > stop - at:
            return BAD_FIELD
        at += out.value_size
    if read_varint(&at, stop, &out.header_count):
        return BAD_VARINT
    out.headers = at
    if out.header_count != 0:
        if out.header_count < 0 or out.header_count > (stop - at) // 2:
            return BAD_HEADER_COUNT
        fault = skip_headers(&at, stop, out.header_count)
        if fault != OK:
            return fault
    cursor[0] = stop
    return OK if at == stop else BAD_RECORD_END


cdef inline int rule_fault(RecordView *record, int64_t timestamp, bint require_keys, int64_t earliest,
                           int64_t latest) noexcept nogil:
    """The rule of its topic that a well-formed record breaks."""
    if require_keys and record.key_size < 0:
        return NO_KEY
    if timestamp != -1 and (timestamp < earliest or timestamp > latest):
        return BAD_TIMESTAMP
    return OK


cdef int check_pass(const uint8_t *at, const uint8_t *end, int32_t count, int64_t base_timestamp,
                    bint require_keys, int64_t earliest, int64_t latest,
                    int64_t *max_timestamp, int32_t *index) noexcept nogil:
    cdef RecordView record
    cdef const uint8_t *stop
    cdef int64_t timestamp
    cdef int32_t latest_index = -1
    cdef int fault
    max_timestamp[0] = -1
    for i in range(count):
        index[0] = i
        stop = plain_record(at, end, i, &record.timestamp_delta, &record.key, &record.key_size, &record.value,
                            &record.value_size)
        if stop != NULL:
            at = stop
        else:
            fault = read_record(&at, end, &record)
            if fault != OK:
                return fault
            if record.offset_delta != i:
                return BAD_OFFSET_DELTA
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
        fault = rule_fault(&record, timestamp, require_keys, earliest, latest)
        if fault != OK:
            return fault
        if timestamp > max_timestamp[0]:
            max_timestamp[0] = timestamp
            latest_index = i
    index[0] = max(count, 0)
    if at != end:
        return TRAILING_BYTES
    index[0] = latest_index
    return OK


cdef Py_ssize_t named_records = _faults.NAMED_RECORDS


cdef object broken_rules(const uint8_t *at, const uint8_t *end, int32_t count, int64_t base_timestamp,
                         bint require_keys, int64_t earliest, int64_t latest):
    """The error for a batch with a record that breaks a rule: a second pass, which names all such records.

    A fault of the format is reported instead of them, unless there are too many of them to be named.
    """
    cdef RecordView record
    cdef int64_t timestamp
    cdef list broken = []
    cdef int fault
    for i in range(count):
        fault = read_record(&at, end, &record)
        if fault == OK and record.offset_delta != i:
            fault = BAD_OFFSET_DELTA
        if fault != OK:
            return _faults.record_error(fault, i)
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
        fault = rule_fault(&record, timestamp, require_keys, earliest, latest)
        if fault != OK:
            broken.append((fault, i, timestamp))
            if len(broken) == named_records:
                break
    else:
        if at != end:
            return _faults.record_error(TRAILING_BYTES, count)
    return _faults.rules_error(broken, earliest, latest)


def check_records(buffer, Py_ssize_t start, Py_ssize_t end, header, bint require_keys,
                  int64_t earliest_ms, int64_t latest_ms):
    """One pass over the records at `buffer[start:end]`: (largest timestamp, offset delta of its record).

    (-1, -1) if no record has a timestamp. The bytes follow the header of an uncompressed batch, or are a
    batch's decompressed records. An error names all records that break a rule of the topic.
    """
    cdef int32_t count = header.record_count
    cdef int64_t base_timestamp = header.base_timestamp
    cdef int64_t max_timestamp
    cdef int32_t index = 0
    cdef int fault
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    check_range(&view, start, end)
    cdef const uint8_t *at = <const uint8_t *>view.buf
    with nogil:
        fault = check_pass(at + start, at + end, count, base_timestamp, require_keys, earliest_ms, latest_ms,
                           &max_timestamp, &index)
    error = None
    try:
        if fault == NO_KEY or fault == BAD_TIMESTAMP:
            error = broken_rules(at + start, at + end, count, base_timestamp, require_keys, earliest_ms, latest_ms)
        elif fault != OK:
            error = _faults.record_error(fault, index)
    finally:
        PyBuffer_Release(&view)
    if error is not None:
        raise error
    return max_timestamp, index


cdef int admit_fault(const uint8_t *at, Py_ssize_t size, bint require_keys, int64_t earliest, int64_t latest
                     ) noexcept nogil:
    """Whether this is one plain data batch of a client that passes every check."""
    cdef int64_t max_timestamp
    cdef int32_t index
    if size < HEADER_BYTES or load64(at) != 0 or frame_fault(at, size) != OK or load32(at + 8) != size - OVERHEAD_BYTES:
        return SHORT
    if at[22] & ~FLAG_TRANSACTIONAL or field_fault(at) != OK or load32(at + 57) <= 0:
        return BAD_COUNT
    if load32(at + 23) != load32(at + 57) - 1:
        return BAD_LAST_DELTA
    if load64(at + 43) < 0 and at[22] & FLAG_TRANSACTIONAL or load64(at + 43) >= 0 and load32(at + 53) < 0:
        return BAD_COUNT
    if crc32c_of(at + 21, size - 21) != <uint32_t>load32(at + 17):
        return BAD_CRC
    index = check_pass(at + HEADER_BYTES, at + size, load32(at + 57), load64(at + 27), require_keys, earliest,
                       latest, &max_timestamp, &index)
    return index if index != OK else (OK if max_timestamp == load64(at + 35) else BAD_TIMESTAMP)


def admit(buffer, int64_t base_offset, int32_t leader_epoch, bint require_keys, int64_t earliest_ms, int64_t latest_ms):
    """Fast path for the common produce: set offset and leader epoch of the single batch that fills `buffer`.

    Returns its header. Only an uncompressed batch that passes every rule for clients is accepted; for any
    other the result is None, nothing is changed, and `validate_batch` decides.
    """
    cdef Py_buffer view
    cdef int fault
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    cdef uint8_t *at = <uint8_t *>view.buf
    try:
        if view.len < NOGIL_BYTES:
            fault = admit_fault(at, view.len, require_keys, earliest_ms, latest_ms)
        else:
            with nogil:
                fault = admit_fault(at, view.len, require_keys, earliest_ms, latest_ms)
        if fault != OK:
            return None
        store64(at, base_offset)
        store32(at + 12, leader_epoch)
        return make_header(at)
    finally:
        PyBuffer_Release(&view)


cdef object optional_bytes(const uint8_t *at, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *>at, size)


cdef tuple make_headers(const uint8_t *at, const uint8_t *end, int32_t count):
    """The headers of a record that read_record has already checked."""
    cdef HeaderView header
    cdef list headers = []
    for _ in range(count):
        fault = read_header(&at, end, &header)
        if fault != OK:
            raise _faults.record_error(fault, 0)
        key = PyUnicode_DecodeUTF8(<const char *>header.name, header.name_size, "replace")
        headers.append((key, optional_bytes(header.value, header.value_size)))
    return tuple(headers)


cdef class RecordIterator:
    """Yields the records of one batch, each decoded when it is requested."""

    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int32_t index, count, last_delta, previous_delta
    cdef int64_t base_offset, base_timestamp, max_timestamp
    cdef bint append_time

    def __cinit__(self, buffer, Py_ssize_t start, Py_ssize_t end, header):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        check_range(&self.view, start, end)
        self.held = True
        self.at = <const uint8_t *>self.view.buf + start
        self.end = <const uint8_t *>self.view.buf + end
        self.count = header.record_count
        self.last_delta = header.last_offset_delta
        self.previous_delta = -1
        self.base_offset = header.base_offset
        self.base_timestamp = header.base_timestamp
        self.max_timestamp = header.max_timestamp
        self.append_time = header.attributes & FLAG_LOG_APPEND_TIME

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    def __iter__(self):
        return self

    cdef fail(self, int fault):
        index = self.index
        self.index = self.count
        self.at = self.end
        raise _faults.record_error(fault, index)

    def __next__(self):
        cdef RecordView record
        cdef int64_t timestamp
        cdef int fault
        if self.index >= self.count:
            if self.at != self.end:
                return self.fail(TRAILING_BYTES)
            raise StopIteration
        fault = read_record(&self.at, self.end, &record)
        if fault == OK and (record.offset_delta <= self.previous_delta or record.offset_delta > self.last_delta):
            fault = BAD_OFFSET_DELTA
        if fault != OK:
            return self.fail(fault)
        self.previous_delta = record.offset_delta
        self.index += 1
        if self.append_time:
            timestamp = self.max_timestamp
        else:
            timestamp = <int64_t>(<uint64_t>self.base_timestamp + <uint64_t>record.timestamp_delta)
        cdef tuple fields = (
            self.base_offset + record.offset_delta,
            timestamp,
            optional_bytes(record.key, record.key_size),
            optional_bytes(record.value, record.value_size),
            make_headers(record.headers, self.end, record.header_count) if record.header_count else (),
        )
        return PyTuple_Type.tp_new(record_type, (fields,), NULL)


def iterate(buffer, Py_ssize_t start, Py_ssize_t end, header):
    """The records at `buffer[start:end]` one by one; a fault is raised when it is reached."""
    return RecordIterator(buffer, start, end, header)


cdef inline Py_ssize_t field_size(bytes field):
    return 1 if field is None else varlong_size(PyBytes_GET_SIZE(field)) + PyBytes_GET_SIZE(field)


cdef inline uint8_t *write_field(uint8_t *at, bytes field):
    if field is None:
        return write_varlong(at, -1)
    at = write_varlong(at, PyBytes_GET_SIZE(field))
    memcpy(at, PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field))
    return at + PyBytes_GET_SIZE(field)


def append_record(bytearray buffer not None, int64_t base_timestamp, int64_t timestamp, int32_t offset_delta,
                  bytes key, bytes value, headers):
    """Encode one record at the end of `buffer`."""
    cdef int64_t delta = <int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp)
    cdef list encoded = [(name.encode(), held) for name, held in headers] if headers else []
    cdef Py_ssize_t size = 1 + varlong_size(delta) + varlong_size(offset_delta)
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(buffer)
    size += field_size(key) + field_size(value) + varlong_size(len(encoded))
    for name, held in encoded:
        size += field_size(name) + field_size(held)
    if size > 0x7fffffff:
        raise OverflowError("a record cannot be larger than 2 GiB")
    PyByteArray_Resize(buffer, before + varlong_size(size) + size)
    cdef uint8_t *at = <uint8_t *>PyByteArray_AS_STRING(buffer) + before
    at = write_varlong(at, size)
    at[0] = 0
    at = write_varlong(at + 1, delta)
    at = write_varlong(at, offset_delta)
    at = write_field(write_field(at, key), value)
    at = write_varlong(at, len(encoded))
    for name, held in encoded:
        at = write_field(write_field(at, name), held)
