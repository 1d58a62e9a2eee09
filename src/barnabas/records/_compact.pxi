# Compaction: the latest offset of every key, and what it leaves of batches; part of _kernel.pyx.
#
# The map is open addressing with linear probing. A slot is free when its `next_offset` (offset + 1, so that zeroed
# memory is an empty map) is 0; nothing is ever taken out. It begins in a small table and moves once, when that is
# half full, to the large one, which is mapped and untouched before: a few keys cost little memory and little to
# clear, and many get huge pages. A look-up in the large one is a wait for memory, so records are read some at a
# time: all are hashed and their slots asked for before the first is looked at.
#
# The filter reads the records of a batch into `Kept` entries, leaves those that stay at the front, and then either
# copies the batch as it is or writes those entries. Lengths are taken from the entries, never read again from bytes
# that somebody may be changing.

from array import array

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
    # how many look-ups wait for memory at a time
    AHEAD = 32
    FLAG_DELETE_HORIZON = 0x40
    LASTING_FLAGS = FLAG_LOG_APPEND_TIME | FLAG_TRANSACTIONAL | FLAG_CONTROL
    # by how much a record can grow when its timestamp is put differently
    MAX_RECORD_GROWTH = 16

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
    # whether there is a hash to look up, and whether it is no tombstone
    bint is_hashed, has_value


cdef inline Slot *find_slot(Table *table, const uint64_t *hash) noexcept nogil:
    """The slot that holds the hash, else the free one where it belongs; NULL if there is neither."""
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


cdef Walk walk_records(const uint8_t *header, const uint8_t *at, const uint8_t *end, int64_t first, int64_t last) noexcept nogil:
    cdef Walk walk
    walk.at, walk.end = at, end
    walk.base_offset, walk.first, walk.last = load64(header), first, last
    walk.count, walk.last_delta = load32(header + 57), load32(header + 23)
    walk.previous, walk.index = -1, 0
    return walk


cdef int note_records(Table *table, const uint8_t *header, const uint8_t *at, const uint8_t *end, int64_t first_offset,
                      int64_t limit, int32_t *index) noexcept nogil:
    """Put the records of one batch; FULL where one comes up for which there is no room."""
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
    """What is wrong with the batch at `at`, its checksum and fields included."""
    cdef int fault = frame_fault(at, available)
    if fault != OK:
        return fault
    if crc32c_of(at + 21, batch_size(at) - 21) != <uint32_t>load32(at + 17):
        return BAD_CRC
    return field_fault(at)


cdef int note_batches(Table *table, const uint8_t *base, Py_ssize_t *position, Py_ssize_t end, int64_t first_offset,
                      int64_t limit, int32_t *index) noexcept nogil:
    """Batch after batch up to `end`, a cut one, one of another kind, a full map or a fault."""
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
    """Where the range begins, which must lie within the buffer."""
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
        """Without the GIL a second thread could take the memory away that the first one reads."""
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
        """Forget everything, and give back the memory that was used for it."""
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
        """Everything up to `offset` has been seen."""
        self.check_idle()
        self.table.latest_offset = max(self.table.latest_offset, offset)

    cdef hash_of(self, bytes key, uint64_t *hash):
        siphash128(<const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), self.table.k0, self.table.k1, hash)

    def put(self, bytes key not None, offset):
        """Note the latest offset of `key`."""
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
        """Note plain batches: (where it stopped, the header of another kind of batch there, is it full)."""
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
        """The same for the records of one batch, at `section[start:stop]`: is the map full?"""
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


cdef struct Rules:
    # of a filter: what it was told at the beginning
    const int64_t *kept_offsets
    Py_ssize_t kept_count
    int64_t end_offset, now_ms, new_horizon_ms


cdef struct Sum:
    int64_t batches_read, batches_kept, records_read, records_kept


cdef struct Gathering:
    Table *table
    Rules rules
    Sum sum
    Slab out
    size_t filled
    Slab entries


cdef struct Order:
    # what the caller wants of one batch
    bint discard_records, keep_empty, wants_horizon


