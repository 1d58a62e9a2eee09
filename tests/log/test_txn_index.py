from __future__ import annotations

import asyncio
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.disk import DiskFull
from barnabas.core.errors import InvariantViolation, StorageError
from barnabas.core.memory_disk import MemoryDisk, MemoryFile
from barnabas.core.random import SeededRandom
from barnabas.log.checkpoints import read_whole, write_atomically
from barnabas.log.producers import ProducerStates
from barnabas.log.txn_index import (
    ENTRY,
    AbortedTransaction,
    CorruptTransactionIndex,
    TransactionIndex,
    collect_aborted,
)
from tests.support.kafka_partition import ITEMS, TXN_INDEX
from tests.support.producer_model import Marker

PATH = "00000000000000000000.txnindex"
FIRST = AbortedTransaction(2, 13, 16, 11)
SECOND = AbortedTransaction(1, 11, 18, 17)
THIRD = AbortedTransaction(5, 20, 25, 26)


async def index_of(*transactions: AbortedTransaction, disk: MemoryDisk | None = None) -> TransactionIndex:
    index = TransactionIndex(disk or MemoryDisk(), PATH)
    for transaction in transactions:
        await index.append(transaction)
    return index


def test_the_bytes_are_kafkas() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await write_atomically(disk, PATH, TXN_INDEX)
        index = TransactionIndex(disk, PATH)
        await index.check()
        assert await index.all() == [FIRST, SECOND]
        await index.reset()
        for transaction in (FIRST, SECOND):
            await index.append(transaction)
        assert await read_whole(disk, PATH) == TXN_INDEX

    asyncio.run(scenario())


def test_the_same_log_gives_the_same_index_as_kafkas() -> None:
    async def scenario() -> None:
        disk, states = MemoryDisk(), ProducerStates()
        index = TransactionIndex(disk, PATH)
        for item in ITEMS:
            if not isinstance(item, Marker):
                states.apply(item, item.base_offset)
                continue
            completed = states.apply_marker(
                item.producer_id,
                item.epoch,
                item.coordinator_epoch,
                commit=item.commit,
                offset=item.offset,
                timestamp=item.timestamp,
            )
            assert completed is not None
            if completed.aborted:
                await index.append(
                    AbortedTransaction(
                        completed.producer_id,
                        completed.first_offset,
                        completed.last_offset,
                        completed.last_stable_offset,
                    )
                )
        assert await read_whole(disk, PATH) == TXN_INDEX

    asyncio.run(scenario())


