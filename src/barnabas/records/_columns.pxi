# Columns out of batches and batches out of columns; part of _kernel.pyx.
#
# The decoder writes straight into the buffers that Arrow will read. Before a batch it makes room for the most
# that batch can hold (memory that is never touched costs nothing), so that the loop over the records needs no
# check of room, and it notes where it stood, so that a bad batch leaves no trace.

from libc.stdlib cimport free, realloc

from barnabas.records.columns import BinaryColumn, Columns, HeaderColumn

cdef extern from "_memory.h":
    void advise_large(void *data, size_t size) nogil

cdef extern from "Python.h":
    int PyBuffer_FillInfo(Py_buffer *view, object owner, void *data, Py_ssize_t size, int readonly, int flags) except -1

BAD_COLUMNS = "the columns contradict themselves, or a row is larger than a batch can be"

cdef enum:
    OFFSETS, TIMESTAMPS, KEY_VALID, KEY_ENDS, KEY_DATA, VALUE_VALID, VALUE_ENDS, VALUE_DATA
    HEADER_ENDS, NAME_ENDS, NAME_DATA, HELD_VALID, HELD_ENDS, HELD_DATA, SLABS

    TOO_LARGE = 30
    NO_MEMORY = -1
    COMPRESSED = -2
    MAX_COLUMN_BYTES = 0x7fffffff
    # a copy may write this much beyond its end
    SLACK_BYTES = 32
    FLAG_CONTROL = 0x20


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
    """Set or clear: the byte may hold anything before its first bit is written."""
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
    cdef int32_t size = 0
    cdef Py_ssize_t row
    if reserve_headers(slabs, marks, record.header_count, end - at):
        return NO_MEMORY
    for _ in range(record.header_count):
        row = marks.headers
        read_varint(&at, end, &size)
        memcpy(slabs[NAME_DATA].data + marks.name_bytes, at, size)
        at += size
        marks.name_bytes += size
        (<int32_t *>slabs[NAME_ENDS].data)[row + 1] = <int32_t>marks.name_bytes
        read_varint(&at, end, &size)
        set_bit(slabs[HELD_VALID].data, row, size >= 0)
        if size < 0:
            marks.held_nulls += 1
        else:
            memcpy(slabs[HELD_DATA].data + marks.held_bytes, at, size)
            at += size
            marks.held_bytes += size
        (<int32_t *>slabs[HELD_ENDS].data)[row + 1] = <int32_t>marks.held_bytes
        marks.headers += 1
    return OK


cdef struct Filling:
    uint8_t *valid
    int32_t *ends
    uint8_t *data
    Py_ssize_t filled, nulls


cdef inline void add_field(Filling *column, Py_ssize_t row, const uint8_t *at, int32_t size, const uint8_t *end) noexcept nogil:
    """Put one key or value behind the others of its column."""
    set_bit(column.valid, row, size >= 0)
    if size > 0:
        copy(column.data + column.filled, at, size, end)
        column.filled += size
    else:
        column.nulls += size < 0
    column.ends[row + 1] = <int32_t>column.filled


