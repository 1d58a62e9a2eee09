# Hashes of keys; part of _kernel.pyx. _hashes.h describes their uses.


def murmur2(bytes key not None):
    """The hash by which Kafka's clients choose a partition, as a signed 32-bit number."""
    return murmur2_of(<const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


def partition_column(column, Py_ssize_t rows, int32_t partitions):
    """The partition of every key as int32 values; -1 for a null key."""
    if partitions <= 0:
        raise ValueError("a topic has at least one partition")
    cdef Held held = Held()
    cdef Binary source
    held.binary(&source, column, rows)
    cdef bytearray result = PyByteArray_FromStringAndSize(NULL, 4 * rows)
    cdef int32_t *out = <int32_t *>PyByteArray_AS_STRING(result)
    cdef Py_ssize_t row, size, bad = 0
    with nogil:
        for row in range(rows):
            size = binary_size(&source, row)
            if size < 0:
                bad += size < -1
                out[row] = -1
            else:
                out[row] = (murmur2_of(source.data + source.ends[source.first + row], size) & 0x7fffffff) % partitions
    if bad:
        raise ValueError(BAD_COLUMNS)
    return result


def group_rows(numbers, Py_ssize_t rows, int32_t groups):
    """Group rows by their int32 number (-1 to groups - 1), stable: (row numbers, the end of each group).

    Both as int32 values. Group n is from ends[n] to ends[n + 1]; ends[0] is the end of group -1.
    """
    if not (0 <= rows <= MAX_COLUMN_BYTES and 0 <= groups < MAX_COLUMN_BYTES - 2):
        raise ValueError(BAD_COLUMNS)
    cdef Held held = Held()
    cdef const int32_t *number = <const int32_t *>held.bytes_of(numbers, 4 * rows)
    cdef bytearray order = PyByteArray_FromStringAndSize(NULL, 4 * rows)
    cdef bytearray ends = bytearray(4 * (<Py_ssize_t>groups + 1))
    cdef int32_t *out = <int32_t *>PyByteArray_AS_STRING(order)
    cdef int32_t *end = <int32_t *>PyByteArray_AS_STRING(ends)
    cdef Py_ssize_t row, group, bad = 0
    cdef int32_t start = 0, size
    with nogil:
        for row in range(rows):
            if -1 <= number[row] < groups:
                end[number[row] + 1] += 1
            else:
                bad += 1
        if bad == 0:
            # from counts to the start of each group, which becomes its end as rows are placed
            for group in range(<Py_ssize_t>groups + 1):
                size = end[group]
                end[group] = start
                start += size
            for row in range(rows):
                out[end[number[row] + 1]] = <int32_t>row
                end[number[row] + 1] += 1
    if bad:
        raise ValueError("a number belongs to no group")
    return order, ends


cdef int hash_pass(const uint8_t *at, const uint8_t *end, int32_t count, int32_t last_delta, int64_t base_offset,
                   uint64_t k0, uint64_t k1, uint8_t *out, Py_ssize_t *filled, int32_t *index) noexcept nogil:
    cdef RecordView record
    cdef uint64_t entry[3]
    cdef int32_t previous = -1
    cdef int fault
    for i in range(count):
        index[0] = i
        fault = read_record(&at, end, &record)
        if fault != OK:
            return fault
        if record.offset_delta <= previous or record.offset_delta > last_delta:
            return BAD_OFFSET_DELTA
        previous = record.offset_delta
        if record.key_size >= 0:
            siphash128(record.key, record.key_size, k0, k1, entry)
            entry[2] = base_offset + record.offset_delta
            memcpy(out + filled[0], entry, 24)
            filled[0] += 24
    index[0] = max(count, 0)
    return OK if at == end else TRAILING_BYTES


def key_hashes(buffer, Py_ssize_t start, Py_ssize_t end, header, bytes seed not None):
    """For every record with a key, 24 bytes: the 128-bit hash of the key, then its offset as native int64."""
    if PyBytes_GET_SIZE(seed) != 16:
        raise ValueError("the seed must be 16 bytes")
    cdef const uint8_t *secret = <const uint8_t *>PyBytes_AS_STRING(seed)
    cdef uint64_t k0 = little64(secret, 8), k1 = little64(secret + 8, 8)
    cdef int64_t base_offset = header.base_offset
    cdef int32_t count = header.record_count, last_delta = header.last_offset_delta, index = 0
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    check_range(&view, start, end)
    cdef const uint8_t *at = <const uint8_t *>view.buf
    cdef bytearray result
    cdef uint8_t *out
    cdef Py_ssize_t size = 0
    cdef int fault
    try:
        result = PyByteArray_FromStringAndSize(NULL, 24 * min(<Py_ssize_t>max(count, 0), (end - start) // MIN_RECORD_BYTES))
        out = <uint8_t *>PyByteArray_AS_STRING(result)
        with nogil:
            fault = hash_pass(at + start, at + end, count, last_delta, base_offset, k0, k1, out, &size, &index)
    finally:
        PyBuffer_Release(&view)
    if fault != OK:
        raise _faults.record_error(fault, index)
    PyByteArray_Resize(result, size)
    return result
