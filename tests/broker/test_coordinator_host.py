"""A coordinator's shard over its partition: what is answered is committed, what is lost is loaded anew."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.broker.coordinators import coordinator as coordinator_module
from barnabas.broker.coordinators.coordinator import (
    RELOAD_SECONDS,
    RESTS_FOR_LOADS,
    SLOW_LOAD_SECONDS,
    Coordinator,
    partition_for,
)
from barnabas.broker.coordinators.errors import CoordinatorNotAvailable, NotCoordinator
from barnabas.broker.coordinators.host import Host, Shard
from barnabas.broker.coordinators.journal import Journal, encode_write
from barnabas.broker.coordinators.loading import load
from barnabas.broker.replicas.replica import Replica
from barnabas.coordination.effects import NOTHING, Effects, Markers, Now, Producer, Reply, Write
from barnabas.coordination.records import KeyedRecord, Kinds
from barnabas.core.clock import ManualClock, SystemClock
from barnabas.core.errors import (
    BarnabasError,
    InvalidProducerEpoch,
    InvariantViolation,
    RecordListTooLarge,
    StorageError,
)
from barnabas.groups.records import KINDS, GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from barnabas.log.admission import admit_batches
from barnabas.metadata.records import PartitionChangeRecord
from barnabas.records.control import ControlType, build_end_transaction
from tests.broker.test_replicas import Site, on_a_site, until

TOPIC = "__consumer_offsets"


class Tally:
    """A shard that keeps one number a name, and those of open transactions apart."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.due: float | None = None
        self.late: Reply | None = None

    def replay(self, record: KeyedRecord, producer: Producer | None) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert isinstance(record.value, OffsetCommitValue)
        place = self.numbers if producer is None else self.pending.setdefault(producer.id, {})
        place[record.key.group] = record.value.offset

    def replay_end(self, producer: Producer, is_commit: bool) -> None:
        ended = self.pending.pop(producer.id, {})
        if is_commit:
            self.numbers.update(ended)

    def loaded(self, now: Now) -> Effects:
        return NOTHING

    def tick(self, now: Now) -> Effects:
        if self.late is None or self.due is None or now.seconds < self.due:
            return NOTHING
        self.due, late, self.late = None, self.late, None
        return Effects(replies=[(late, said(-1))])

    def next_due_seconds(self) -> float | None:
        return self.due

    def add(self, name: str, by: int, reply: Reply, producer: Producer | None = None) -> Effects:
        number = self.numbers.get(name, 0) + by
        value = OffsetCommitValue(offset=number, leader_epoch=-1, metadata="", commit_timestamp=0)
        record = KeyedRecord(OffsetCommitKey(group=name, topic="t", partition=0), value, 3)
        return Effects([Write([record], producer)], [(reply, said(number))])

    def wait(self, seconds: float, now: Now, reply: Reply) -> Effects:
        self.due, self.late = now.seconds + seconds, reply
        return NOTHING


def said(number: int) -> GroupMetadataKey:
    return GroupMetadataKey(group=str(number))


def add(name: str, by: int, producer: Producer | None = None) -> Callable[[Tally, Now, Reply], Effects]:
    return lambda shard, now, reply: shard.add(name, by, reply, producer)