cdef int room_fault(Slab *slabs, Marks *marks, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
    """Make room for the most that `size` bytes of records can hold."""
    if (marks.key_bytes + size > MAX_COLUMN_BYTES or marks.value_bytes + size > MAX_COLUMN_BYTES
            or marks.name_bytes + size > MAX_COLUMN_BYTES or marks.held_bytes + size > MAX_COLUMN_BYTES):
        return TOO_LARGE
    return reserve_rows(slabs, marks, max(0, min(count, size // MIN_RECORD_BYTES)), size)


cdef int decode_pass(Slab *slabs, Marks *marks, const uint8_t *at, const uint8_t *end, Batch *batch,
                     Range wanted, int32_t *index) noexcept nogil:
    cdef RecordView record
    cdef int32_t previous = -1, last_delta = batch.last_delta, count = batch.count
    cdef int64_t base_offset = batch.base_offset, offset
    cdef uint64_t base_timestamp = batch.max_timestamp if batch.append_time else batch.base_timestamp
    cdef uint64_t delta_mask = 0 if batch.append_time else <uint64_t>-1
    index[0] = 0
    cdef int fault = room_fault(slabs, marks, count, end - at)
    if fault != OK:
        return fault
    # held in locals: a store through a byte pointer could change anything that others point to
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
        if record.header_count != 0 and add_headers(slabs, marks, &record, at):
            return NO_MEMORY
        row += 1
        header_ends[row] = <int32_t>marks.headers
    index[0] = max(count, 0)
    marks.rows = row
    marks.key_bytes, marks.key_nulls = key.filled, key.nulls
    marks.value_bytes, marks.value_nulls = value.filled, value.nulls
    return OK if at == end else TRAILING_BYTES


cdef void reserve_ahead(Slab *slabs, Marks *marks, const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Make room for all batches at once, to judge by their headers; room that fails is asked for again later."""
    cdef Py_ssize_t size = end - at, rows = 0
    while end - at >= HEADER_BYTES and load32(at + 8) >= MIN_LENGTH and load32(at + 8) <= end - at - OVERHEAD_BYTES:
        if at[22] & 7 == 0 and load32(at + 57) > 0:
            rows += min(load32(at + 57), load32(at + 8) // MIN_RECORD_BYTES)
        at += batch_size(at)
    if size <= MAX_COLUMN_BYTES:
        reserve_rows(slabs, marks, rows, size)


cdef int decode_batches(Slab *slabs, Marks *marks, const uint8_t *base, Py_ssize_t *position, Py_ssize_t end,
                        Range wanted, bint control, bint verify_crc, int32_t *index) noexcept nogil:
    """Batch after batch up to `end`, a cut one, a compressed one or a fault; `position` says where it got."""
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


cdef class ColumnBuffer:
    """Memory that the decoder filled: read-only bytes, freed with the last view of them."""

    cdef uint8_t *data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __len__(self):
        return self.size


cdef class ColumnDecoder:
    """Gathers the records of many batches into one set of columns; see columnar.decode for its use."""

    cdef Slab slabs[SLABS]
    cdef Marks marks

    def __dealloc__(self):
        for i in range(SLABS):
            free(self.slabs[i].data)

    @property
    def rows(self):
        return self.marks.rows

    def run(self, buffer, Py_ssize_t position, Py_ssize_t end, int64_t first_offset, int64_t end_offset,
            bint control, bint verify_crc):
        """Take in the batches from `position` on; (where it stopped, the header of a compressed batch there)."""
        cdef Py_buffer view
        cdef Range wanted = Range(first_offset, end_offset)
        cdef Py_ssize_t at = position
        cdef int32_t index
        cdef int fault
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        check_range(&view, position, end)
        try:
            with nogil:
                fault = decode_batches(self.slabs, &self.marks, <const uint8_t *>view.buf, &at, end, wanted,
                                       control, verify_crc, &index)
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
        """Take in the records at `buffer[start:end]`, which a compressed batch with that header held."""
        cdef Batch batch = Batch(header.base_offset, header.base_timestamp, header.max_timestamp,
                                 header.record_count, header.last_offset_delta,
                                 header.attributes & FLAG_LOG_APPEND_TIME)
        cdef Range wanted = Range(first_offset, end_offset)
        cdef Marks before = self.marks
        cdef Py_buffer view
        cdef int32_t index
        cdef int fault
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        check_range(&view, start, end)
        cdef const uint8_t *at = <const uint8_t *>view.buf
        with nogil:
            fault = decode_pass(self.slabs, &self.marks, at + start, at + end, &batch, wanted, &index)
        PyBuffer_Release(&view)
        if fault != OK:
            self.marks = before
            self.fail(fault, index)

    cdef fail(self, int fault, int32_t index):
        if fault == NO_MEMORY:
            raise MemoryError
        raise _faults.record_error(fault, index)

    cdef take(self, int slab, Py_ssize_t size):
        """Hand the memory of one slab over, cut to size."""
        cdef ColumnBuffer buffer = ColumnBuffer()
        cdef uint8_t *data = <uint8_t *>realloc(self.slabs[slab].data, max(size, 1))
        buffer.data = self.slabs[slab].data if data == NULL else data
        buffer.size = size
        self.slabs[slab] = Slab(NULL, 0)
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
        """The columns; the decoder is empty again."""
        cdef Marks m = self.marks
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


# ---- encoding ---------------------------------------------------------------------------------------------


cdef struct Binary:
    const uint8_t *valid
    const int32_t *ends
    const uint8_t *data
    Py_ssize_t first
    Py_ssize_t valid_bits, ends_count, size


cdef struct Source:
    const int64_t *timestamps
    Binary key, value, name, held
    const int32_t *header_ends
    Py_ssize_t rows, headers


cdef inline Py_ssize_t binary_size(Binary *column, Py_ssize_t row) noexcept nogil:
    """The bytes of one field, -1 for a null, -2 where the column contradicts itself."""
    cdef Py_ssize_t at = column.first + row
    cdef Py_ssize_t size
    if column.valid != NULL and not column.valid[at >> 3] >> (at & 7) & 1:
        return -1
    size = <Py_ssize_t>column.ends[at + 1] - column.ends[at]
    return -2 if size < 0 or column.ends[at] < 0 or column.ends[at + 1] > column.size else size


cdef inline Py_ssize_t encoded_size(Py_ssize_t size) noexcept nogil:
    return 1 if size < 0 else varlong_size(size) + size


cdef Py_ssize_t headers_size(Source *source, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t total = 0, name, held, at
    for at in range(source.header_ends[row], source.header_ends[row + 1]):
        name = binary_size(&source.name, at)
        held = binary_size(&source.held, at)
        if name < 0 or held < -1:
            return -1
        total += encoded_size(name) + encoded_size(held)
    return total


cdef Py_ssize_t body_size(Source *source, Py_ssize_t row, int64_t delta, int32_t index) noexcept nogil:
    """What a row takes as a record, without its length; -1 where the columns contradict themselves."""
    cdef Py_ssize_t key = binary_size(&source.key, row)
    cdef Py_ssize_t value = binary_size(&source.value, row)
    cdef Py_ssize_t total = 1 + varlong_size(delta) + varlong_size(index) + encoded_size(key) + encoded_size(value)
    cdef Py_ssize_t headers = 0, count = 0
    if key < -1 or value < -1:
        return -1
    if source.header_ends != NULL and source.header_ends[row + 1] != source.header_ends[row]:
        count = source.header_ends[row + 1] - source.header_ends[row]
        if count < 0 or source.header_ends[row] < 0 or source.header_ends[row + 1] > source.headers:
            return -1
        headers = headers_size(source, row)
        if headers < 0:
            return -1
    return total + varlong_size(count) + headers


cdef inline uint8_t *put_field(uint8_t *at, Binary *column, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t size = binary_size(column, row)
    at = write_varlong(at, size)
    if size > 0:
        memcpy(at, column.data + column.ends[column.first + row], size)
        at += size
    return at


cdef uint8_t *put_record(uint8_t *at, Source *source, Py_ssize_t row, Py_ssize_t size, int64_t delta,
                         int32_t index) noexcept nogil:
    cdef Py_ssize_t header
    at = write_varlong(at, size)
    at[0] = 0
    at = write_varlong(at + 1, delta)
    at = write_varlong(at, index)
    at = put_field(at, &source.key, row)
    at = put_field(at, &source.value, row)
    if source.header_ends == NULL:
        at[0] = 0
        return at + 1
    at = write_varlong(at, source.header_ends[row + 1] - source.header_ends[row])
    for header in range(source.header_ends[row], source.header_ends[row + 1]):
        at = put_field(at, &source.name, header)
        at = put_field(at, &source.held, header)
    return at


cdef Py_ssize_t measure(Source *source, Py_ssize_t row, Py_ssize_t *stop, Py_ssize_t limit) noexcept nogil:
    """The bytes of the rows from `row` on that fit the limit, at least one; `stop` moves down to their end."""
    cdef int64_t base = source.timestamps[row], delta
    cdef Py_ssize_t first = row, total = HEADER_BYTES, size
    while row < stop[0]:
        delta = <int64_t>(<uint64_t>source.timestamps[row] - <uint64_t>base)
        size = body_size(source, row, delta, <int32_t>(row - first))
        if size < 0 or size > MAX_COLUMN_BYTES:
            return -1
        size += varlong_size(size)
        if total + size > limit and row > first:
            break
        total += size
        row += 1
    stop[0] = row
    return total


cdef int64_t fill(uint8_t *at, Source *source, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Write the rows as records; their largest timestamp."""
    cdef int64_t base = source.timestamps[start], delta, largest = -1
    cdef Py_ssize_t row
    for row in range(start, stop):
        delta = <int64_t>(<uint64_t>source.timestamps[row] - <uint64_t>base)
        at = put_record(at, source, row, body_size(source, row, delta, <int32_t>(row - start)), delta, <int32_t>(row - start))
        if source.timestamps[row] > largest:
            largest = source.timestamps[row]
    return largest


cdef void put_header(uint8_t *at, Py_ssize_t size, int16_t attributes, int64_t base_timestamp,
                     int64_t max_timestamp, int32_t count) noexcept nogil:
    store64(at, 0)
    store32(at + 8, size - OVERHEAD_BYTES)
    store32(at + 12, <uint64_t>-1)
    at[16] = 2
    store16(at + 21, attributes)
    store32(at + 23, count - 1)
    store64(at + 27, base_timestamp)
    store64(at + 35, max_timestamp)
    store32(at + 57, count)


cdef class View:
    """A buffer, held as long as this object lives."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef class Held:
    """Views of column buffers, kept as long as the pointers into them are used."""

    cdef list views

    def __cinit__(self, *arguments):
        self.views = []

    cdef const uint8_t *bytes_of(self, buffer, Py_ssize_t size) except NULL:
        cdef View held = View(buffer)
        if size < 0 or held.view.len < size:
            raise ValueError(BAD_COLUMNS)
        self.views.append(held)
        return <const uint8_t *>b"" if held.view.buf == NULL else <const uint8_t *>held.view.buf

    cdef int binary(self, Binary *out, column, Py_ssize_t rows) except -1:
        cdef Py_ssize_t first = column.first
        if first < 0 or rows < 0:
            raise ValueError(BAD_COLUMNS)
        out.valid = NULL
        if column.valid is not None:
            out.valid = self.bytes_of(column.valid, (first + rows + 7) // 8)
        out.ends = <const int32_t *>self.bytes_of(column.ends, 4 * (first + rows) + 4)
        out.data = self.bytes_of(column.data, 0)
        out.size = (<View>self.views[len(self.views) - 1]).view.len
        out.first = first
        return 0


cdef class ColumnEncoder(Held):
    """Makes batches of the rows of one set of columns; see columnar.encode for its use."""

    cdef Source source

    def __cinit__(self, columns):
        self.source.rows = columns.rows
        self.source.timestamps = <const int64_t *>self.bytes_of(columns.timestamp, 8 * columns.rows)
        self.binary(&self.source.key, columns.key, columns.rows)
        self.binary(&self.source.value, columns.value, columns.rows)
        if columns.headers is not None:
            self.source.header_ends = <const int32_t *>self.bytes_of(columns.headers.ends, 4 * columns.rows + 4)
            self.source.headers = self.source.header_ends[columns.rows]
            self.binary(&self.source.name, columns.headers.names, self.source.headers)
            self.binary(&self.source.held, columns.headers.values, self.source.headers)

    def batch(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t limit_bytes, int16_t flags,
              int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
        """An uncompressed batch of the rows from `start` that fit the limit: (its bytes, the first row left)."""
        if not 0 <= start < stop <= self.source.rows:
            raise ValueError("there are no such rows")
        cdef Py_ssize_t size
        stop = min(stop, start + MAX_COLUMN_BYTES)
        with nogil:
            size = measure(&self.source, start, &stop, min(limit_bytes, <Py_ssize_t>MAX_COLUMN_BYTES))
        if size < 0 or size > MAX_COLUMN_BYTES:
            raise ValueError(BAD_COLUMNS)
        cdef bytearray batch = PyByteArray_FromStringAndSize(NULL, size)
        cdef uint8_t *at = <uint8_t *>PyByteArray_AS_STRING(batch)
        cdef int64_t largest
        with nogil:
            largest = fill(at + HEADER_BYTES, &self.source, start, stop)
            put_header(at, size, flags, self.source.timestamps[start], largest, <int32_t>(stop - start))
            store64(at + 43, producer_id)
            store16(at + 51, producer_epoch)
            store32(at + 53, base_sequence)
            store32(at + 17, crc32c_of(at + 21, size - 21))
        return batch, stop


# ---- hashes -----------------------------------------------------------------------------------------------


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
    cdef bytearray result = PyByteArray_FromStringAndSize(NULL, 24 * min(<Py_ssize_t>max(count, 0), (end - start) // MIN_RECORD_BYTES))
    cdef uint8_t *out = <uint8_t *>PyByteArray_AS_STRING(result)
    cdef Py_ssize_t size = 0
    cdef int fault
    with nogil:
        fault = hash_pass(at + start, at + end, count, last_delta, base_offset, k0, k1, out, &size, &index)
    PyBuffer_Release(&view)
    if fault != OK:
        raise _faults.record_error(fault, index)
    PyByteArray_Resize(result, size)
    return result