cdef bint is_listed(Rules *rules, int64_t offset) noexcept nogil:
    cdef Py_ssize_t low = 0, high = rules.kept_count, middle
    while low < high:
        middle = (low + high) // 2
        if rules.kept_offsets[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low < rules.kept_count and rules.kept_offsets[low] == offset


cdef bint stays(Table *table, Kept *entry, int64_t offset, int64_t latest, bint is_expired) noexcept nogil:
    """Does the record stay? `latest` is the last offset at which the map is asked."""
    cdef Slot *slot
    if offset > latest:
        return True
    if not entry.is_hashed:
        return False
    slot = find_slot(table, entry.hash)
    if slot != NULL and offset + 1 < slot.next_offset:
        return False
    return entry.has_value or not is_expired


cdef int sift(Gathering *self, const uint8_t *header, const uint8_t *at, const uint8_t *end, int32_t *kept,
              bint *has_tombstones, int32_t *index) noexcept nogil:
    """Read the records of one batch; entries of those that stay stand at the front of `self.entries`."""
    cdef int64_t latest = -1 if header[22] & FLAG_CONTROL else self.table.latest_offset
    cdef bint is_expired = header[22] & FLAG_DELETE_HORIZON and self.rules.now_ms >= load64(header + 27)
    cdef Walk walk = walk_records(header, at, end, 0, latest)
    cdef Kept *entries
    cdef Kept *entry
    cdef int32_t taken, i
    cdef int fault
    kept[0] = 0
    has_tombstones[0] = False
    index[0] = 0
    if reserve(&self.entries, sizeof(Kept) * (min(<Py_ssize_t>max(walk.count, 0), (end - at) // MIN_RECORD_BYTES) + AHEAD)):
        return NO_MEMORY
    entries = <Kept *>self.entries.data
    while True:
        fault = read_some(self.table, &walk, entries + kept[0], &taken)
        index[0] = walk.index
        if fault != OK:
            return fault
        entry = entries + kept[0]
        for i in range(taken):
            if stays(self.table, entry, walk.base_offset + entry.offset_delta, latest, is_expired):
                has_tombstones[0] |= not entry.has_value
                entries[kept[0]] = entry[0]
                kept[0] += 1
            entry += 1
        if walk.index >= walk.count:
            return OK


cdef void finish_batch(uint8_t *out, const uint8_t *header, size_t size, int32_t count, int64_t base_timestamp,
                       int64_t max_timestamp, int flags) noexcept nogil:
    """Write the header over the first bytes of `out`: the old one, but for what has changed."""
    memcpy(out, header, HEADER_BYTES)
    store32(out + 8, size - OVERHEAD_BYTES)
    out[16] = 2
    store16(out + 21, header[22] & LASTING_FLAGS | flags)
    store64(out + 27, base_timestamp)
    store64(out + 35, max_timestamp)
    store32(out + 57, count)
    store32(out + 17, crc32c_of(out + 21, size - 21))


cdef int rebuild(Gathering *self, const uint8_t *header, int32_t count, Py_ssize_t section_size, int64_t horizon_ms,
                 size_t *size) noexcept nogil:
    """Write the batch of the first `count` entries behind what has gathered; a horizon below zero is none."""
    cdef Kept *entry = <Kept *>self.entries.data
    cdef bint append_time = header[22] & FLAG_LOG_APPEND_TIME
    cdef uint64_t old_base = load64(header + 35) if append_time else load64(header + 27)
    cdef uint64_t delta_mask = 0 if append_time else <uint64_t>-1
    cdef uint64_t new_base = horizon_ms
    cdef int64_t timestamp, delta, largest = -1
    cdef uint8_t *out
    cdef uint8_t *at
    if horizon_ms < 0:
        new_base = old_base + (<uint64_t>entry.timestamp_delta & delta_mask)
    if reserve(&self.out, self.filled + HEADER_BYTES + section_size + <size_t>count * MAX_RECORD_GROWTH):
        return NO_MEMORY
    out = self.out.data + self.filled
    at = out + HEADER_BYTES
    for _ in range(count):
        timestamp = <int64_t>(old_base + (<uint64_t>entry.timestamp_delta & delta_mask))
        largest = max(largest, timestamp)
        delta = <int64_t>(<uint64_t>timestamp - new_base)
        at = write_varlong(at, 1 + varlong_size(delta) + varlong_size(entry.offset_delta) + (entry.stop - entry.tail))
        at[0] = 0
        at = write_varlong(write_varlong(at + 1, delta), entry.offset_delta)
        memcpy(at, entry.tail, entry.stop - entry.tail)
        at += entry.stop - entry.tail
        entry += 1
    size[0] = at - out
    if size[0] > <size_t>0x7fffffff + OVERHEAD_BYTES:
        return BATCH_TOO_LARGE
    finish_batch(out, header, size[0], count, <int64_t>new_base, load64(header + 35) if append_time else largest,
                 FLAG_DELETE_HORIZON if horizon_ms >= 0 else 0)
    return OK


cdef int gather(Gathering *self, const uint8_t *data, size_t size) noexcept nogil:
    if reserve(&self.out, self.filled + size):
        return NO_MEMORY
    memcpy(self.out.data + self.filled, data, size)
    self.filled += size
    return OK


cdef int keep_some(Gathering *self, const uint8_t *header, const uint8_t *original, Py_ssize_t section_size,
                   int32_t kept, bint starts_clock, size_t *apart) noexcept nogil:
    """Gather a batch of which records stay; `apart` is the size of a rebuilt one that is not gathered yet."""
    cdef bint has_horizon = header[22] & FLAG_DELETE_HORIZON
    cdef int64_t horizon_ms = load64(header + 27) if has_horizon else -1
    cdef size_t size
    cdef int fault
    starts_clock = starts_clock and not has_horizon
    if kept == load32(header + 57) and not starts_clock:
        return gather(self, original, batch_size(header))
    fault = rebuild(self, header, kept, section_size, self.rules.new_horizon_ms if starts_clock else horizon_ms, &size)
    if fault != OK:
        return fault
    if header[22] & 7:
        apart[0] = size
    else:
        self.filled += size
    return OK


cdef int filter_batch(Gathering *self, const uint8_t *header, const uint8_t *original, const uint8_t *at,
                      const uint8_t *end, Order order, size_t *apart, int32_t *index) noexcept nogil:
    cdef int64_t last_offset = load64(header) + load32(header + 23)
    cdef int32_t kept = 0
    cdef bint has_tombstones = False, stays_empty
    cdef int fault = OK
    if not order.discard_records:
        fault = sift(self, header, at, end, &kept, &has_tombstones, index)
        if fault != OK:
            return fault
    stays_empty = kept == 0 and (order.keep_empty or last_offset + 1 == self.rules.end_offset
                                 or is_listed(&self.rules, last_offset))
    if kept > 0:
        fault = keep_some(self, header, original, end - at, kept, order.wants_horizon or has_tombstones, apart)
    elif stays_empty:
        fault = reserve(&self.out, self.filled + HEADER_BYTES)
        if fault == OK:
            finish_batch(self.out.data + self.filled, header, HEADER_BYTES, 0, -1, load64(header + 35), 0)
            self.filled += HEADER_BYTES
    if fault == OK:
        self.sum.batches_read += 1
        self.sum.batches_kept += kept > 0 or stays_empty
        self.sum.records_read += load32(header + 57)
        self.sum.records_kept += kept
    return fault


cdef int filter_batches(Gathering *self, const uint8_t *base, Py_ssize_t *position, Py_ssize_t end,
                        int32_t *index) noexcept nogil:
    """Batch after batch up to `end`, a cut one, one of another kind or a fault."""
    cdef Order order = Order(False, False, False)
    cdef const uint8_t *at
    cdef size_t apart
    cdef int fault
    index[0] = -1
    while position[0] < end:
        at = base + position[0]
        fault = sound_batch(at, end - position[0])
        if fault != OK:
            return fault
        if at[22] & (FLAG_CONTROL | FLAG_TRANSACTIONAL | 7):
            return OTHER_KIND
        fault = filter_batch(self, at, at, at + HEADER_BYTES, at + batch_size(at), order, &apart, index)
        if fault != OK:
            return fault
        index[0] = -1
        position[0] += batch_size(at)
    return OK


cdef class BatchFilter:
    """What compaction leaves of batches, gathered in memory."""

    cdef OffsetMap offsets
    cdef bytes kept_offsets
    cdef Gathering state
    cdef bint running

    def __cinit__(self, OffsetMap offsets not None, kept_offsets, int64_t end_offset, int64_t now_ms,
                  int64_t delete_retention_ms):
        self.offsets = offsets
        self.kept_offsets = array("q", sorted(memoryview(kept_offsets).cast("B").cast("q"))).tobytes()
        self.state.table = &offsets.table
        self.state.rules.kept_offsets = <const int64_t *>PyBytes_AS_STRING(self.kept_offsets)
        self.state.rules.kept_count = PyBytes_GET_SIZE(self.kept_offsets) // 8
        self.state.rules.end_offset = end_offset
        self.state.rules.now_ms = now_ms
        # beyond the end of time is never
        self.state.rules.new_horizon_ms = -1 if delete_retention_ms > MAX_INT64 - now_ms else now_ms + delete_retention_ms

    def __dealloc__(self):
        free(self.state.out.data)
        free(self.state.entries.data)

    cdef int begin(self) except -1:
        """From here to `end`, neither the filter nor the map is for anybody else."""
        self.check_idle()
        self.offsets.check_idle()
        self.running = self.offsets.running = True
        return 0

    cdef void end(self) noexcept:
        self.running = self.offsets.running = False

    cdef int check_idle(self) except -1:
        if self.running:
            raise RuntimeError("a filter is for one thread at a time")
        return 0

    @property
    def batches_read(self):
        return self.state.sum.batches_read

    @property
    def batches_kept(self):
        return self.state.sum.batches_kept

    @property
    def records_read(self):
        return self.state.sum.records_read

    @property
    def records_kept(self):
        return self.state.sum.records_kept

    @property
    def gathered_bytes(self):
        return self.state.filled

    def run(self, buffer, Py_ssize_t position, Py_ssize_t end):
        """Filter plain batches: (where it stopped, the header of another kind of batch there)."""
        cdef View held = View(buffer)
        cdef const uint8_t *base = start_of(held, position, end) - position
        cdef int32_t index
        cdef int fault
        self.begin()
        take_spare(&self.state.out, end - position + SLACK_BYTES)
        with nogil:
            fault = filter_batches(&self.state, base, &position, end, &index)
        self.end()
        if fault == OTHER_KIND:
            return position, make_header(base + position)
        if fault == OK or fault == SHORT:
            return position, None
        raise compaction_error(fault, index, position)

    def batch(self, buffer, Py_ssize_t position, header, section, Py_ssize_t start, Py_ssize_t stop, *,
              bint discard_records=False, bint keep_empty=False, bint wants_horizon=False):
        """Filter the batch at `position`, its records at `section[start:stop]`.

        What stays is gathered; only a compressed batch that had to be rebuilt is handed out, without its
        compression: the caller compresses it and gives it to `copy`.
        """
        cdef Order order = Order(discard_records, keep_empty, wants_horizon)
        cdef uint8_t packed[HEADER_BYTES]
        cdef View whole = View(buffer), plain = View(section)
        cdef size_t apart = 0
        cdef int32_t index = 0
        cdef int fault
        pack_header(header, packed)
        cdef const uint8_t *original = start_of(whole, position, position + batch_size(packed))
        cdef const uint8_t *at = start_of(plain, start, stop)
        self.begin()
        with nogil:
            fault = filter_batch(&self.state, packed, original, at, at + (stop - start), order, &apart, &index)
        self.end()
        if fault != OK:
            raise compaction_error(fault, index, position)
        if apart == 0:
            return None
        return PyByteArray_FromStringAndSize(<char *>self.state.out.data + self.state.filled, apart)

    def copy(self, buffer, Py_ssize_t start, Py_ssize_t end):
        """Gather bytes as they are."""
        cdef View held = View(buffer)
        cdef const uint8_t *at = start_of(held, start, end)
        self.check_idle()
        if gather(&self.state, at, end - start):
            raise MemoryError

    def take(self):
        """What has gathered since the last time, read-only."""
        cdef ColumnBuffer taken = ColumnBuffer()
        self.check_idle()
        taken.slab, taken.size = self.state.out, self.state.filled
        self.state.out, self.state.filled = Slab(NULL, 0), 0
        return memoryview(taken)