def add_many(count: int, size: int) -> Callable[[Tally, Now, Reply], Effects]:
    """So many names, or one that is too long for a name, of that size together."""
    name = "x" * (size if count <= 2 else size // count)

    def command(shard: Tally, now: Now, reply: Reply) -> Effects:
        writes = [shard.add(f"{name}{number}", 1, reply).writes[0] for number in range(count)]
        return Effects([Write([record for write in writes for record in write.records])], [(reply, said(0))])

    return command


def coordinator(site: Site, stop: Callable[[BaseException], None]) -> Coordinator[Tally]:
    def send(host: object, markers: Markers) -> None:
        raise AssertionError(markers)

    async def ensure() -> None:
        site.create(TOPIC, 2)

    return Coordinator(
        TOPIC,
        KINDS,
        Tally,
        metadata=site.cluster.metadata,
        replicas=site.replicas,
        clock=SystemClock(),
        commit_timeout=lambda: 5.0,
        send_markers=send,
        ensure_topic=ensure,
        stop=stop,
    )


def coordinated(
    work: Callable[[Site, Coordinator[Tally]], Coroutine[Any, Any, None]],
    stops_for: type[BaseException] | None = None,
    brokers: tuple[int, ...] = (),
) -> None:
    async def run(site: Site) -> None:
        stopped: list[BaseException] = []
        of_tallies = coordinator(site, stopped.append)
        assert await of_tallies.find("a") == 1
        await work(site, of_tallies)
        await of_tallies.close()
        assert [type(one) for one in stopped] == ([] if stops_for is None else [stops_for])

    on_a_site(run, *brokers)


def test_keys_belong_to_partitions_as_in_java() -> None:
    # String.hashCode of each, by a JVM: "polygenelubricants" is the smallest integer, whose abs is 0
    hashes = {"": 0, "a": 97, "group-1": 293427299, "Aa": 2112, "é😀": 1996812, "polygenelubricants": 0}
    assert {key: partition_for(key, 2**31) for key in hashes} == hashes
    assert partition_for("group-1", 50) == 49


def test_one_append_serves_all_who_ask_in_one_turn_and_a_reload_finds_it() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        answers = await asyncio.gather(*(tallies.ask("a", add("a", 1)) for _ in range(50)))
        assert [one.group for one in answers] == [str(n) for n in range(1, 51)]
        host = await tallies.host(tallies.partition_of("a"))
        log = host.replica.log
        assert log.end_offset == 50
        assert log.size_bytes < 50 * 61  # the header of a batch each would take more than that
        host.resign(NotCoordinator("for a test"))
        again = await tallies.host(tallies.partition_of("a"))
        assert again is not host
        assert again.shard.numbers == {"a": 50}

    coordinated(work)


def test_where_an_append_fails_nobody_is_answered_and_the_log_decides() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        await tallies.ask("a", add("a", 1))
        host = await tallies.host(tallies.partition_of("a"))
        waits = asyncio.ensure_future(host.ask(lambda shard, now, reply: shard.wait(3600, now, reply)))
        await asyncio.sleep(0)
        site.disk.fail("append", errno.ENOSPC, path_glob="*.log", times=1)
        asked = [tallies.ask("a", add("a", 1)) for _ in range(3)]
        results = await asyncio.gather(*asked, waits, return_exceptions=True)
        assert [type(one) for one in results] == [CoordinatorNotAvailable] * 4
        assert (await tallies.ask("a", add("a", 5))).group == "6"

    coordinated(work)


def test_what_no_batch_has_room_for_is_refused() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        host = await tallies.host(tallies.partition_of("a"))
        for size in (40_000, 2_000_000):  # for the length of a string, and for a batch
            with pytest.raises(RecordListTooLarge):
                await host.ask(add_many(size // 20_000, size), only_records=True)
            assert host.shard.numbers == {}
            assert host.lost is None
        with pytest.raises(RecordListTooLarge):
            await host.ask(add_many(100, 2_000_000))
        assert isinstance(host.lost, CoordinatorNotAvailable)

    coordinated(work)


def test_an_event_that_cannot_be_written_down_has_the_shard_loaded_anew() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        host = await tallies.host(tallies.partition_of("a"))
        await host.tell(lambda shard, now: add_many(100, 2_000_000)(shard, now, None))
        assert isinstance(host.lost, CoordinatorNotAvailable)
        assert await tallies.host(tallies.partition_of("a")) is not host

    coordinated(work)


def test_who_waits_is_answered_when_it_is_time() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        answer = await tallies.ask("a", lambda shard, now, reply: shard.wait(0.01, now, reply))
        assert answer.group == "-1"

    coordinated(work)


def marker(producer: Producer, *, is_commit: bool) -> bytearray:
    return build_end_transaction(
        ControlType.COMMIT if is_commit else ControlType.ABORT,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        coordinator_epoch=0,
        timestamp=0,
    )


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_ends_what_was_written_before_it(is_commit: bool) -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        producer = Producer(7, 3)
        host = await tallies.host(tallies.partition_of("a"))
        await host.ask(add("a", 5, producer))
        assert host.shard.numbers == {}
        await asyncio.gather(
            host.write_marker(
                marker(producer, is_commit=is_commit), producer, is_commit=is_commit, transaction_version=0
            ),
            host.ask(add("b", 1)),
        )
        expected = {"a": 5, "b": 1} if is_commit else {"b": 1}
        assert host.shard.numbers == expected
        host.resign(NotCoordinator("for a test"))
        again = await tallies.host(tallies.partition_of("a"))
        assert again.shard.numbers == expected
        assert again.shard.pending == {}

    coordinated(work)


def test_a_transaction_of_an_old_epoch_is_refused_before_anything_counts() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        host = await tallies.host(tallies.partition_of("a"))
        await host.ask(add("a", 5, Producer(7, 3)))
        with pytest.raises(InvalidProducerEpoch):
            await host.ask(add("a", 9, Producer(7, 2)))
        assert host.shard.pending == {7: {"a": 5}}
        assert host.lost is None

    coordinated(work)


def test_a_topic_that_goes_takes_its_shards_along() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        host = await tallies.host(tallies.partition_of("a"))
        waits = asyncio.ensure_future(host.ask(lambda shard, now, reply: shard.wait(3600, now, reply)))
        await asyncio.sleep(0)
        site.delete(TOPIC)
        with pytest.raises(NotCoordinator):
            await waits
        with pytest.raises(NotCoordinator):
            await tallies.ask("a", add("a", 1))
        assert await tallies.find("a") == 1
        assert (await tallies.ask("a", add("a", 1))).group == "1"

    coordinated(work)


def test_partitions_that_another_node_leads_are_left_out_and_no_others() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        for name in ("a", "b"):
            await tallies.ask(name, add(name, 1))
        assert [host.replica.partition for host in await tallies.hosts()] == [0, 1]
        topic = site.cluster.image.topic(TOPIC)
        assert topic is not None
        site.commit(PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=2))
        assert [host.replica.partition for host in await tallies.hosts()] == [1]

    coordinated(work)


def test_whoever_asks_a_stopping_node_is_sent_elsewhere() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        await tallies.close()
        with pytest.raises(BarnabasError) as refused:
            await tallies.ask("a", add("a", 1))
        assert refused.value.wire.name == "NOT_COORDINATOR"

    coordinated(work)


def test_a_partition_that_cannot_be_read_is_told_of_and_read_when_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        await tallies.ask("a", add("a", 1))
        host = await tallies.host(tallies.partition_of("a"))
        host.resign(NotCoordinator("for a test"))
        site.disk.fail("read", errno.EIO, path_glob=f"{TOPIC}*.log", times=1)
        with pytest.raises(CoordinatorNotAvailable, match="cannot be loaded"):
            await tallies.ask("a", add("a", 1))
        assert (await tallies.ask("a", add("a", 1))).group == "2"
        assert "was not loaded" in caplog.text

    coordinated(work)


def test_shard_is_loaded_only_after_a_failed_write_is_synced() -> None:
    """The record is in the log all the same. Seed 7700279: a shard was loaded with a commit that was not
    synced, told of it, and a power loss took it back."""

    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        await tallies.ask("a", add("a", 1))
        log = (await tallies.host(tallies.partition_of("a"))).replica.log
        log.config = dataclasses.replace(log.config, flush_messages=1)
        log.epochs_changed()
        site.disk.fail("append", errno.EIO, path_glob=f"{TOPIC}*/leader-epoch-checkpoint.tmp", times=2)
        with pytest.raises(CoordinatorNotAvailable, match="could not be written"):
            await tallies.ask("a", add("a", 1))
        assert (log.end_offset, log.recovery_point) == (2, 0)
        with pytest.raises(CoordinatorNotAvailable, match="cannot be loaded"):
            await tallies.host(tallies.partition_of("a"))
        host = await tallies.host(tallies.partition_of("a"))
        assert log.recovery_point == log.high_watermark == 2
        assert host.shard.numbers == {"a": 2}

    coordinated(work)


@pytest.mark.parametrize("is_start", [False, True])
def test_shard_that_cannot_be_loaded_is_tried_again_without_being_asked(is_start: bool) -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        clock = tallies._clock = ManualClock()
        await tallies.ask("a", add("a", 1))
        host = await tallies.host(tallies.partition_of("a"))
        if is_start:
            del tallies._hosts[host.replica.partition]
        else:
            host.resign(NotCoordinator("for a test"))
        site.disk.fail("read", errno.EIO, path_glob=f"{TOPIC}*.log", times=3)
        if is_start:
            tallies.load_all()
        await turns()
        tries = 0
        while not tallies.loaded() and tries < 10:
            tries += 1
            clock.advance(RELOAD_SECONDS)
            await turns()
        assert tries == (3 if is_start else 4)

    coordinated(work)


def test_shard_that_is_lost_as_soon_as_it_is_loaded_is_tried_again() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        clock = tallies._clock = ManualClock()
        await tallies.ask("a", add("a", 1))
        (await tallies.host(tallies.partition_of("a"))).resign(NotCoordinator("for a test"))
        loads = 0

        def loaded(self: Tally, now: Now) -> Effects:
            nonlocal loads
            loads += 1
            if loads == 1:
                raise StorageError("for a test")
            return NOTHING

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tally, "loaded", loaded)
            for _ in range(4):
                clock.advance(RELOAD_SECONDS)
                await turns()
        assert loads == 2
        assert [host.shard.numbers for host in tallies.loaded()] == [{"a": 1}]

    coordinated(work)


def test_a_state_that_cannot_be_ends_the_node() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        def impossible(shard: Tally, now: Now, reply: Reply) -> Effects:
            raise InvariantViolation("for a test")

        with pytest.raises(InvariantViolation):
            await tallies.ask("a", impossible)

    coordinated(work, stops_for=InvariantViolation)


def waiting(host: Host[Tally]) -> asyncio.Future[Any]:
    return asyncio.ensure_future(host.ask(lambda shard, now, reply: shard.wait(3600, now, reply)))


def test_a_shard_is_loaded_after_what_the_one_before_it_was_writing() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        partition = tallies.partition_of("a")
        host = await tallies.host(partition)
        log = host.replica.log
        async with log.turn:  # the append has to wait
            asked = [asyncio.ensure_future(host.ask(add("a", 1)))]
            await turns()
            asked.append(asyncio.ensure_future(host.ask(add("a", 1))))
            await turns()
            host.resign(NotCoordinator("for a test"))
            loading = asyncio.ensure_future(tallies.host(partition))
            await turns()
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in told] == [NotCoordinator] * 2
        assert (await loading).shard.numbers == {"a": 1}
        await host.settled()
        assert log.end_offset == 1  # what was not under way yet is not written any more

    coordinated(work)


