# The latest offset of every key, for compaction; part of _kernel.pyx.
#
# The map is open addressing with linear probing. A slot is free if its `next_offset` (offset + 1, so that
# zeroed memory is an empty map) is 0; nothing is ever removed. It begins in a small table and moves once,
# when that is half full, to the large one, which is mapped and untouched before: a few keys take little
# memory and are quick to clear, and many get huge pages. A look-up in the large one waits for memory, so
# records are read in groups: all are hashed and their slots prefetched before the first is used.

from libc.string cimport memset

cdef extern from "_memory.h":
    void *zeroed(size_t size) nogil
    void give_back(void *data, size_t size) nogil

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void *at) nogil

cdef enum:
    SLOT_BYTES = 24
    HASH_KEY_BYTES = 16
    # the small table: this part of the large one, or at least so many slots
    SMALL_PART = 64
    MIN_SMALL_SLOTS = 64
    # the number of look-ups that wait for memory at the same time
    AHEAD = 32

    FULL = -3
    OTHER_KIND = -4
    BATCH_TOO_LARGE = -5

cdef int64_t MAX_INT64 = 0x7fffffffffffffff


cdef struct Slot:
    uint64_t low, high
    int64_t next_offset


cdef struct Table:
    Slot *slots
    size_t slot_count, size
    uint64_t k0, k1
    int64_t latest_offset
    Slot *small
    Slot *large
    size_t small_count, large_count


cdef struct Kept:
    const uint8_t *tail
    const uint8_t *stop
    int64_t timestamp_delta
    uint64_t hash[2]
    int32_t offset_delta
    # whether there is a hash to look up, and whether it is not a tombstone
    bint is_hashed, has_value


cdef inline Slot *find_slot(Table *table, const uint64_t *hash) noexcept nogil:
    """The slot with the hash, else the free one for it; NULL if there is neither."""
    cdef size_t at = hash[0] % table.slot_count
    cdef Slot *slot
    for _ in range(table.slot_count):
        slot = table.slots + at
        if slot.next_offset == 0 or (slot.low == hash[0] and slot.high == hash[1]):
            return slot
        at += 1
        if at == table.slot_count:
            at = 0
    return NULL


cdef void move_to_large(Table *table) noexcept nogil:
    cdef Slot *slot = table.small
    table.slots, table.slot_count = table.large, table.large_count
    for _ in range(table.small_count):
        if slot.next_offset != 0:
            find_slot(table, &slot.low)[0] = slot[0]
        slot += 1


cdef inline int put_offset(Table *table, const uint64_t *hash, int64_t offset) noexcept nogil:
    cdef Slot *slot = find_slot(table, hash)
    if slot == NULL:
        return FULL
    if slot.next_offset == 0:
        slot.low, slot.high = hash[0], hash[1]
        table.size += 1
    slot.next_offset = offset + 1
    table.latest_offset = offset
    if table.slots == table.small and 2 * table.size > table.small_count:
        move_to_large(table)
    return OK


cdef struct Walk:
    # over the records of one batch; only keys at offsets within [first, last] are hashed
    const uint8_t *at
    const uint8_t *end
    int64_t base_offset, first, last
    int32_t count, last_delta, previous, index


cdef int read_some(Table *table, Walk *walk, Kept *out, int32_t *taken) noexcept nogil:
    """Read up to AHEAD records; those before a faulty one are counted in `taken`."""
    cdef RecordView record
    cdef const uint8_t *stop
    cdef Kept *entry
    cdef int64_t offset
    cdef int fault
    taken[0] = 0
    while taken[0] < AHEAD and walk.index < walk.count:
        stop = plain_record(walk.at, walk.end, <uint32_t>walk.previous + 1, &record.timestamp_delta, &record.key,
                            &record.key_size, &record.value, &record.value_size)
        if stop != NULL:
            walk.at = stop
            record.offset_delta = <int32_t>(<uint32_t>walk.previous + 1)
            # the length of a plain key is one byte
            record.tail = record.key - 1
        else:
            fault = read_record(&walk.at, walk.end, &record)
            if fault != OK:
                return fault
        if record.offset_delta <= walk.previous or record.offset_delta > walk.last_delta:
            return BAD_OFFSET_DELTA
        walk.previous = record.offset_delta
        offset = walk.base_offset + record.offset_delta
        entry = out + taken[0]
        entry.tail, entry.stop = record.tail, walk.at
        entry.timestamp_delta, entry.offset_delta = record.timestamp_delta, record.offset_delta
        entry.has_value = record.value_size >= 0
        entry.is_hashed = record.key_size >= 0 and walk.first <= offset <= walk.last
        if entry.is_hashed:
            siphash128(record.key, record.key_size, table.k0, table.k1, entry.hash)
            prefetch(table.slots + entry.hash[0] % table.slot_count)
        taken[0] += 1
        walk.index += 1
    if walk.index < walk.count or walk.at == walk.end:
        return OK
    return TRAILING_BYTES