def test_the_file_comes_with_the_first_entry() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = TransactionIndex(disk, PATH)
        assert await index.collect(0, 100) == ([], False)
        await index.check()
        await index.truncate_to(0)
        await index.reset()
        await index.sync()
        assert await disk.listdir("") == []
        await index.append(FIRST)
        assert await disk.listdir("") == [PATH]
        assert await index.all() == [FIRST]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "found", "is_complete"),
    [
        (0, 11, [], True),  # nothing was decided at 11 when the first was aborted
        (0, 12, [SECOND], True),
        (0, 14, [FIRST, SECOND], True),
        (16, 17, [FIRST, SECOND], True),
        (17, 18, [SECOND], True),
        (18, 30, [SECOND, THIRD], False),
        (19, 26, [THIRD], True),
        (26, 27, [], False),
    ],
)
def test_collect(
    fetch_offset: int, upper_bound: int, found: list[AbortedTransaction], is_complete: bool
) -> None:
    async def scenario() -> None:
        index = await index_of(FIRST, SECOND, THIRD)
        assert await index.collect(fetch_offset, upper_bound) == (found, is_complete)

    asyncio.run(scenario())


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 40), st.integers(0, 40)), max_size=500),
    st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 200)), min_size=1, max_size=10),
)
def test_a_search_finds_what_looking_at_every_entry_does(
    entries: list[tuple[int, int, int]], searches: list[tuple[int, int]]
) -> None:
    """However many there are, and whether or not the index was opened anew."""

    def looked_at(fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        found = []
        for one in all_of_them:
            if one.last_offset >= fetch_offset and one.first_offset < upper_bound:
                found.append(one)
            if one.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    async def scenario() -> None:
        disk = MemoryDisk()
        for index in (await index_of(*all_of_them, disk=disk), TransactionIndex(disk, PATH)):
            for fetch_offset, size in searches:
                asked = fetch_offset, fetch_offset + size + 1
                assert await index.collect(*asked) == looked_at(*asked)

    all_of_them, marker = [], 0
    for gap, length, back in entries:
        marker += gap + 1
        first, stable = max(0, marker - 1 - length), max(0, marker + 1 - back)
        all_of_them.append(AbortedTransaction(1, first, marker, stable))
    asyncio.run(scenario())


def test_a_search_at_the_end_of_a_long_index_reads_little_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        all_of_them = [AbortedTransaction(1, 10 * n, 10 * n + 9, 10 * n + 10) for n in range(20_000)]
        await index_of(*all_of_them, disk=disk)
        index = TransactionIndex(disk, PATH)
        read, sizes = MemoryFile.read, []

        async def counted(self: MemoryFile, position: int, size: int) -> bytes:
            sizes.append(size)
            return await read(self, position, size)

        monkeypatch.setattr(MemoryFile, "read", counted)
        assert await index.collect(199_950, 300_000) == (all_of_them[-5:], False)
        assert await index.collect(100_000, 100_005) == ([all_of_them[10_000]], True)
        assert sum(sizes) < 40 * 1024

    asyncio.run(scenario())


def test_readers_get_them_by_first_offset_and_no_more_segments_than_needed() -> None:
    class Untouched(TransactionIndex):
        async def collect(self, fetch_offset: int, upper_bound: int) -> None:  # type: ignore[override]
            raise AssertionError("the search was complete")

    async def scenario() -> None:
        first, second = await index_of(FIRST), await index_of(SECOND)
        rest = Untouched(MemoryDisk(), PATH)
        assert await collect_aborted([first, second, rest], 0, 17) == [SECOND, FIRST]
        assert await collect_aborted([first, second], 0, 100) == [SECOND, FIRST]
        assert await collect_aborted([], 0, 100) == []

    asyncio.run(scenario())


def test_truncation_forgets_markers_from_the_offset_on() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = await index_of(FIRST, SECOND, THIRD, disk=disk)
        await index.truncate_to(26)
        assert await index.all() == [FIRST, SECOND, THIRD]
        await index.truncate_to(25)
        assert await index.all() == [FIRST, SECOND]
        await index.truncate_to(17)
        await index.append(SECOND)
        assert await index.all() == [FIRST, SECOND]
        await index.truncate_to(0)
        assert await read_whole(disk, PATH) == b""
        await index.append(FIRST)
        assert await index.all() == [FIRST]

    asyncio.run(scenario())


def test_markers_out_of_order_stop_the_node() -> None:
    async def scenario() -> None:
        index = await index_of(SECOND)
        for transaction in (FIRST, SECOND):
            with pytest.raises(InvariantViolation, match=r"comes after one at 18"):
                await index.append(transaction)
        assert await index.all() == [SECOND]

    asyncio.run(scenario())


def test_an_index_opened_again_knows_where_it_ended() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        (await index_of(FIRST, SECOND, disk=disk)).close()
        index = TransactionIndex(disk, PATH)
        with pytest.raises(InvariantViolation):
            await index.append(SECOND)
        await index.append(THIRD)
        assert await index.all() == [FIRST, SECOND, THIRD]
        await write_atomically(disk, PATH, TXN_INDEX[:-1])
        with pytest.raises(CorruptTransactionIndex, match="67 bytes"):
            await TransactionIndex(disk, PATH).append(THIRD)

    asyncio.run(scenario())


def test_a_reader_that_looked_too_early_hides_nothing() -> None:
    class SlowDisk(MemoryDisk):
        gate: asyncio.Event | None = None

        async def size_of(self, path: str) -> int | None:
            size = await super().size_of(path)
            if self.gate is not None:
                gate, self.gate = self.gate, None
                await gate.wait()
            return size

    async def scenario() -> None:
        disk = SlowDisk()
        disk.gate = gate = asyncio.Event()
        index = TransactionIndex(disk, PATH)
        early = asyncio.create_task(index.all())
        await asyncio.sleep(0)  # it has looked, and waits for the answer
        await index.append(FIRST)
        gate.set()
        assert await early == [FIRST]
        index.close()
        index.close()
        assert await index.all() == [FIRST]

    asyncio.run(scenario())


def test_reading_beside_reading_opens_one_file() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await (await index_of(FIRST, SECOND, disk=disk)).sync()
        index = TransactionIndex(disk, PATH)
        results = await asyncio.gather(*(index.collect(0, 100) for _ in range(3)))
        assert [result.transactions for result in results] == [[FIRST, SECOND]] * 3

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("data", "start_offset", "reason"),
    [
        (TXN_INDEX[:-1], 0, "67 bytes are no whole number of entries"),
        (TXN_INDEX, 17, "entry 0 has its marker at 16, not after 16"),
        (TXN_INDEX[34:] + TXN_INDEX[:34], 0, "entry 1 has its marker at 16, not after 18"),
        (TXN_INDEX[:34] * 2, 0, "entry 1 has its marker at 16"),
        (ENTRY.pack(1, *FIRST), 0, "entry 0 has version 1"),
        (ENTRY.pack(0, 2, 16, 16, 11), 0, "entry 0 runs from 16 to 16"),
        (ENTRY.pack(0, 2, -1, 16, 11), 0, "entry 0 runs from -1 to 16"),
        (bytes(68), 0, "entry 0 runs from 0 to 0"),
    ],
)
def test_a_corrupt_index_is_named(data: bytes, start_offset: int, reason: str) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await write_atomically(disk, PATH, data)
        index = TransactionIndex(disk, PATH, start_offset)
        with pytest.raises(CorruptTransactionIndex, match=reason) as caught:
            await index.check()
        assert str(caught.value).startswith(disk.describe(PATH))
        assert isinstance(caught.value, StorageError)
        await index.reset()
        await index.append(THIRD)
        await index.check()
        assert await index.all() == [THIRD]

    asyncio.run(scenario())