def test_shard_is_loaded_anew_after_a_marker_that_could_not_be_synced() -> None:
    """The marker is in the log, before all that is written later, so that is where the transaction ends."""

    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        partition, producer = tallies.partition_of("a"), Producer(7, 3)
        host = await tallies.host(partition)
        await host.ask(add("a", 5, producer))
        log = host.replica.log
        log.config = dataclasses.replace(log.config, flush_messages=1)
        log.epochs_changed()
        site.disk.fail("append", errno.EIO, path_glob=f"{TOPIC}*/leader-epoch-checkpoint.tmp", times=1)
        with pytest.raises(StorageError):
            await host.write_marker(
                marker(producer, is_commit=True), producer, is_commit=True, transaction_version=0
            )
        with pytest.raises(CoordinatorNotAvailable):
            await host.ask(add("b", 1))
        again = await tallies.host(partition)
        assert again.shard.numbers == {"a": 5}
        assert again.shard.pending == {}

    coordinated(work)


def test_a_shard_is_loaded_after_the_marker_that_was_being_written() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        partition, producer = tallies.partition_of("a"), Producer(7, 3)
        host = await tallies.host(partition)
        await host.ask(add("a", 5, producer))
        async with host.replica.log.turn:
            ending = asyncio.ensure_future(
                host.write_marker(
                    marker(producer, is_commit=True), producer, is_commit=True, transaction_version=0
                )
            )
            await turns()
            host.resign(NotCoordinator("for a test"))
            loading = asyncio.ensure_future(tallies.host(partition))
            await turns()
        with pytest.raises(NotCoordinator):  # it is sent again, which does no harm
            await ending
        assert (await loading).shard.numbers == {"a": 5}

    coordinated(work)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("leader", [1, 2])