cdef Walk walk_records(const uint8_t *header, const uint8_t *at, const uint8_t *end, int64_t first,
                       int64_t last) noexcept nogil:
    cdef Walk walk
    walk.at, walk.end = at, end
    walk.base_offset, walk.first, walk.last = load64(header), first, last
    walk.count, walk.last_delta = load32(header + 57), load32(header + 23)
    walk.previous, walk.index = -1, 0
    return walk


cdef int note_records(Table *table, const uint8_t *header, const uint8_t *at, const uint8_t *end, int64_t first_offset,
                      int64_t limit, int32_t *index) noexcept nogil:
    """Put the records of one batch; FULL if there is no room for one."""
    cdef Kept entries[AHEAD]
    cdef Walk walk = walk_records(header, at, end, first_offset, MAX_INT64)
    cdef int32_t taken, i
    cdef int fault = OK
    cdef int64_t last_offset = walk.base_offset + walk.last_delta
    limit = min(limit, <int64_t>table.large_count)
    while True:
        fault = read_some(table, &walk, entries, &taken)
        for i in range(taken):
            if entries[i].is_hashed:
                if <int64_t>table.size >= limit:
                    return FULL
                if put_offset(table, entries[i].hash, walk.base_offset + entries[i].offset_delta):
                    return FULL
        index[0] = walk.index
        if fault != OK:
            return fault
        if walk.index >= walk.count:
            break
    if last_offset >= first_offset:
        table.latest_offset = last_offset
    return OK


cdef int sound_batch(const uint8_t *at, Py_ssize_t available) noexcept nogil:
    """The fault of the batch at `at`, with its checksum and fields."""
    cdef int fault = frame_fault(at, available)
    if fault != OK:
        return fault
    if crc32c_of(at + 21, batch_size(at) - 21) != <uint32_t>load32(at + 17):
        return BAD_CRC
    return field_fault(at)


cdef int note_batches(Table *table, const uint8_t *base, Py_ssize_t *position, Py_ssize_t end, int64_t first_offset,
                      int64_t limit, int32_t *index) noexcept nogil:
    """Process batches up to `end`, an incomplete one, one of another kind, a full map or a fault."""
    cdef const uint8_t *at
    cdef int fault
    index[0] = -1
    while position[0] < end:
        at = base + position[0]
        fault = sound_batch(at, end - position[0])
        if fault != OK:
            return fault
        if at[22] & (FLAG_CONTROL | FLAG_TRANSACTIONAL):
            return OTHER_KIND
        if load64(at) + load32(at + 23) >= first_offset:
            if at[22] & 7:
                return OTHER_KIND
            fault = note_records(table, at, at + HEADER_BYTES, at + batch_size(at), first_offset, limit, index)
            if fault != OK:
                return fault
            index[0] = -1
        position[0] += batch_size(at)
    return OK


cdef int pack_header(object header, uint8_t *at) except -1:
    """The header as the bytes it was read from."""
    store64(at, <int64_t>header.base_offset)
    store32(at + 8, <int32_t>header.batch_length)
    store32(at + 12, <int32_t>header.leader_epoch)
    at[16] = <int8_t>header.magic
    store32(at + 17, <uint32_t>header.crc)
    store16(at + 21, <int16_t>header.attributes)
    store32(at + 23, <int32_t>header.last_offset_delta)
    store64(at + 27, <int64_t>header.base_timestamp)
    store64(at + 35, <int64_t>header.max_timestamp)
    store64(at + 43, <int64_t>header.producer_id)
    store16(at + 51, <int16_t>header.producer_epoch)
    store32(at + 53, <int32_t>header.base_sequence)
    store32(at + 57, <int32_t>header.record_count)
    return 0


cdef const uint8_t *start_of(View held, Py_ssize_t start, Py_ssize_t end) except NULL:
    """The start of the range, which must lie within the buffer."""
    if start < 0 or end < start or end > held.view.len:
        raise ValueError("the range is not inside the buffer")
    return <const uint8_t *>b"" if held.view.buf == NULL else <const uint8_t *>held.view.buf + start


cdef object compaction_error(int fault, int32_t index, Py_ssize_t position):
    if fault == NO_MEMORY:
        return MemoryError()
    if fault == BATCH_TOO_LARGE:
        return OverflowError("a batch cannot be larger than 2 GiB")
    return _faults.batch_error(fault, position) if index < 0 else _faults.record_error(fault, index)