def test_what_is_synced_survives_a_power_loss() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = await index_of(FIRST, disk=disk)
        await index.sync()
        await index.append(SECOND)
        for seed in range(30):
            crashed = disk.fork()
            crashed.crash_power(SeededRandom(seed))
            survived = TransactionIndex(crashed, PATH)
            found = await survived.all()
            assert found[:1] == [FIRST]

    asyncio.run(scenario())


def test_a_full_disk_leaves_whole_entries() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = await index_of(FIRST, disk=disk)
        disk.fail("append", errno.ENOSPC, times=1)
        with pytest.raises(DiskFull):
            await index.append(SECOND)
        assert await index.all() == [FIRST]
        await index.append(SECOND)
        await index.check()
        assert await index.all() == [FIRST, SECOND]

    asyncio.run(scenario())


# Transactions of a log: each begins, runs for a while among others, and is aborted. Every one that overlaps
# what a reader fetches must be found, whatever is left out by stopping early.


@given(
    lengths=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), min_size=1, max_size=12),
    split_at=st.integers(0, 40),
    fetch_offset=st.integers(0, 60),
    size=st.integers(1, 30),
)
def test_every_overlapping_transaction_is_found(
    lengths: list[tuple[int, int]], split_at: int, fetch_offset: int, size: int
) -> None:
    transactions = aborted_transactions(lengths)
    # fetches of committed data end at the last stable offset
    upper_bound = min(fetch_offset + size, max(t.last_offset for t in transactions) + 1)

    async def scenario() -> None:
        earlier = await index_of(*(t for t in transactions if t.last_offset < split_at))
        later = await index_of(*(t for t in transactions if t.last_offset >= split_at))
        found = await collect_aborted([earlier, later], fetch_offset, upper_bound)
        expected = [t for t in transactions if t.last_offset >= fetch_offset and t.first_offset < upper_bound]
        assert found == sorted(expected, key=lambda t: t.first_offset)

    asyncio.run(scenario())


def aborted_transactions(lengths: list[tuple[int, int]]) -> list[AbortedTransaction]:
    """Transactions with distinct first and last offsets, with the last stable offset as of each marker."""
    spans, first, taken = list[tuple[int, int]](), 0, set[int]()
    for gap, length in lengths:
        first = next(offset for offset in range(first + gap, 1000) if offset not in taken)
        last = next(offset for offset in range(first + length, 1000) if offset not in taken)
        taken |= {first, last}
        spans.append((first, last))
    spans.sort(key=lambda span: span[1])
    found = []
    for producer_id, (first, last) in enumerate(spans):
        still_open = [f for f, end in spans if f < last < end]
        found.append(AbortedTransaction(producer_id, first, last, min(still_open, default=last + 1)))
    return found
