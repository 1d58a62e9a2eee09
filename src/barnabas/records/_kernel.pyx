# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The record kernel, compiled: all functions that parse the bytes of a batch, in one pass and without
objects.

Its twin is _pure.py, the same in plain Python; tests/records/test_parity.py checks that both give the same
bytes, values and error classes. A pass never reads beyond `end`, whatever the bytes are, and reports faults
by the numbers of _faults.py. The GIL is released only for enough work: a short pass on the event loop would
lose more by handing the GIL to another thread than it takes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcpy
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from barnabas.records import _faults
from barnabas.records.batch import BatchHeader
from barnabas.records.record import Record

cdef extern from "_crc32c.h":
    void crc32c_init() nogil
    uint32_t crc32c_of(const uint8_t *data, size_t size) nogil
    uint32_t crc32c_portable(const uint8_t *data, size_t size) nogil

cdef extern from "_plain_record.h":
    const uint8_t *plain_record(const uint8_t *at, const uint8_t *end, uint32_t offset_delta,
                                int64_t *timestamp_delta, const uint8_t **key, int32_t *key_size,
                                const uint8_t **value, int32_t *value_size) nogil

cdef extern from "_bytes.h":
    int16_t load16(const uint8_t *at) nogil
    int32_t load32(const uint8_t *at) nogil
    int64_t load64(const uint8_t *at) nogil
    void store16(uint8_t *at, uint64_t value) nogil
    void store32(uint8_t *at, uint64_t value) nogil
    void store64(uint8_t *at, uint64_t value) nogil
    int read_varint(const uint8_t **at, const uint8_t *end, int32_t *out) nogil
    int read_varlong(const uint8_t **at, const uint8_t *end, int64_t *out) nogil
    int varlong_size(int64_t value) nogil
    uint8_t *write_varlong(uint8_t *at, int64_t value) nogil

cdef extern from "_hashes.h":
    int32_t murmur2_of(const uint8_t *data, size_t size) nogil
    uint64_t little64(const uint8_t *at, size_t size) nogil
    void siphash128(const uint8_t *data, size_t size, uint64_t k0, uint64_t k1, uint64_t *out) nogil

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_new)(PyTypeObject *, object, void *)
    PyTypeObject PyTuple_Type

crc32c_init()

NAME = "c"

cdef PyTypeObject *header_type = <PyTypeObject *>BatchHeader
cdef PyTypeObject *record_type = <PyTypeObject *>Record

cdef enum:
    HEADER_BYTES = 61
    OVERHEAD_BYTES = 12
    UP_TO_MAGIC_BYTES = 17
    MIN_LENGTH = 49
    MIN_RECORD_BYTES = 7
    MAX_CODEC = 4
    # below this a checksum takes less time than releasing and regaining the GIL may
    NOGIL_BYTES = 65536

    FLAG_LOG_APPEND_TIME = 0x08
    FLAG_TRANSACTIONAL = 0x10

    OK = 0
    SHORT = 1
    OLD_MAGIC = 2
    BAD_MAGIC = 3
    BAD_LENGTH = 4
    BAD_CRC = 5
    BAD_CODEC = 6
    BAD_COUNT = 7
    BAD_LAST_DELTA = 8
    BAD_BASE_OFFSET = 9
    BAD_RECORD_LENGTH = 20
    BAD_VARINT = 21
    BAD_FIELD = 22
    BAD_HEADER_COUNT = 23
    BAD_RECORD_END = 24
    TRAILING_BYTES = 25
    MISSING_RECORDS = 26
    BAD_OFFSET_DELTA = 27
    NO_KEY = 28
    BAD_TIMESTAMP = 29


cdef struct RecordView:
    int64_t timestamp_delta
    int32_t offset_delta
    const uint8_t *key
    int32_t key_size
    const uint8_t *value
    int32_t value_size
    int32_t header_count
    const uint8_t *headers
    # the key's length and the rest: these bytes do not depend on the batch
    const uint8_t *tail


cdef struct HeaderView:
    const uint8_t *name
    int32_t name_size
    const uint8_t *value
    int32_t value_size


cdef int check_range(Py_buffer *view, Py_ssize_t start, Py_ssize_t end) except -1:
    if start < 0 or end < start or end > view.len:
        PyBuffer_Release(view)
        raise ValueError("the range is not inside the buffer")
    return 0


# ---- batches ----------------------------------------------------------------------------------------------


cdef uint32_t checksum(const uint8_t *data, Py_ssize_t size) noexcept:
    cdef uint32_t crc
    if size < NOGIL_BYTES:
        return crc32c_of(data, size)
    with nogil:
        crc = crc32c_of(data, size)
    return crc


cdef object make_header(const uint8_t *at):
    cdef tuple fields = (
        load64(at), load32(at + 8), load32(at + 12), <int8_t>at[16], <uint32_t>load32(at + 17),
        load16(at + 21), load32(at + 23), load64(at + 27), load64(at + 35), load64(at + 43),
        load16(at + 51), load32(at + 53), load32(at + 57),
    )
    return PyTuple_Type.tp_new(header_type, (fields,), NULL)


cdef inline Py_ssize_t batch_size(const uint8_t *at) noexcept nogil:
    """The size of the whole batch by its own length field; wide, since that field may have any value."""
    return <Py_ssize_t>OVERHEAD_BYTES + load32(at + 8)


cdef int frame_fault(const uint8_t *at, Py_ssize_t available) noexcept nogil:
    """Whether there is a whole v2 batch at `at`, judged by its length and magic."""
    if available < UP_TO_MAGIC_BYTES:
        return SHORT
    if at[16] != 2:
        return OLD_MAGIC if at[16] < 2 else BAD_MAGIC
    if load32(at + 8) < MIN_LENGTH:
        return BAD_LENGTH
    return SHORT if available - OVERHEAD_BYTES < load32(at + 8) else OK