cdef class OffsetMap:
    """The latest offset of every key, in memory of fixed size."""

    cdef Table table
    cdef bint running

    def __cinit__(self, Py_ssize_t memory_bytes, bytes hash_key not None):
        if PyBytes_GET_SIZE(hash_key) != HASH_KEY_BYTES:
            raise ValueError("the hash key must be 16 bytes")
        if memory_bytes < SLOT_BYTES:
            raise ValueError("the memory does not hold a single slot")
        cdef const uint8_t *secret = <const uint8_t *>PyBytes_AS_STRING(hash_key)
        self.table.k0, self.table.k1 = little64(secret, 8), little64(secret + 8, 8)
        self.table.large_count = memory_bytes // SLOT_BYTES
        self.table.small_count = max(self.table.large_count // SMALL_PART, <size_t>MIN_SMALL_SLOTS)
        self.table.small = <Slot *>zeroed(self.table.small_count * SLOT_BYTES)
        self.table.large = <Slot *>zeroed(self.table.large_count * SLOT_BYTES)
        if self.table.small == NULL or self.table.large == NULL:
            raise MemoryError
        advise_large(self.table.large, self.table.large_count * SLOT_BYTES)
        self.begin_empty()

    def __dealloc__(self):
        give_back(self.table.small, self.table.small_count * SLOT_BYTES)
        give_back(self.table.large, self.table.large_count * SLOT_BYTES)

    cdef begin_empty(self):
        self.table.slots, self.table.slot_count = self.table.large, self.table.large_count
        if self.table.small_count < self.table.large_count:
            self.table.slots, self.table.slot_count = self.table.small, self.table.small_count
        self.table.size = 0
        self.table.latest_offset = -1

    cdef int check_idle(self) except -1:
        """Raise if a call is running: without the GIL, a second thread could free memory that the first one
        reads."""
        if self.running:
            raise RuntimeError("an offset map is for one thread at a time")
        return 0

    cdef int begin(self) except -1:
        self.check_idle()
        self.running = True
        return 0

    @property
    def slots(self):
        return self.table.large_count

    @property
    def size(self):
        return self.table.size

    @property
    def latest_offset(self):
        return self.table.latest_offset

    def clear(self):
        """Remove all keys, and return the memory that they used."""
        cdef size_t size = self.table.large_count * SLOT_BYTES
        cdef Slot *fresh
        self.check_idle()
        if self.table.slots == self.table.large:
            fresh = <Slot *>zeroed(size)
            if fresh == NULL:
                raise MemoryError
            give_back(self.table.large, size)
            advise_large(fresh, size)
            self.table.large = fresh
        if self.table.size > 0:
            memset(self.table.small, 0, self.table.small_count * SLOT_BYTES)
        self.begin_empty()

    def advance(self, int64_t offset):
        """Note that everything up to `offset` has been seen."""
        self.check_idle()
        self.table.latest_offset = max(self.table.latest_offset, offset)

    cdef hash_of(self, bytes key, uint64_t *hash):
        siphash128(<const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), self.table.k0, self.table.k1, hash)

    def put(self, bytes key not None, offset):
        """Store the latest offset of `key`."""
        cdef uint64_t hash[2]
        self.check_idle()
        if not 0 <= offset < MAX_INT64:
            raise ValueError("there is no such offset")
        self.hash_of(key, hash)
        if put_offset(&self.table, hash, offset) == FULL:
            raise ValueError("the map is full")

    def get(self, bytes key not None):
        """The latest offset of `key`, or -1."""
        cdef uint64_t hash[2]
        self.check_idle()
        self.hash_of(key, hash)
        cdef Slot *slot = find_slot(&self.table, hash)
        return -1 if slot == NULL else slot.next_offset - 1

    def note(self, buffer, Py_ssize_t position, Py_ssize_t end, int64_t first_offset, int64_t limit):
        """Note plain batches: (where it stopped, the header of another kind of batch there, whether the map
        is full)."""
        cdef View held = View(buffer)
        cdef const uint8_t *base = start_of(held, position, end) - position
        cdef int32_t index
        cdef int fault
        self.begin()
        with nogil:
            fault = note_batches(&self.table, base, &position, end, first_offset, limit, &index)
        self.running = False
        if fault == OTHER_KIND:
            return position, make_header(base + position), False
        if fault == OK or fault == SHORT or fault == FULL:
            return position, None, fault == FULL
        raise compaction_error(fault, index, position)

    def note_section(self, section, Py_ssize_t start, Py_ssize_t stop, header, int64_t first_offset, int64_t limit):
        """As `note`, for the records of one batch at `section[start:stop]`; returns whether the map is
        full."""
        cdef View held = View(section)
        cdef const uint8_t *at = start_of(held, start, stop)
        cdef uint8_t packed[HEADER_BYTES]
        cdef int32_t index = 0
        cdef int fault
        pack_header(header, packed)
        self.begin()
        with nogil:
            fault = note_records(&self.table, packed, at, at + (stop - start), first_offset, limit, &index)
        self.running = False
        if fault != OK and fault != FULL:
            raise compaction_error(fault, index, 0)
        return fault == FULL