def test_whoever_waits_hears_at_once_of_another_leader_or_epoch(leader: int) -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        host = await tallies.host(tallies.partition_of("a"))
        waits = waiting(host)
        await asyncio.sleep(0)
        topic = site.cluster.image.topic(TOPIC)
        assert topic is not None
        site.commit(
            PartitionChangeRecord(partition_id=host.replica.partition, topic_id=topic.id, leader=leader)
        )
        with pytest.raises(NotCoordinator):
            await asyncio.wait_for(waits, 60)

    coordinated(work)


def test_a_topic_that_goes_while_it_is_loaded_leaves_no_shard() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        await tallies.ask("a", add("a", 1))
        host = await tallies.host(tallies.partition_of("a"))
        host.resign(NotCoordinator("for a test"))
        loading = asyncio.ensure_future(tallies.host(tallies.partition_of("a")))
        await asyncio.sleep(0)
        site.delete(TOPIC)
        with pytest.raises((NotCoordinator, CoordinatorNotAvailable)):
            await loading
        assert tallies.loaded() == []

    coordinated(work)


def test_whoever_waits_for_a_load_when_the_node_stops_is_sent_elsewhere() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        loading = asyncio.ensure_future(tallies.host(tallies.partition_of("a")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await tallies.close()
        with pytest.raises(NotCoordinator):
            await loading

    coordinated(work)


def test_records_that_cannot_be_end_the_node() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        def impossible(record: KeyedRecord, producer: Producer | None) -> None:
            raise InvariantViolation("for a test")

        await tallies.ask("a", add("a", 1))
        host = await tallies.host(tallies.partition_of("a"))
        host.resign(NotCoordinator("for a test"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tally, "replay", lambda self, record, producer: impossible(record, producer))
            tallies.load_all()
            with pytest.raises(InvariantViolation):
                await tallies.host(host.replica.partition)

    coordinated(work, stops_for=InvariantViolation)


def test_a_large_batch_is_loaded_in_many_turns_of_the_loop() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        partition = tallies.partition_of("a")
        host = await tallies.host(partition)
        await host.ask(add_many(10_000, 100_000))
        assert len(host.shard.numbers) == 10_000
        host.resign(NotCoordinator("for a test"))
        loading = asyncio.ensure_future(tallies.host(partition))
        taken = 0
        while not loading.done():
            taken += 1
            await asyncio.sleep(0)
        assert (await loading).shard.numbers == host.shard.numbers
        assert taken > 10

    coordinated(work)


def test_a_stop_waits_for_what_is_being_written_even_by_a_lost_host() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        host = await tallies.host(tallies.partition_of("a"))
        async with host.replica.log.turn:
            asked = asyncio.ensure_future(host.ask(add("a", 1)))
            await turns()
            host.resign(NotCoordinator("for a test"))
            closing = asyncio.ensure_future(tallies.close())
            await turns()
            assert not closing.done()
        await closing
        assert not host.is_writing
        assert host.replica.log.end_offset == 1
        with pytest.raises(NotCoordinator):
            await asked

    coordinated(work)


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_mistake_in_the_state_machine_has_the_shard_loaded_anew(
    is_asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def mistaken(shard: Tally, now: Now, reply: Reply = None) -> Effects:
        shard.numbers["a"] = -1
        raise KeyError("for a test")

    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        await tallies.ask("a", add("a", 1))
        host = await tallies.host(tallies.partition_of("a"))
        waits = waiting(host)
        await asyncio.sleep(0)
        if is_asked:
            with pytest.raises(KeyError):
                await host.ask(mistaken)
        else:
            await host.tell(mistaken)
        with pytest.raises(CoordinatorNotAvailable):
            await waits
        assert (await tallies.ask("a", add("a", 1))).group == "2"
        assert "an unexpected error" in caplog.text

    coordinated(work)


def test_what_takes_long_to_load_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    loads = 0
    load = coordinator_module.load

    async def slowly(replica: Replica, kinds: Kinds, shard: Shard, turn: asyncio.Lock) -> float:
        nonlocal loads
        loads += 1
        clock.advance(2 * SLOW_LOAD_SECONDS)
        return await load(replica, kinds, shard, turn)

    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        tallies._clock = clock
        await tallies.ask("a", add("a", 1))
        site.disk.fail("append", errno.ENOSPC, path_glob="*.log", times=1)
        for _ in range(100):
            with pytest.raises(CoordinatorNotAvailable):
                await tallies.ask("a", add("a", 1))
        assert loads == 1
        clock.advance(RESTS_FOR_LOADS * 2 * SLOW_LOAD_SECONDS)
        assert (await tallies.ask("a", add("a", 1))).group == "2"
        assert loads == 2

    monkeypatch.setattr(coordinator_module, "load", slowly)
    coordinated(work)


# ---- loading ---------------------------------------------------------------------------------------------


async def leader_of_two(site: Site, tallies: Coordinator[Tally]) -> Replica:
    """The partition of "a", which this node leads again with another in-sync replica, of which it knows
    nothing; it holds three commits, of which the first two are committed."""
    partition = tallies.partition_of("a")
    for _ in range(2):
        await tallies.ask("a", add("a", 1))
    made = site.cluster.image.topics_by_name[TOPIC]
    for leader in (2, 1):
        site.commit(
            PartitionChangeRecord(
                partition_id=partition, topic_id=made.id, replicas=[1, 2], isr=[1, 2], leader=leader
            )
        )
        if leader == 2:
            log = await site.directory.partition(TOPIC, partition)
            write = Tally().add("a", 3, None).writes[0]  # type: ignore[arg-type]
            journal = Journal(0)
            journal.add([encode_write(write, 10_000)], 0, 10_000)
            data = journal.take()
            admit_batches(data, log.config, log.end_offset, 1, 0)
            await log.append_as_follower(data)
    return await site.replicas.leader(made, partition)


def test_a_shard_is_loaded_up_to_the_high_watermark_and_answers_when_all_is_committed() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        replica = await leader_of_two(site, tallies)
        assert (replica.log.high_watermark, replica.log.end_offset) == (2, 3)
        shard = Tally()
        loading = asyncio.ensure_future(load(replica, KINDS, shard, asyncio.Lock()))
        await until(lambda: replica.marks.commit_count)
        assert shard.numbers == {"a": 2}
        assert not loading.done()
        replica.follower_fetched(2, 3)
        await loading
        assert shard.numbers == {"a": 3}
        assert (await tallies.host(replica.partition)).shard.numbers == {"a": 3}

    coordinated(work, brokers=(1, 2))


def test_a_write_that_the_end_of_the_leadership_refuses_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        replica = (await tallies.host(tallies.partition_of("a"))).replica
        async with replica.log.turn:
            asked = asyncio.ensure_future(tallies.ask("a", add("a", 1)))
            await until(lambda: replica.log.turn._waiting)
            site.commit(
                PartitionChangeRecord(partition_id=replica.partition, topic_id=replica.topic_id, leader=2)
            )
        with pytest.raises(NotCoordinator):
            await asked
        assert replica.log.end_offset == 0

    coordinated(work, brokers=(1, 2))
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_load_ends_with_the_leadership() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        replica = await leader_of_two(site, tallies)
        asked = asyncio.ensure_future(tallies.ask("a", add("a", 1)))
        await until(lambda: replica.marks.commit_count)
        site.commit(
            PartitionChangeRecord(partition_id=replica.partition, topic_id=replica.topic_id, leader=2)
        )
        with pytest.raises(NotCoordinator):
            await asked

    coordinated(work, brokers=(1, 2))


def lead_again(site: Site, replica: Replica) -> None:
    """The same leader in a later epoch."""
    site.commit(PartitionChangeRecord(partition_id=replica.partition, topic_id=replica.topic_id, leader=1))


def test_a_load_that_is_overtaken_by_a_later_epoch_gives_way_to_another() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        replica = await leader_of_two(site, tallies)
        epoch = replica.leader_epoch
        asked = asyncio.ensure_future(tallies.host(replica.partition))
        await until(lambda: replica.marks.commit_count)
        lead_again(site, replica)
        assert replica.leader_epoch == epoch + 1
        replica.follower_fetched(2, 3)  # both loads could go on: the first finds that its epoch is over
        with pytest.raises(NotCoordinator):
            await asked
        await until(tallies.loaded)
        (host,) = tallies.loaded()
        assert (host.epoch, host.shard.numbers) == (epoch + 1, {"a": 3})

    coordinated(work, brokers=(1, 2))


def test_a_partition_that_waits_for_its_followers_does_not_hold_up_the_loads_of_others() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        await tallies.ask("b", add("b", 1))
        (await tallies.host(tallies.partition_of("b"))).resign(NotCoordinator("for a test"))
        replica = await leader_of_two(site, tallies)
        assert replica.partition != tallies.partition_of("b")
        waiting = asyncio.ensure_future(tallies.host(replica.partition))
        await until(lambda: replica.marks.commit_count)
        assert (await tallies.ask("b", add("b", 1))).group == "2"
        assert not waiting.done()
        replica.follower_fetched(2, 3)
        await waiting

    coordinated(work, brokers=(1, 2))


@pytest.mark.parametrize("between", [(2,), ()])
def test_a_commit_is_answered_only_in_the_epoch_in_which_it_was_decided(between: tuple[int, ...]) -> None:
    """KAFKA-20634: the high watermark passes its offset while this node follows, or leads once more."""

    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        replica = await leader_of_two(site, tallies)
        replica.follower_fetched(2, 3)
        host = await tallies.host(replica.partition)
        asked = asyncio.ensure_future(host.ask(add("a", 1)))
        await until(lambda: replica.log.end_offset == 4)
        for leader in (*between, 1):
            site.commit(
                PartitionChangeRecord(
                    partition_id=replica.partition, topic_id=replica.topic_id, leader=leader
                )
            )
            if leader == 2:
                replica.log.advance_high_watermark(4)
        replica.follower_fetched(2, 4)
        assert replica.log.high_watermark == 4
        with pytest.raises(NotCoordinator):
            await asked
        assert host.lost is not None
        assert (await tallies.host(replica.partition)).shard.numbers == {"a": 4}

    coordinated(work, brokers=(1, 2))


def read(shard: Tally, now: Now, reply: Reply) -> Effects:
    return Effects(replies=[(reply, said(shard.numbers["a"]))])


def test_a_commit_that_takes_too_long_is_answered_and_counts_when_it_is_committed() -> None:
    async def work(site: Site, tallies: Coordinator[Tally]) -> None:
        replica = await leader_of_two(site, tallies)
        replica.follower_fetched(2, 3)
        host = await tallies.host(replica.partition)
        host._commits._timeout_seconds = lambda: 0.05
        with pytest.raises(CoordinatorNotAvailable):
            await host.ask(add("a", 1))
        with pytest.raises(CoordinatorNotAvailable):  # it would tell of what is not committed
            await host.ask(read)
        assert host.lost is None
        replica.follower_fetched(2, 4)
        answer = await host.ask(
            lambda shard, now, reply: Effects(replies=[(reply, said(shard.numbers["a"]))])
        )
        assert answer.group == "4"

    coordinated(work, brokers=(1, 2))
