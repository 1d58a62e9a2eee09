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
    def __init__(self, columns: Columns) -> None: ...
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
def key_hashes(buffer: Buffer, start: int, end: int, header: BatchHeader, seed: bytes) -> bytearray: ...
