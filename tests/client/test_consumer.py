"""The consumer in virtual time, against a small cluster in memory that can be made to misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.errors import ClientClosed, NoOffset, OffsetOutOfRange
from barnabas.client.fetched import ConsumerRecord
from barnabas.core.errors import CorruptMessage, InvalidRecord
from barnabas.core.random import SeededRandom
from barnabas.protocol.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from barnabas.protocol.schema import Message
from barnabas.records import kernel
from barnabas.records.batch import ATTRIBUTES_AT, CRC_AT
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.record import Record
from barnabas.sim.loop import LoopClock, run
from tests.client.fake_broker import Drop, FakeBroker, FakeCluster

Work = Callable[[FakeCluster, Consumer], Awaitable[Any]]
EARLIEST = ConsumerConfig(reset=Reset.EARLIEST)


def consuming(
    work: Work,
    config: ConsumerConfig = EARLIEST,
    *,
    brokers: int = 1,
    partitions: int = 1,
    batches: int = 0,
    max_versions: dict[str, int] | None = None,
) -> FakeCluster:
    """Run `work` with a consumer and a cluster whose topic t has batches of ten records."""

    async def main() -> FakeCluster:
        cluster = FakeCluster(brokers)
        cluster.max_versions.update(max_versions or {})
        cluster.add_topic("t", partitions)
        for partition in range(partitions):
            for number in range(batches):
                write(cluster, partition, number)
        await cluster.start()
        network = cluster.network.host("client")
        async with Consumer(network, LoopClock(), SeededRandom(1), cluster.bootstrap, config) as consumer:
            await work(cluster, consumer)
        return cluster

    return run(main())


def write(cluster: FakeCluster, partition: int, number: int, **options: Any) -> None:
    """Ten records whose offset, timestamp and value are the same number."""
    records = [Record(0, number * 10 + n, b"k", b"%d" % (number * 10 + n)) for n in range(10)]
    assert cluster.partition("t", partition).append(bytes(build_batch(records, **options)))[0] == 0


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """That many records, or as many as come within a while."""
    records: list[ConsumerRecord] = []
    while len(records) < count:
        some = await consumer.poll(timeout_ms=20_000)
        if not some:
            break
        records += some
    return records


def test_records_come_in_order() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        records = await read(consumer, 100)
        assert [record.offset for record in records] == list(range(100))
        assert records[7] == ConsumerRecord("t", 0, 7, 7, b"k", b"7", (), 0)
        assert await consumer.position(("t", 0)) == 100

    consuming(work, batches=10)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch(version: int) -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0), ("t", 1)])
        assert len(await read(consumer, 100)) == 100
        assert {v for _, name, v, _ in cluster.log if name == "FetchRequest"} == {version}

    consuming(work, partitions=2, batches=5, max_versions={"FetchRequest": version})


def test_a_poll_gives_no_more_than_wanted_and_keeps_the_rest() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        got = [await consumer.poll(1000, max_records=3) for _ in range(5)]
        assert [[record.offset for record in some] for some in got] == [
            list(range(start, start + 3)) for start in range(0, 15, 3)
        ]
        assert await consumer.position(("t", 0)) == 15

    cluster = consuming(work, batches=3)
    assert len(cluster.asked("Fetch")) == 1


def test_a_poll_without_news_ends_in_time() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        before = asyncio.get_running_loop().time()
        assert await consumer.poll(1_700) == []
        assert asyncio.get_running_loop().time() - before == pytest.approx(1.7, abs=0.01)

    consuming(work)


def test_what_is_written_meanwhile_is_read_at_once() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        assert await consumer.poll(100) == []
        asyncio.get_running_loop().call_later(0.2, write, cluster, 0, 0)
        before = asyncio.get_running_loop().time()
        assert len(await consumer.poll(60_000)) == 10
        assert asyncio.get_running_loop().time() - before == pytest.approx(0.2, abs=0.01)

    consuming(work)


def test_whoever_does_not_wait_is_served_too() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        records: list[ConsumerRecord] = []
        polls = 0
        while len(records) < 20 and polls < 10_000:
            records += await consumer.poll(timeout_ms=0)
            polls += 1
        assert [record.offset for record in records] == list(range(20))

    consuming(work, batches=2)


def test_the_latest_is_where_a_new_reader_begins() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        assert await consumer.position(("t", 0)) == 30
        write(cluster, 0, 3)
        assert [record.offset for record in await consumer.poll(1000)] == list(range(30, 40))

    consuming(work, ConsumerConfig(), batches=3)


def test_to_seek_where_one_stands_keeps_what_is_on_its_way() -> None:
    """One who looks up now and then, while a large answer takes its time, gets it nevertheless."""

    async def slow(broker: FakeBroker, request: Any, version: int) -> Message | None:
        if isinstance(request, FetchRequest):
            await asyncio.sleep(8)
        return None

    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        cluster.rules.append(slow)
        consumer.assign([("t", 0)])
        came = []
        for _ in range(2):
            consumer.seek(("t", 0), 3)
            came.append([record.offset for record in await consumer.poll(timeout_ms=5000)])
        assert came == [[], list(range(3, 10))]

    consuming(work, batches=1)


def test_seeking() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        first = ("t", 0)
        consumer.seek(first, 17)
        assert (await consumer.poll(1000))[0].offset == 17
        consumer.seek_to_beginning()
        assert (await consumer.poll(1000))[0].offset == 0
        consumer.seek_to_time(23)
        assert (await consumer.poll(1000))[0].offset == 23
        consumer.seek_to_time(1000)
        assert await consumer.position(first) == 30
        consumer.seek_to_end(first)
        assert await consumer.poll(1000) == []
        consumer.seek(first, 29)
        assert [record.offset for record in await consumer.poll(1000)] == [29]

    consuming(work, batches=3)


def test_offsets_are_told() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        cluster.partition("t", 1).start = 5
        both = ("t", 0), ("t", 1)
        assert await consumer.beginning_offsets(*both) == {both[0]: 0, both[1]: 5}
        assert await consumer.end_offsets(*both) == {both[0]: 20, both[1]: 20}
        found = await consumer.offsets_for_times({both[0]: 12, both[1]: 99})
        assert (found[both[0]].offset, found[both[0]].timestamp_ms, found[both[1]].offset) == (12, 12, -1)

    consuming(work, brokers=2, partitions=2, batches=2)


def test_pausing() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0), ("t", 1)])
        consumer.pause(("t", 0))
        assert {record.partition for record in await read(consumer, 30)} == {1}
        consumer.resume(("t", 0))
        assert {record.partition for record in await read(consumer, 20)} == {0}

    consuming(work, partitions=2, batches=2)


def test_another_assignment_keeps_positions_of_what_stays() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0), ("t", 1)])
        await read(consumer, 40)
        consumer.assign([("t", 1), ("t", 2)])
        assert consumer.assignment == [("t", 1), ("t", 2)]
        write(cluster, 1, 2)
        records = await read(consumer, 30)
        assert [r.offset for r in records if r.partition == 1] == list(range(20, 30))
        assert [r.offset for r in records if r.partition == 2] == list(range(20))
        with pytest.raises(ValueError, match="t-0 is not assigned"):
            consumer.seek(("t", 0), 0)

    consuming(work, partitions=3, batches=2)


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_without_an_object_for_any_record(codec: Codec) -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        for number in range(5):
            write(cluster, 0, number, codec=codec)
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), 13)
        (fetched,) = await consumer.poll_batches(1000)
        assert (fetched.first_offset, fetched.next_offset, fetched.high_watermark) == (13, 50, 50)
        rows = fetched.columns().to_arrow().to_pylist()
        assert [row["offset"] for row in rows] == list(range(13, 50))
        assert [row["value"] for row in rows] == [b"%d" % number for number in range(13, 50)]
        whole = b"".join(bytes(batch) for _, batch in cluster.partition("t").batches[1:])
        assert b"".join(bytes(each) for each in fetched.buffers()) == whole
        assert await consumer.position(("t", 0)) == 50

    consuming(work)


def test_a_session_says_only_what_changes() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", partition) for partition in range(5)])
        await read(consumer, 50)
        await consumer.poll(100)
        write(cluster, 3, 1)
        assert len(await consumer.poll(1000)) == 10
        await consumer.poll(2000)

    cluster = consuming(work, partitions=5, batches=1)
    requests: list[FetchRequest] = cluster.asked("Fetch")
    told = [(each.session_epoch, sum(len(topic.partitions) for topic in each.topics)) for each in requests]
    assert told[:2] == [(0, 5), (1, 5)]
    # then only the partition that moved on, or left out while its records are held, and came back
    assert all(epoch == number for number, (epoch, _) in enumerate(told))
    assert max(count for _, count in told[2:]) <= 1
    assert len({each.session_id for each in requests[1:]}) == 1


def test_one_fetch_at_a_time_to_a_broker() -> None:
    open_fetches = {1: 0, 2: 0}
    most = 0

    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        async def count(broker: FakeBroker, request: Any, version: int) -> Message | None:
            nonlocal most
            if isinstance(request, FetchRequest):
                open_fetches[broker.node_id] += 1
                most = max(most, *open_fetches.values())
                await asyncio.sleep(0.01)
                open_fetches[broker.node_id] -= 1
            return None

        cluster.rules.append(count)
        consumer.assign([("t", partition) for partition in range(6)])
        assert len(await read(consumer, 600)) == 600

    consuming(work, EARLIEST._replace(partition_max_bytes=300), brokers=2, partitions=6, batches=10)
    assert most == 1


def test_a_batch_larger_than_the_limits_still_comes() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        assert len(await read(consumer, 50)) == 50

    consuming(work, EARLIEST._replace(partition_max_bytes=1), batches=5)


# ---- what goes wrong -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reset", "goes_on_at"), [(Reset.EARLIEST, 20), (Reset.LATEST, 30)])
@pytest.mark.parametrize("lost", [5, 1000])
def test_an_offset_that_is_gone_is_reset(reset: Reset, goes_on_at: int, lost: int) -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        log = cluster.partition("t")
        log.start, log.batches = 20, log.batches[2:]
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), lost)
        records = await consumer.poll(1000)
        write(cluster, 0, 3)
        records += await read(consumer, 1)
        assert [record.offset for record in records] == list(range(goes_on_at, 40))

    consuming(work, ConsumerConfig(reset=reset), batches=3)


def test_without_a_reset_policy_the_user_is_told() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        with pytest.raises(NoOffset, match="t-0 has no position; seek"):
            await consumer.poll(1000)
        with pytest.raises(NoOffset):
            await consumer.position(("t", 0))
        consumer.seek(("t", 0), 1000)
        with pytest.raises(OffsetOutOfRange, match="cannot read t-0 at 1000"):
            await consumer.poll(1000)
        consumer.seek(("t", 0), 3)
        assert (await consumer.poll(1000))[0].offset == 3

    consuming(work, ConsumerConfig(reset=Reset.NONE), batches=1)


def test_leaders_move() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        records: list[ConsumerRecord] = []
        for leader in (2, 3, 1, 3):
            records += await consumer.poll(5000, max_records=15)
            cluster.move("t", 0, leader)
        records += await read(consumer, 100 - len(records))
        assert [record.offset for record in records] == list(range(100))

    consuming(work, EARLIEST._replace(partition_max_bytes=200), brokers=3, batches=10)


def test_what_two_leaders_gave_is_read_once() -> None:
    """The old one's answer comes when the new one's has been read."""

    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        async def late(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, FetchRequest) or broker.node_id == 2:
                return None
            answer = await broker.on_fetch(request, version)
            cluster.move("t", 0, 2)
            await asyncio.sleep(1)
            return answer

        cluster.rules.append(late)
        consumer.assign([("t", 0)])
        assert await consumer.poll(300) == []
        await consumer.cluster.connect(2)  # it is not held up behind the fetch
        await consumer.cluster.refresh()
        write(cluster, 0, 1)
        assert [record.offset for record in await read(consumer, 100)] == list(range(20))
        assert len(cluster.asked("Fetch")) > 2

    consuming(work, brokers=2, batches=1)


def test_a_log_that_was_cut_is_read_from_there() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        assert len(await read(consumer, 30)) == 30
        log = cluster.partition("t")
        cluster.move("t", 0, 2)
        del log.batches[1:]
        assert await consumer.poll(1000) == []
        write(cluster, 0, 7)
        assert [record.value for record in await read(consumer, 10)] == [b"%d" % n for n in range(70, 80)]
        assert await consumer.position(("t", 0)) == 20

    consuming(work, brokers=2, batches=3)


def test_without_a_reset_policy_a_cut_is_told_before_anything_below_it_is_given() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0), ("t", 1)])
        for partition in (("t", 0), ("t", 1)):
            consumer.seek(partition, 0)
        assert len(await read(consumer, 60)) == 60
        del cluster.partition("t", 0).batches[1:]

        async def go_on() -> None:
            for _ in range(20):
                for partition in (0, 1):
                    write(cluster, partition, 8)  # there is always something to be given,
                await asyncio.sleep(1)  # and it has come
                assert all(record.partition == 1 for record in await consumer.poll(1000))

        with pytest.raises(OffsetOutOfRange, match="t-0 was cut at 20, below the position 30"):
            await go_on()

    consuming(work, ConsumerConfig(reset=Reset.NONE), partitions=2, batches=3)


def test_a_broker_that_is_restarted_has_forgotten_the_session() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        await read(consumer, 20)
        await consumer.poll(600)
        cluster.brokers[1].sessions.clear()
        write(cluster, 0, 2)
        assert len(await read(consumer, 10)) == 10
        cluster.brokers[1].stop()
        assert await consumer.poll(1000) == []
        await cluster.brokers[1].start()
        write(cluster, 0, 3)
        assert [record.offset for record in await read(consumer, 10)] == list(range(30, 40))

    consuming(work, batches=2)


def test_a_topic_that_appears_later() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("later", 0)])
        assert await consumer.poll(3000) == []
        cluster.add_topic("later")
        cluster.partition("later").append(bytes(build_batch([Record(0, 1, None, b"v")])))
        assert [record.value for record in await consumer.poll(5000)] == [b"v"]

    consuming(work)


def test_a_corrupt_batch_is_told_after_what_came_before_it() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        cluster.partition("t").batches[1][1][-1] ^= 1
        consumer.assign([("t", 0)])
        assert len(await consumer.poll(1000)) == 10
        with pytest.raises(CorruptMessage):
            await consumer.poll(1000)
        consumer.seek(("t", 0), 20)
        assert len(await read(consumer, 10)) == 10

    consuming(work, batches=3)


def test_records_that_cannot_be_decompressed_are_told_after_what_came_before_them() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        write(cluster, 0, 0)
        torn = build_batch([Record(0, 0, None, b"x" * 100)])
        torn[ATTRIBUTES_AT + 1] |= Codec.ZSTD  # which it is not; header and checksum are right
        torn[CRC_AT : CRC_AT + 4] = kernel.crc32c(torn, ATTRIBUTES_AT, len(torn)).to_bytes(4, "big")
        cluster.partition("t").append(bytes(torn))
        consumer.assign([("t", 0)])
        assert len(await consumer.poll(1000)) == 10
        assert await consumer.position(("t", 0)) == 10
        for _ in range(2):
            with pytest.raises(InvalidRecord):
                await consumer.poll(1000)

    consuming(work)


def test_what_was_asked_before_a_seek_is_thrown_away() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0)])
        await read(consumer, 30)
        await consumer.poll(10)  # a fetch at 30 is on its way
        consumer.seek(("t", 0), 5)
        write(cluster, 0, 3)
        assert (await consumer.poll(1000))[0].offset == 5

    consuming(work, batches=3)


def test_a_closed_consumer_says_so() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        await consumer.close()
        with pytest.raises(ClientClosed):
            await consumer.poll(1)
        with pytest.raises(ClientClosed):
            consumer.assign([("t", 0)])

    consuming(work)


def test_only_what_was_committed_is_seen() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        log = cluster.partition("t")

        def transactional(number: int, producer_id: int) -> None:
            write(
                cluster,
                0,
                number,
                transactional=True,
                producer_id=producer_id,
                producer_epoch=number,
                base_sequence=0,
            )

        def end(kind: ControlType, producer_id: int) -> None:
            batch = build_end_transaction(
                kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0
            )
            log.append(bytes(batch))

        transactional(0, 7)  # 0-9, aborted
        write(cluster, 0, 1)  # 10-19, no transaction
        transactional(2, 8)  # 20-29, committed
        end(ControlType.ABORT, 7)  # 30
        transactional(3, 7)  # 31-40, committed
        end(ControlType.COMMIT, 8)  # 41
        end(ControlType.COMMIT, 7)  # 42
        log.aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
        consumer.assign([("t", 0)])
        records = await read(consumer, 30)
        expected = [*range(10, 30), *range(31, 41)]
        assert [record.offset for record in records] == expected
        assert await consumer.poll(100) == []
        assert await consumer.position(("t", 0)) == 43
        consumer.seek_to_beginning()
        (fetched,) = await consumer.poll_batches(1000)
        assert [row["offset"] for row in fetched.columns().to_arrow().to_pylist()] == expected

    consuming(work, EARLIEST._replace(read_committed=True))


@settings(max_examples=40)
@given(
    faults=st.lists(st.sampled_from(["", "", "", "drop", "move", "70", "71", "slow"]), max_size=30),
    max_records=st.integers(1, 25),
    partition_bytes=st.integers(1, 2000),
)
def test_whatever_happens_no_record_is_skipped_or_read_twice(
    faults: list[str], max_records: int, partition_bytes: int
) -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        script = iter(faults)

        async def rule(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, FetchRequest):
                return None
            fault = next(script, "")
            if fault == "drop":
                raise Drop
            if fault == "slow":
                await asyncio.sleep(2)
            if fault == "move":
                cluster.move("t", 1, 1 + broker.node_id % 2)
            if fault in ("70", "71"):
                broker.sessions.clear()
                return FetchResponse(
                    throttle_time_ms=0, error_code=int(fault), session_id=0, responses=[], node_endpoints=()
                )
            return None

        cluster.rules.append(rule)
        consumer.assign([("t", 0), ("t", 1), ("t", 2)])
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        while sum(map(len, seen.values())) < 120:
            some = await consumer.poll(60_000, max_records=max_records)
            assert some
            for record in some:
                seen[record.partition].append(record.offset)
        assert seen == {partition: list(range(40)) for partition in range(3)}

    config = EARLIEST._replace(partition_max_bytes=partition_bytes)
    consuming(work, config, brokers=2, partitions=3, batches=4)
