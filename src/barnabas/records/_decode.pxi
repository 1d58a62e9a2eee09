# Batches into columns; part of _kernel.pyx.
#
# The decoder writes directly into the buffers that Arrow will read. Before a batch it reserves the most that
# the batch can hold (untouched memory costs nothing), so that the loop over the records needs no checks of
# capacity, and it notes its position, so that an invalid batch leaves no trace.

from libc.stdlib cimport free, realloc

from barnabas.records.columns import BinaryColumn, Columns, HeaderColumn

cdef extern from "_memory.h":
    void advise_large(void *data, size_t size) nogil

cdef extern from "Python.h":
    int PyBuffer_FillInfo(Py_buffer *view, object owner, void *data, Py_ssize_t size, int readonly, int flags) except -1

cdef enum:
    OFFSETS, TIMESTAMPS, KEY_VALID, KEY_ENDS, KEY_DATA, VALUE_VALID, VALUE_ENDS, VALUE_DATA
    HEADER_ENDS, NAME_ENDS, NAME_DATA, HELD_VALID, HELD_ENDS, HELD_DATA, SLABS

    TOO_LARGE = 30
    NO_MEMORY = -1
    COMPRESSED = -2
    MAX_COLUMN_BYTES = 0x7fffffff
    # a copy may write up to so many bytes beyond its end
    SLACK_BYTES = 32
    FLAG_CONTROL = 0x20

    MAX_SPARES = 8
    MIN_SPARE_BYTES = 1 << 18
    MAX_SPARE_BYTES = 64 << 20


cdef struct Slab:
    uint8_t *data
    size_t capacity


cdef struct Marks:
    Py_ssize_t rows, key_bytes, value_bytes, key_nulls, value_nulls
    Py_ssize_t headers, name_bytes, held_bytes, held_nulls


cdef struct Range:
    int64_t first, stop


cdef struct Batch:
    int64_t base_offset, base_timestamp, max_timestamp
    int32_t count, last_delta
    bint append_time


cdef int reserve(Slab *slab, size_t size) noexcept nogil:
    cdef uint8_t *grown
    cdef size_t capacity
    if size + SLACK_BYTES <= slab.capacity:
        return OK
    capacity = max(size + SLACK_BYTES, 2 * slab.capacity)
    grown = <uint8_t *>realloc(slab.data, capacity)
    if grown == NULL:
        return NO_MEMORY
    advise_large(grown, capacity)
    slab.data = grown
    slab.capacity = capacity
    return OK


