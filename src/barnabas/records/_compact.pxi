# The batches that remain after compaction; part of _kernel.pyx.
#
# The filter reads the records of a batch into `Kept` entries, moves those that are kept to the front, and
# then either copies the batch unchanged or writes those entries. Lengths are taken from the entries, never
# read again from bytes that another thread may be changing.

from array import array

cdef enum:
    FLAG_DELETE_HORIZON = 0x40
    LASTING_FLAGS = FLAG_LOG_APPEND_TIME | FLAG_TRANSACTIONAL | FLAG_CONTROL
    # the most by which a record can grow with another timestamp delta
    MAX_RECORD_GROWTH = 16


cdef struct Rules:
    # the arguments of the filter
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
    # the caller's options for one batch
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
    """Whether the record is kept. `latest` is the last offset for which the map is used."""
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
    """Read the records of one batch; entries of those that are kept are at the front of `self.entries`."""
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
    cdef Py_ssize_t most = min(<Py_ssize_t>max(walk.count, 0), (end - at) // MIN_RECORD_BYTES)
    if reserve(&self.entries, sizeof(Kept) * most):
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
    """Write the header over the first bytes of `out`: the old one with the changed fields."""
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
    """Append the batch of the first `count` entries to the collected bytes; a horizon below zero means
    none."""
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
    """Collect a batch with kept records; `apart` is the size of a rebuilt one that is not collected yet."""
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
    """Process batches up to `end`, an incomplete one, one of another kind or a fault."""
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
    """The batches that remain after compaction, collected in memory."""

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
        # beyond the largest timestamp: never
        is_never = delete_retention_ms > MAX_INT64 - now_ms
        self.state.rules.new_horizon_ms = -1 if is_never else now_ms + delete_retention_ms

    def __dealloc__(self):
        free(self.state.out.data)
        free(self.state.entries.data)

    cdef int begin(self) except -1:
        """Reserve the filter and the map for the caller, until `end`."""
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

        What remains is collected. Only a compressed batch that had to be rebuilt is returned, uncompressed:
        the caller compresses it and passes it to `copy`.
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
        """Collect bytes unchanged."""
        cdef View held = View(buffer)
        cdef const uint8_t *at = start_of(held, start, end)
        self.check_idle()
        if gather(&self.state, at, end - start):
            raise MemoryError

    def take(self):
        """The bytes collected since the last call, read-only."""
        cdef ColumnBuffer taken = ColumnBuffer()
        self.check_idle()
        taken.slab, taken.size = self.state.out, self.state.filled
        self.state.out, self.state.filled = Slab(NULL, 0), 0
        return memoryview(taken)