cdef int field_fault(const uint8_t *at) noexcept nogil:
    """Whether the fields of a complete header are consistent."""
    cdef int32_t count = load32(at + 57)
    cdef int32_t last_delta = load32(at + 23)
    cdef int codec = at[22] & 7
    cdef int64_t base = load64(at)
    if codec > MAX_CODEC:
        return BAD_CODEC
    if count < 0 or (codec == 0 and <int64_t>count * MIN_RECORD_BYTES > load32(at + 8) - MIN_LENGTH):
        return BAD_COUNT
    if last_delta < 0 or last_delta < <int64_t>count - 1:
        return BAD_LAST_DELTA
    if base < 0 or base > <int64_t>0x7fffffffffffffff - last_delta - 1:
        return BAD_BASE_OFFSET
    return OK


cdef int batch_fault(const uint8_t *at, Py_ssize_t available, bint verify_crc) noexcept:
    cdef int fault = frame_fault(at, available)
    if fault != OK:
        return fault
    if verify_crc and checksum(at + 21, load32(at + 8) - 9) != <uint32_t>load32(at + 17):
        return BAD_CRC
    return field_fault(at)


def crc32c(buffer, Py_ssize_t start, Py_ssize_t end):
    """The CRC-32C of `buffer[start:end]`."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    check_range(&view, start, end)
    cdef uint32_t crc = checksum(<const uint8_t *>view.buf + start, end - start)
    PyBuffer_Release(&view)
    return crc


def crc32c_without_instruction(buffer, Py_ssize_t start, Py_ssize_t end):
    """The same by tables, as on a processor without the instruction."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    check_range(&view, start, end)
    cdef uint32_t crc = crc32c_portable(<const uint8_t *>view.buf + start, end - start)
    PyBuffer_Release(&view)
    return crc


def check_batch(buffer, Py_ssize_t position, Py_ssize_t end):
    """The header of the batch at `position`, after its length, magic, CRC-32C and fields have been
    checked."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    check_range(&view, position, end)
    cdef const uint8_t *at = <const uint8_t *>view.buf + position
    try:
        fault = batch_fault(at, end - position, True)
        if fault != OK:
            raise _faults.batch_error(fault, position)
        return make_header(at)
    finally:
        PyBuffer_Release(&view)


def assign(buffer, Py_ssize_t position, int64_t base_offset, int32_t leader_epoch):
    """Write base offset and leader epoch into the header at `position`; the CRC does not cover them."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    check_range(&view, position, position + HEADER_BYTES)
    cdef uint8_t *at = <uint8_t *>view.buf + position
    store64(at, base_offset)
    store32(at + 12, leader_epoch)
    PyBuffer_Release(&view)


cdef int renew(Py_buffer *view, Py_ssize_t position, Py_ssize_t size, int flags, int64_t max_timestamp) except -1:
    if size < HEADER_BYTES:
        size = view.len + 1
    check_range(view, position, position + size)
    cdef uint8_t *at = <uint8_t *>view.buf + position
    at[22] = at[22] | flags
    store64(at + 35, max_timestamp)
    store32(at + 17, checksum(at + 21, size - 21))
    PyBuffer_Release(view)
    return 0


def stamp(buffer, Py_ssize_t position, Py_ssize_t size, int64_t max_timestamp):
    """Turn the batch at `position` into one of log append time, at `max_timestamp`, and update its CRC."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    renew(&view, position, size, FLAG_LOG_APPEND_TIME, max_timestamp)


def set_max_timestamp(buffer, Py_ssize_t position, Py_ssize_t size, int64_t max_timestamp):
    """Correct the largest timestamp in the header of the batch at `position`, and update its CRC."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    renew(&view, position, size, 0, max_timestamp)


def scan(buffer, Py_ssize_t position, Py_ssize_t end, bint verify_crc):
    """Walk whole batches: (their headers, the bytes they take, the fault of what follows or None).

    None with all bytes consumed means that they end with a batch; None with bytes left means that an
    incomplete batch follows, as far as its bytes can tell.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    check_range(&view, position, end)
    cdef const uint8_t *at = <const uint8_t *>view.buf + position
    cdef const uint8_t *stop = <const uint8_t *>view.buf + end
    cdef const uint8_t *first = at
    cdef list headers = []
    cdef int fault = SHORT
    try:
        while at < stop:
            fault = batch_fault(at, stop - at, verify_crc)
            if fault != OK:
                break
            headers.append(make_header(at))
            at += batch_size(at)
        problem = None if at == stop or fault == SHORT else _faults.reason(fault)
        return headers, at - first, problem
    finally:
        PyBuffer_Release(&view)


def scan_headers(buffer, Py_ssize_t position, Py_ssize_t end):
    """The headers from `position` on, each with its position; the last one's body may be missing.

    The walk ends before the first header that is incomplete or invalid; checksums are not verified.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    check_range(&view, position, end)
    cdef const uint8_t *base = <const uint8_t *>view.buf
    cdef list headers = []
    cdef int fault
    try:
        while end - position >= HEADER_BYTES:
            fault = frame_fault(base + position, end - position)
            if (fault != OK and fault != SHORT) or field_fault(base + position) != OK:
                break
            headers.append((make_header(base + position), position))
            position += batch_size(base + position)
        return headers
    finally:
        PyBuffer_Release(&view)


include "_records.pxi"
include "_decode.pxi"
include "_encode.pxi"
include "_hashes.pxi"
include "_offset_map.pxi"
include "_compact.pxi"
