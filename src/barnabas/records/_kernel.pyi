from array import array
from collections.abc import Iterator

from barnabas.core.disk import Buffer
from barnabas.records.batch import BatchHeader
from barnabas.records.columns import BinaryColumn, Columns
from barnabas.records.record import Headers, Record

NAME: str

class ColumnDecoder:
    @property
    def rows(self) -> int: ...
    def run(
        self,
        buffer: Buffer,
        position: int,
        end: int,
        first_offset: int,
        end_offset: int,
        control: bool,
        verify_crc: bool,
    ) -> tuple[int, BatchHeader | None]: ...
    def section(
        self, buffer: Buffer, start: int, end: int, header: BatchHeader, first_offset: int, end_offset: int
    ) -> None: ...
    def finish(self) -> Columns: ...

class ColumnEncoder:
    # order: int32 row numbers; `start` and `stop` then count positions in it
    def __init__(self, columns: Columns, order: Buffer | None = None) -> None: ...
    def batch(
        self,
        start: int,
        stop: int,
        limit_bytes: int,
        flags: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> tuple[bytearray, int]: ...

class OffsetMap:
    """The latest offset of every key, in memory of fixed size; for one thread at a time.

    After an error in `note` or `note_section` only `clear` may be called.
    """

    # slots = memory_bytes // 24; hash_key: 16 secret bytes. ValueError if not even one slot fits.
    def __init__(self, memory_bytes: int, hash_key: bytes) -> None: ...
    @property
    def slots(self) -> int: ...
    @property
    def size(self) -> int: ...
    # -1 if nothing was noted
    @property
    def latest_offset(self) -> int: ...
    def clear(self) -> None: ...
    # latest_offset = max(latest_offset, offset)
    def advance(self, offset: int) -> None: ...
    # latest_offset = offset; ValueError if the map is full, or the offset is not in 0..2**63-2
    def put(self, key: bytes, offset: int) -> None: ...
    # -1 if the key is missing
    def get(self, key: bytes) -> int: ...
    # Walk the whole batches in buffer[position:end], checksums verified, and put every record that has a key
    # and an offset >= first_offset; latest_offset is then the last offset of the batch. A batch that ends
    # before first_offset is skipped.
    # Returns (where it stopped, the header of a batch there that the caller must handle, whether the map is
    # full).
    #   header: it is compressed, transactional or a control batch; the caller goes on behind it, after
    #           note_section, or after advance(header.last_offset) if that is >= first_offset
    #   full:   a record with a key came up while size >= limit; latest_offset is that of the last one put
    #   (position, None, False) with position < end: an incomplete batch
    def note(
        self, buffer: Buffer, position: int, end: int, first_offset: int, limit: int
    ) -> tuple[int, BatchHeader | None, bool]: ...
    # As `note`, for one batch whose records are uncompressed in section[start:stop]; returns whether the map
    # is full.
    def note_section(
        self, section: Buffer, start: int, stop: int, header: BatchHeader, first_offset: int, limit: int
    ) -> bool: ...

class BatchFilter:
    """The batches that remain after compaction, collected in its own memory; for one thread at a time.

    An error leaves no trace of the faulty batch.
    """

    # kept_offsets: int64 values, the last offsets of batches that are kept even when empty (a producer's
    # last); the batch whose next offset is end_offset is kept, too
    def __init__(
        self,
        offsets: OffsetMap,
        kept_offsets: bytes | array[int],
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None: ...
    # since the filter was made; records of batches that were discarded unread count as read
    @property
    def batches_read(self) -> int: ...
    @property
    def batches_kept(self) -> int: ...
    @property
    def records_read(self) -> int: ...
    @property
    def records_kept(self) -> int: ...
    # the size of the result of take()
    @property
    def gathered_bytes(self) -> int: ...
    # Filter the plain batches in buffer[position:end], checksums verified: (where it stopped, the header of
    # the compressed, transactional or control batch there, or None at the end or an incomplete batch).
    def run(self, buffer: Buffer, position: int, end: int) -> tuple[int, BatchHeader | None]: ...
    # Filter one whole batch at `position`, its records uncompressed in section[start:stop] (see
    # reader.records_section). Control records are kept unless discarded.
    #   discard_records: none of them is kept; the section is not read then
    #   keep_empty:      the batch is kept even if empty (kept_offsets and end_offset apply anyway)
    #   wants_horizon:   a marker without records of its transaction, whose delete horizon starts now
    # None: done, and the rest is collected. A bytearray: the rest of a compressed batch, rebuilt without
    # compression and not collected yet; the caller passes it to builder.compress_batch, with the codec of the
    # header, and the result to copy().
    def batch(
        self,
        buffer: Buffer,
        position: int,
        header: BatchHeader,
        section: Buffer,
        start: int,
        stop: int,
        *,
        discard_records: bool = False,
        keep_empty: bool = False,
        wants_horizon: bool = False,
    ) -> bytearray | None: ...
    # collect bytes unchanged
    def copy(self, buffer: Buffer, start: int, end: int) -> None: ...
    # the bytes collected since the last take(), read-only
    def take(self) -> memoryview: ...

def crc32c(buffer: Buffer, start: int, end: int) -> int: ...
def crc32c_without_instruction(buffer: Buffer, start: int, end: int) -> int: ...
def check_batch(buffer: Buffer, position: int, end: int) -> BatchHeader: ...
def assign(buffer: Buffer, position: int, base_offset: int, leader_epoch: int) -> None: ...
def stamp(buffer: Buffer, position: int, size: int, max_timestamp: int) -> None: ...
def set_max_timestamp(buffer: Buffer, position: int, size: int, max_timestamp: int) -> None: ...
def scan(
    buffer: Buffer, position: int, end: int, verify_crc: bool
) -> tuple[list[BatchHeader], int, str | None]: ...
def scan_headers(buffer: Buffer, position: int, end: int) -> list[tuple[BatchHeader, int]]: ...
def check_records(
    buffer: Buffer,
    start: int,
    end: int,
    header: BatchHeader,
    require_keys: bool,
    earliest_ms: int,
    latest_ms: int,
) -> tuple[int, int]: ...
def admit(
    buffer: Buffer,
    base_offset: int,
    leader_epoch: int,
    require_keys: bool,
    earliest_ms: int,
    latest_ms: int,
) -> BatchHeader | None: ...
def iterate(buffer: Buffer, start: int, end: int, header: BatchHeader) -> Iterator[Record]: ...
def append_record(
    buffer: bytearray,
    base_timestamp: int,
    timestamp: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> None: ...
def murmur2(key: bytes) -> int: ...
def partition_column(column: BinaryColumn, rows: int, partitions: int) -> bytearray: ...
def group_rows(numbers: Buffer, rows: int, groups: int) -> tuple[bytearray, bytearray]: ...
def key_hashes(buffer: Buffer, start: int, end: int, header: BatchHeader, seed: bytes) -> bytearray: ...
