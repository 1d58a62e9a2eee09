# Columns into batches; part of _kernel.pyx.
#
# Two passes over the rows: one to measure and to check that the columns are consistent, one to write. The
# columns are external input, so every length and end in them is checked before it is used.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize

BAD_COLUMNS = "the columns contradict themselves, or a row is larger than a batch can be"


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
    const int32_t *order
    Py_ssize_t rows, headers


cdef inline Py_ssize_t binary_size(Binary *column, Py_ssize_t row) noexcept nogil:
    """The bytes of one field, -1 for a null, -2 if the column is inconsistent."""
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
    """The size of a row as a record, without its length; -1 if the columns are inconsistent."""
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


cdef inline Py_ssize_t row_at(Source *source, Py_ssize_t at) noexcept nogil:
    return at if source.order == NULL else source.order[at]


cdef Py_ssize_t measure(Source *source, Py_ssize_t first, Py_ssize_t *stop, Py_ssize_t limit) noexcept nogil:
    """The bytes of the rows from `first` on that fit the limit, at least one; `stop` is lowered to their
    end."""
    cdef int64_t base = source.timestamps[row_at(source, first)], delta
    cdef Py_ssize_t at = first, total = HEADER_BYTES, size, row
    while at < stop[0]:
        row = row_at(source, at)
        delta = <int64_t>(<uint64_t>source.timestamps[row] - <uint64_t>base)
        size = body_size(source, row, delta, <int32_t>(at - first))
        if size < 0 or size > MAX_COLUMN_BYTES:
            return -1
        size += varlong_size(size)
        if total + size > limit and at > first:
            break
        total += size
        at += 1
    stop[0] = at
    return total


cdef int64_t fill(uint8_t *at, Source *source, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Write the rows as records; returns their largest timestamp."""
    cdef int64_t base = source.timestamps[row_at(source, start)], delta, largest = -1
    cdef Py_ssize_t index, row
    for index in range(start, stop):
        row = row_at(source, index)
        delta = <int64_t>(<uint64_t>source.timestamps[row] - <uint64_t>base)
        at = put_record(at, source, row, body_size(source, row, delta, <int32_t>(index - start)), delta, <int32_t>(index - start))
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
    """A buffer, acquired as long as this object lives."""

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
        # the upper bound keeps the sums below from wrapping
        if not (0 <= first <= MAX_COLUMN_BYTES and 0 <= rows <= MAX_COLUMN_BYTES):
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
    """Makes batches from the rows of one set of columns; see columnar.Encoder for its use."""

    cdef Source source
    cdef Py_ssize_t count

    def __cinit__(self, columns, order=None):
        self.source.rows = self.count = columns.rows
        self.source.timestamps = <const int64_t *>self.bytes_of(columns.timestamp, 8 * columns.rows)
        self.binary(&self.source.key, columns.key, columns.rows)
        self.binary(&self.source.value, columns.value, columns.rows)
        if columns.headers is not None:
            self.source.header_ends = <const int32_t *>self.bytes_of(columns.headers.ends, 4 * columns.rows + 4)
            self.source.headers = self.source.header_ends[columns.rows]
            self.binary(&self.source.name, columns.headers.names, self.source.headers)
            self.binary(&self.source.held, columns.headers.values, self.source.headers)
        if order is not None:
            self.source.order = <const int32_t *>self.bytes_of(order, 0)
            self.count = (<View>self.views[len(self.views) - 1]).view.len // 4
            self.check_order()

    cdef int check_order(self) except -1:
        cdef Py_ssize_t at
        for at in range(self.count):
            if not 0 <= self.source.order[at] < self.source.rows:
                raise ValueError(BAD_COLUMNS)
        return 0

    def batch(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t limit_bytes, int16_t flags,
              int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
        """An uncompressed batch of the rows from `start` that fit the limit: (its bytes, the first row left)."""
        if not 0 <= start < stop <= self.count:
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
            put_header(at, size, flags, self.source.timestamps[row_at(&self.source, start)], largest, <int32_t>(stop - start))
            store64(at + 43, producer_id)
            store16(at + 51, producer_epoch)
            store32(at + 53, base_sequence)
            store32(at + 17, crc32c_of(at + 21, size - 21))
        return batch, stop
