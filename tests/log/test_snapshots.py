from __future__ import annotations

import asyncio
import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.disk import FileMissing
from barnabas.core.errors import StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log.producer import ProducerEntry
from barnabas.log.producers import ProducerStates
from barnabas.log.snapshots import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)
from tests.support.kafka_partition import ITEMS, SNAPSHOT
from tests.support.producer_model import Marker

PATH = "t-0/00000000000000000023.snapshot"

ENTRIES = st.lists(
    st.builds(
        ProducerEntry,
        producer_id=st.integers(0, 2**63 - 1),
        epoch=st.integers(0, 2**15 - 1),
        last_sequence=st.integers(-1, 2**31 - 1),
        last_offset=st.integers(-1, 2**63 - 1),
        offset_delta=st.integers(0, 2**31 - 1),
        timestamp=st.integers(-1, 2**63 - 1),
        coordinator_epoch=st.integers(-1, 2**31 - 1),
        txn_first_offset=st.integers(-1, 2**63 - 1),
    ),
    max_size=4,
)


def test_kafkas_own_snapshot_is_read_and_written_alike() -> None:
    entries = decode_snapshot(SNAPSHOT, "here")
    assert entries == [
        ProducerEntry(0, 0, 7, 22, 0, 1794798493678, -1, -1),
        ProducerEntry(1, 2, -1, -1, 0, 1794798493477, 0, -1),
        ProducerEntry(2, 2, -1, -1, 0, 1794798493484, 0, -1),
        ProducerEntry(3, 0, 1, 21, 0, 1794798493661, -1, 20),
    ]
    assert encode_snapshot(entries) == SNAPSHOT


def test_the_same_log_gives_the_same_snapshot_as_kafkas() -> None:
    states = ProducerStates()
    for item in ITEMS:
        if isinstance(item, Marker):
            states.apply_marker(
                item.producer_id,
                item.epoch,
                item.coordinator_epoch,
                commit=item.commit,
                offset=item.offset,
                timestamp=item.timestamp,
            )
        else:
            states.apply(item, item.base_offset)
    assert encode_snapshot(states.entries()) == SNAPSHOT


@given(ENTRIES)
def test_entries_survive_the_way_through_the_bytes(entries: list[ProducerEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries), "here") == entries


@given(data=st.data(), entries=ENTRIES)
def test_any_flipped_bit_is_found(data: st.DataObject, entries: list[ProducerEntry]) -> None:
    snapshot = bytearray(encode_snapshot(entries))
    bit = data.draw(st.integers(0, len(snapshot) * 8 - 1))
    snapshot[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(snapshot), "here")


@given(entries=ENTRIES, missing=st.integers(1, 300))
def test_any_cut_is_found(entries: list[ProducerEntry], missing: int) -> None:
    snapshot = encode_snapshot(entries)
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(snapshot[: max(0, len(snapshot) - missing)], "here")


@pytest.mark.parametrize(
    ("body", "version", "reason"),
    [
        (b"\0\0\0\1", 1, "1 producers are announced, 0 bytes follow"),
        (b"\xff\xff\xff\xff", 1, "-1 producers"),
        (b"\0\0\0\0rest", 1, "0 producers are announced, 4 bytes follow"),
        (b"\0\0\0\0", 2, "version 2 is not known"),
    ],
)
def test_a_right_crc_is_not_enough(body: bytes, version: int, reason: str) -> None:
    data = struct.pack(">hI", version, crc32c.crc32c(body)) + body
    with pytest.raises(CorruptSnapshot, match=f"^here is corrupt: {reason}") as caught:
        decode_snapshot(data, "here")
    assert isinstance(caught.value, StorageError)


def test_a_written_snapshot_survives_a_power_loss() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await disk.mkdir("t-0")
        await disk.sync_dir("")
        entries = [ProducerEntry(1, 2, 3, 4, 0, 6, 7, 4)]
        await write_snapshot(disk, PATH, entries)
        for seed in range(10):
            crashed = disk.fork()
            crashed.crash_power(SeededRandom(seed))
            assert await read_snapshot(crashed, PATH) == entries
        await write_snapshot(disk, PATH, [], sync=False)
        assert await read_snapshot(disk, PATH) == []
        with pytest.raises(FileMissing, match="t-0/x"):
            await read_snapshot(disk, "t-0/x")

    asyncio.run(scenario())