cdef int reserve_rows(Slab *slabs, Marks *marks, size_t rows, size_t size) noexcept nogil:
    cdef size_t total = marks.rows + rows
    if (reserve(&slabs[OFFSETS], 8 * total) or reserve(&slabs[TIMESTAMPS], 8 * total)
            or reserve(&slabs[KEY_VALID], total // 8 + 1) or reserve(&slabs[KEY_ENDS], 4 * total + 4)
            or reserve(&slabs[VALUE_VALID], total // 8 + 1) or reserve(&slabs[VALUE_ENDS], 4 * total + 4)
            or reserve(&slabs[KEY_DATA], marks.key_bytes + size)
            or reserve(&slabs[VALUE_DATA], marks.value_bytes + size)
            or reserve(&slabs[HEADER_ENDS], 4 * total + 4)):
        return NO_MEMORY
    return OK


cdef int reserve_headers(Slab *slabs, Marks *marks, size_t headers, size_t size) noexcept nogil:
    cdef size_t total = marks.headers + headers
    if (reserve(&slabs[NAME_ENDS], 4 * total + 4) or reserve(&slabs[HELD_ENDS], 4 * total + 4)
            or reserve(&slabs[HELD_VALID], total // 8 + 1)
            or reserve(&slabs[NAME_DATA], marks.name_bytes + size)
            or reserve(&slabs[HELD_DATA], marks.held_bytes + size)):
        return NO_MEMORY
    return OK


cdef inline void set_bit(uint8_t *bits, Py_ssize_t row, bint valid) noexcept nogil:
    """Set or clear a bit: the byte is uninitialised before its first bit is written."""
    cdef uint8_t bit = 1 << (row & 7)
    if valid:
        bits[row >> 3] |= bit
    else:
        bits[row >> 3] &= ~bit


cdef inline void copy(uint8_t *to, const uint8_t *source, Py_ssize_t size, const uint8_t *end) noexcept nogil:
    """memcpy, or for a short field that is not the last one, whole words without a call."""
    cdef Py_ssize_t done = 0
    if size > 256 or end - source < size + SLACK_BYTES:
        memcpy(to, source, size)
        return
    while done < size:
        memcpy(to + done, source + done, SLACK_BYTES)
        done += SLACK_BYTES


cdef int add_headers(Slab *slabs, Marks *marks, RecordView *record, const uint8_t *end) noexcept nogil:
    cdef const uint8_t *at = record.headers
    cdef HeaderView header
    cdef Py_ssize_t row
    cdef int fault
    if reserve_headers(slabs, marks, record.header_count, end - at):
        return NO_MEMORY
    for _ in range(record.header_count):
        row = marks.headers
        fault = read_header(&at, end, &header)
        if fault != OK:
            return fault
        memcpy(slabs[NAME_DATA].data + marks.name_bytes, header.name, header.name_size)
        marks.name_bytes += header.name_size
        (<int32_t *>slabs[NAME_ENDS].data)[row + 1] = <int32_t>marks.name_bytes
        set_bit(slabs[HELD_VALID].data, row, header.value_size >= 0)
        if header.value_size < 0:
            marks.held_nulls += 1
        else:
            memcpy(slabs[HELD_DATA].data + marks.held_bytes, header.value, header.value_size)
            marks.held_bytes += header.value_size
        (<int32_t *>slabs[HELD_ENDS].data)[row + 1] = <int32_t>marks.held_bytes
        marks.headers += 1
    return OK


cdef struct Filling:
    uint8_t *valid
    int32_t *ends
    uint8_t *data
    Py_ssize_t filled, nulls


cdef inline void add_field(Filling *column, Py_ssize_t row, const uint8_t *at, int32_t size, const uint8_t *end) noexcept nogil:
    """Append one key or value to its column."""
    set_bit(column.valid, row, size >= 0)
    if size > 0:
        copy(column.data + column.filled, at, size, end)
        column.filled += size
    else:
        column.nulls += size < 0
    column.ends[row + 1] = <int32_t>column.filled


cdef int room_fault(Slab *slabs, Marks *marks, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
    """Reserve memory for the most that `size` bytes of records can hold."""
    if (marks.key_bytes + size > MAX_COLUMN_BYTES or marks.value_bytes + size > MAX_COLUMN_BYTES
            or marks.name_bytes + size > MAX_COLUMN_BYTES or marks.held_bytes + size > MAX_COLUMN_BYTES):
        return TOO_LARGE
    return reserve_rows(slabs, marks, max(0, min(count, size // MIN_RECORD_BYTES)), size)


cdef int decode_pass(Slab *slabs, Marks *marks, const uint8_t *at, const uint8_t *end, Batch *batch,
                     Range wanted, int32_t *index) noexcept nogil:
    cdef RecordView record
    cdef const uint8_t *stop
    cdef int32_t previous = -1, last_delta = batch.last_delta, count = batch.count
    cdef int64_t base_offset = batch.base_offset, offset
    cdef uint64_t base_timestamp = batch.max_timestamp if batch.append_time else batch.base_timestamp
    cdef uint64_t delta_mask = 0 if batch.append_time else <uint64_t>-1
    index[0] = 0
    cdef int fault = room_fault(slabs, marks, count, end - at)
    if fault != OK:
        return fault
    # in locals: a store through a byte pointer might alias what the other pointers refer to
    cdef int64_t *offsets = <int64_t *>slabs[OFFSETS].data
    cdef uint64_t *timestamps = <uint64_t *>slabs[TIMESTAMPS].data
    cdef int32_t *header_ends = <int32_t *>slabs[HEADER_ENDS].data
    cdef Filling key = Filling(slabs[KEY_VALID].data, <int32_t *>slabs[KEY_ENDS].data, slabs[KEY_DATA].data,
                               marks.key_bytes, marks.key_nulls)
    cdef Filling value = Filling(slabs[VALUE_VALID].data, <int32_t *>slabs[VALUE_ENDS].data,
                                 slabs[VALUE_DATA].data, marks.value_bytes, marks.value_nulls)
    cdef Py_ssize_t row = marks.rows
    for i in range(count):
        index[0] = i
        stop = plain_record(at, end, <uint32_t>previous + 1, &record.timestamp_delta, &record.key, &record.key_size,
                            &record.value, &record.value_size)
        if stop != NULL:
            at = stop
            record.offset_delta = <int32_t>(<uint32_t>previous + 1)
            record.header_count = 0
        else:
            fault = read_record(&at, end, &record)
            if fault != OK:
                return fault
        if record.offset_delta <= previous or record.offset_delta > last_delta:
            return BAD_OFFSET_DELTA
        previous = record.offset_delta
        offset = base_offset + previous
        if offset < wanted.first or offset >= wanted.stop:
            continue
        offsets[row] = offset
        timestamps[row] = base_timestamp + (<uint64_t>record.timestamp_delta & delta_mask)
        add_field(&key, row, record.key, record.key_size, end)
        add_field(&value, row, record.value, record.value_size, end)
        if record.header_count != 0:
            fault = add_headers(slabs, marks, &record, at)
            if fault != OK:
                return fault
        row += 1
        header_ends[row] = <int32_t>marks.headers
    index[0] = max(count, 0)
    marks.rows = row
    marks.key_bytes, marks.key_nulls = key.filled, key.nulls
    marks.value_bytes, marks.value_nulls = value.filled, value.nulls
    return OK if at == end else TRAILING_BYTES


cdef void reserve_ahead(Slab *slabs, Marks *marks, const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Reserve memory for all batches at once, by their headers; a reservation that fails is tried again
    later."""
    cdef Py_ssize_t size = end - at, rows = 0
    while end - at >= HEADER_BYTES and load32(at + 8) >= MIN_LENGTH and load32(at + 8) <= end - at - OVERHEAD_BYTES:
        if at[22] & 7 == 0 and load32(at + 57) > 0:
            rows += min(load32(at + 57), load32(at + 8) // MIN_RECORD_BYTES)
        at += batch_size(at)
    if size <= MAX_COLUMN_BYTES:
        reserve_rows(slabs, marks, rows, size)


cdef int decode_batches(Slab *slabs, Marks *marks, const uint8_t *base, Py_ssize_t *position, Py_ssize_t end,
                        Range wanted, bint control, bint verify_crc, int32_t *index) noexcept nogil:
    """Process batches up to `end`, an incomplete one, a compressed one or a fault; `position` is where it
    stopped."""
    cdef const uint8_t *at
    cdef Batch batch
    cdef Marks before
    cdef Py_ssize_t size
    cdef int fault
    index[0] = -1
    reserve_ahead(slabs, marks, base + position[0], base + end)
    while position[0] < end:
        at = base + position[0]
        fault = frame_fault(at, end - position[0])
        if fault != OK:
            return fault
        size = batch_size(at)
        if verify_crc and crc32c_of(at + 21, size - 21) != <uint32_t>load32(at + 17):
            return BAD_CRC
        fault = field_fault(at)
        if fault != OK:
            return fault
        batch.base_offset = load64(at)
        batch.last_delta = load32(at + 23)
        if ((control or not at[22] & FLAG_CONTROL) and batch.base_offset < wanted.stop
                and batch.base_offset + batch.last_delta >= wanted.first):
            if at[22] & 7:
                return COMPRESSED
            batch.base_timestamp = load64(at + 27)
            batch.max_timestamp = load64(at + 35)
            batch.count = load32(at + 57)
            batch.append_time = at[22] & FLAG_LOG_APPEND_TIME
            before = marks[0]
            fault = decode_pass(slabs, marks, at + HEADER_BYTES, at + size, &batch, wanted, index)
            if fault != OK:
                marks[0] = before
                return fault
            index[0] = -1
        position[0] += size
    return OK


cdef Slab[MAX_SPARES] spares
cdef int spare_count = 0
cdef size_t spare_bytes = 0


cdef void keep_or_free(Slab slab) noexcept:
    """Keep a large slab for the next decoder: it is written faster than fresh memory, which faults."""
    global spare_count, spare_bytes
    if slab.capacity < MIN_SPARE_BYTES or spare_count == MAX_SPARES or spare_bytes + slab.capacity > MAX_SPARE_BYTES:
        free(slab.data)
        return
    spares[spare_count] = slab
    spare_count += 1
    spare_bytes += slab.capacity


cdef void take_spare(Slab *slab, size_t size) noexcept:
    """Give an empty slab the memory of a large enough spare one, if there is one."""
    global spare_count, spare_bytes
    if slab.data != NULL:
        return
    for i in range(spare_count):
        if size <= spares[i].capacity <= 4 * size:
            slab[0] = spares[i]
            spare_bytes -= slab.capacity
            spare_count -= 1
            spares[i] = spares[spare_count]
            return


cdef class ColumnBuffer:
    """Memory that the decoder has filled: read-only bytes, released with the last view of them."""

    cdef Slab slab
    cdef Py_ssize_t size

    def __dealloc__(self):
        keep_or_free(self.slab)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.slab.data, self.size, 1, flags)

    def __len__(self):
        return self.size


cdef class ColumnDecoder:
    """Collects the records of many batches into one set of columns; see columnar.decode for its use."""

    cdef Slab slabs[SLABS]
    cdef Marks marks
    cdef bint running

    def __dealloc__(self):
        for i in range(SLABS):
            free(self.slabs[i].data)

    @property
    def rows(self):
        return self.marks.rows

    def run(self, buffer, Py_ssize_t position, Py_ssize_t end, int64_t first_offset, int64_t end_offset,
            bint control, bint verify_crc):
        """Add the batches from `position` on; returns (where it stopped, the header of a compressed batch
        there)."""
        cdef Py_buffer view
        cdef Range wanted = Range(first_offset, end_offset)
        cdef Py_ssize_t at = position
        cdef int32_t index
        cdef int fault
        self.check_idle()
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        check_range(&view, position, end)
        take_spare(&self.slabs[VALUE_DATA], end - position + SLACK_BYTES)
        try:
            self.running = True
            with nogil:
                fault = decode_batches(self.slabs, &self.marks, <const uint8_t *>view.buf, &at, end, wanted,
                                       control, verify_crc, &index)
            self.running = False
            if fault == OK or fault == SHORT:
                return at, None
            if fault == COMPRESSED:
                return at, make_header(<const uint8_t *>view.buf + at)
        finally:
            PyBuffer_Release(&view)
        if index < 0 and fault != NO_MEMORY:
            raise _faults.batch_error(fault, at)
        self.fail(fault, index)

    def section(self, buffer, Py_ssize_t start, Py_ssize_t end, header, int64_t first_offset, int64_t end_offset):
        """Add the records at `buffer[start:end]`, which are those of a compressed batch with that header."""
        cdef Batch batch = Batch(header.base_offset, header.base_timestamp, header.max_timestamp,
                                 header.record_count, header.last_offset_delta,
                                 header.attributes & FLAG_LOG_APPEND_TIME)
        cdef Range wanted = Range(first_offset, end_offset)
        cdef Marks before = self.marks
        cdef Py_buffer view
        cdef int32_t index
        cdef int fault
        self.check_idle()
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        check_range(&view, start, end)
        cdef const uint8_t *at = <const uint8_t *>view.buf
        self.running = True
        with nogil:
            fault = decode_pass(self.slabs, &self.marks, at + start, at + end, &batch, wanted, &index)
        self.running = False
        PyBuffer_Release(&view)
        if fault != OK:
            self.marks = before
            self.fail(fault, index)

    cdef int check_idle(self) except -1:
        """Raise if a call is running: without the GIL, a second thread could free memory that the first one
        writes to."""
        if self.running:
            raise RuntimeError("a decoder is for one thread at a time")
        return 0

    cdef fail(self, int fault, int32_t index):
        if fault == NO_MEMORY:
            raise MemoryError
        raise _faults.record_error(fault, index)

    cdef take(self, int slab, Py_ssize_t size):
        """Hand over the memory of one slab, cut to size unless it is mostly full."""
        cdef ColumnBuffer buffer = ColumnBuffer()
        cdef uint8_t *data
        buffer.slab = self.slabs[slab]
        buffer.size = size
        self.slabs[slab] = Slab(NULL, 0)
        if buffer.slab.capacity > 2 * <size_t>size:
            data = <uint8_t *>realloc(buffer.slab.data, max(size, 1))
            if data != NULL:
                buffer.slab = Slab(data, max(size, 1))
        return buffer

    cdef bits(self, int slab, Py_ssize_t rows, Py_ssize_t nulls):
        if nulls == 0:
            return None
        if rows & 7:
            self.slabs[slab].data[rows >> 3] &= (1 << (rows & 7)) - 1
        return self.take(slab, (rows + 7) // 8)

    cdef binary(self, int valid, Py_ssize_t rows, Py_ssize_t nulls, Py_ssize_t size):
        return BinaryColumn(self.bits(valid, rows, nulls), self.ends(valid + 1, rows), self.take(valid + 2, size), nulls)

    cdef ends(self, int slab, Py_ssize_t rows):
        (<int32_t *>self.slabs[slab].data)[0] = 0
        return self.take(slab, 4 * rows + 4)

    def finish(self):
        """The columns; afterwards the decoder is empty again."""
        cdef Marks m = self.marks
        self.check_idle()
        if reserve_rows(self.slabs, &m, 0, 0) or reserve_headers(self.slabs, &m, 0, 0):
            raise MemoryError
        names = BinaryColumn(None, self.ends(NAME_ENDS, m.headers), self.take(NAME_DATA, m.name_bytes), 0)
        held = self.binary(HELD_VALID, m.headers, m.held_nulls, m.held_bytes)
        columns = Columns(
            m.rows,
            self.take(OFFSETS, 8 * m.rows),
            self.take(TIMESTAMPS, 8 * m.rows),
            self.binary(KEY_VALID, m.rows, m.key_nulls, m.key_bytes),
            self.binary(VALUE_VALID, m.rows, m.value_nulls, m.value_bytes),
            HeaderColumn(self.ends(HEADER_ENDS, m.rows), names, held),
        )
        self.marks = Marks(0, 0, 0, 0, 0, 0, 0, 0, 0)
        return columns
