"""A small partition as Apache Kafka 4.3.0 left it: what stands in its log, and the files beside it.

Four producers: 0 without transactions; 1 and 2 with some that were committed and some that were aborted, one
inside the other; 3 with one that was still open when the broker was stopped.
"""

from __future__ import annotations

from barnabas.records.batch import BatchHeader
from tests.support.producer_model import Marker, batch

_DAY = 1_794_700_000_000


def _data(
    offset: int, producer_id: int, epoch: int, sequence: int, time: int, transactional: bool
) -> BatchHeader:
    return batch(
        producer_id, epoch, sequence, base_offset=offset, timestamp=_DAY + time, transactional=transactional
    )


def _marker(offset: int, producer_id: int, epoch: int, time: int, commit: bool) -> Marker:
    return Marker(offset, producer_id, epoch, 0, commit, _DAY + time)


ITEMS: list[BatchHeader | Marker] = [
    _data(0, 0, 0, 0, 98492015, False),
    _data(1, 0, 0, 1, 98492143, False),
    _data(2, 0, 0, 2, 98492155, False),
    _data(3, 0, 0, 3, 98492165, False),
    _data(4, 0, 0, 4, 98492174, False),
    _data(5, 0, 0, 5, 98492183, False),
    _data(6, 0, 0, 6, 98492190, False),
    _data(7, 1, 0, 0, 98492912, True),
    _data(8, 1, 0, 1, 98492999, True),
    _data(9, 1, 0, 2, 98493008, True),
    _marker(10, 1, 1, 98493181, commit=True),
    _data(11, 1, 1, 0, 98493044, True),
    _data(12, 1, 1, 1, 98493224, True),
    _data(13, 2, 0, 0, 98493407, True),
    _data(14, 2, 0, 1, 98493430, True),
    _data(15, 1, 1, 2, 98493439, True),
    _marker(16, 2, 1, 98493457, commit=False),
    _data(17, 2, 1, 0, 98493463, True),
    _marker(18, 1, 2, 98493477, commit=False),
    _marker(19, 2, 2, 98493484, commit=True),
    _data(20, 3, 0, 0, 98493641, True),
    _data(21, 3, 0, 1, 98493661, True),
    _data(22, 0, 0, 7, 98493678, False),
]

# 00000000000000000023.snapshot
SNAPSHOT = bytes.fromhex(
    "0001dfe2887e000000040000000000000000000000000007000000000000001600000000000001a1e2539feeffffffff"
    "ffffffffffffffff00000000000000010002ffffffffffffffffffffffff00000000000001a1e2539f2500000000ffff"
    "ffffffffffff00000000000000020002ffffffffffffffffffffffff00000000000001a1e2539f2c00000000ffffffff"
    "ffffffff0000000000000003000000000001000000000000001500000000000001a1e2539fddffffffff000000000000"
    "0014"
)

# 00000000000000000000.txnindex
TXN_INDEX = bytes.fromhex(
    "00000000000000000002000000000000000d0000000000000010000000000000000b0000000000000000000100000000"
    "0000000b00000000000000120000000000000011"
)
