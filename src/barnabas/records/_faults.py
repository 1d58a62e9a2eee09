"""The faults of bytes that should be record batches: one numbered table for both kernels.

The C pass runs without the GIL and cannot raise. It returns a number, from which the functions below make the
exception. Both kernels use them, so they agree on class and wording.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.errors import (
    THE_PARTITION,
    BarnabasError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    RecordFault,
    RecordListTooLarge,
    UnsupportedCompression,
)

OK: Final = 0

# Of a batch. SHORT is not a fault of the present bytes: more of them may follow.
SHORT: Final = 1
OLD_MAGIC: Final = 2
BAD_MAGIC: Final = 3
BAD_LENGTH: Final = 4
BAD_CRC: Final = 5
BAD_CODEC: Final = 6
BAD_COUNT: Final = 7
BAD_LAST_DELTA: Final = 8
BAD_BASE_OFFSET: Final = 9

# Of a record in a batch.
BAD_RECORD_LENGTH: Final = 20
BAD_VARINT: Final = 21
BAD_FIELD: Final = 22
BAD_HEADER_COUNT: Final = 23
BAD_RECORD_END: Final = 24
TRAILING_BYTES: Final = 25
MISSING_RECORDS: Final = 26
BAD_OFFSET_DELTA: Final = 27
NO_KEY: Final = 28
BAD_TIMESTAMP: Final = 29
TOO_LARGE: Final = 30

_FAULTS: dict[int, tuple[type[BarnabasError], str]] = {
    SHORT: (CorruptMessage, "the bytes end before the batch does"),
    # Kafka 4 answers INVALID_RECORD here, not UNSUPPORTED_FOR_MESSAGE_FORMAT
    OLD_MAGIC: (InvalidRecord, "a message set of format v0 or v1; only v2 batches are accepted"),
    BAD_MAGIC: (CorruptMessage, "the magic byte is not that of any known format"),
    BAD_LENGTH: (CorruptMessage, "the batch length is smaller than a batch header"),
    BAD_CRC: (CorruptMessage, "the checksum does not match the bytes"),
    BAD_CODEC: (UnsupportedCompression, "there is no compression codec of that number"),
    BAD_COUNT: (InvalidRecord, "the record count is negative, or more than the batch can hold"),
    BAD_LAST_DELTA: (InvalidRecord, "the last offset delta is negative, or too small for the record count"),
    BAD_BASE_OFFSET: (InvalidRecord, "the offsets are negative or beyond 2^63 - 1"),
    BAD_RECORD_LENGTH: (InvalidRecord, "its length is negative or runs past the end of the batch"),
    BAD_VARINT: (InvalidRecord, "a variable-length number does not end where it must"),
    BAD_FIELD: (InvalidRecord, "a key, value or header runs past the end of the record"),
    BAD_HEADER_COUNT: (InvalidRecord, "its header count is negative or more than the record can hold"),
    BAD_RECORD_END: (InvalidRecord, "it ends elsewhere than its length says"),
    TRAILING_BYTES: (InvalidRecord, "bytes are left over behind the last record"),
    MISSING_RECORDS: (InvalidRecord, "the batch ends before its record count is reached"),
    BAD_OFFSET_DELTA: (InvalidRecord, "its offset delta is out of sequence"),
    NO_KEY: (InvalidRecord, "Compacted topic cannot accept message without key"),
    TOO_LARGE: (RecordListTooLarge, "with this batch the columns could hold more than 2 GiB of a kind"),
    BAD_TIMESTAMP: (InvalidTimestamp, "its timestamp is outside the bounds this topic sets"),
}


# At most so many records of a batch are named: the largest batch could hold millions of bad ones.
NAMED_RECORDS: Final = 10_000

# the exceptions for faults of a record
RECORD_ERRORS = (InvalidRecord, InvalidTimestamp, RecordListTooLarge)


def reason(fault: int) -> str:
    """The fault in words."""
    return _FAULTS[fault][1]


def batch_error(fault: int, position: int) -> BarnabasError:
    """The exception for a fault of the batch that starts at `position`."""
    kind, text = _FAULTS[fault]
    return kind(f"batch at byte {position}: {text}")


def record_error(fault: int, index: int) -> BarnabasError:
    """The exception for a fault of the record at `index` in its batch."""
    kind, text = _FAULTS[fault]
    error = kind(f"record {index} of the batch: {text}")
    error.record_faults = (RecordFault(index, f"{text} in topic partition {THE_PARTITION}"),)
    return error


def rules_error(broken: list[tuple[int, int, int]], earliest_ms: int, latest_ms: int) -> BarnabasError:
    """The exception for well-formed records that break rules of their topic: (fault, index, timestamp) each.

    It names all of them. As in Kafka, a bad timestamp decides the class even if it comes after other faults.
    """
    decisive = next((one for one in broken if one[0] == BAD_TIMESTAMP), broken[0])
    error = record_error(*decisive[:2])
    no_key = f"{reason(NO_KEY)} in topic partition {THE_PARTITION}"
    bounds = f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
    error.record_faults = [
        RecordFault(
            index,
            no_key
            if fault == NO_KEY
            else f"Timestamp {timestamp} of message with offset {index} is out of range. {bounds}",
        )
        for fault, index, timestamp in broken
    ]
    return error
