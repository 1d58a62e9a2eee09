"""Who waits for a partition to move on is woken when it has, never without need, and never forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.handlers import produce
from barnabas.broker.replicas import purgatory
from barnabas.broker.replicas.purgatory import LongPoll, Marks, OffsetWaits
from barnabas.broker.replicas.replicas import UnknownTopicOrPartition
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from barnabas.testing import Broker
from tests.support.logs import batch
from tests.support.raw_client import RawClient, fetch_request, metadata_request, produce_request

GONE = UnknownTopicOrPartition("t was deleted")


# ---- producers ------------------------------------------------------------------------------------------


@given(
    offsets=st.lists(st.integers(0, 20), max_size=12),
    marks=st.lists(st.integers(0, 25), max_size=8).map(sorted),
    cancelled=st.sets(st.integers(0, 11)),
)
def test_a_wait_is_over_exactly_when_the_mark_reaches_it(
    offsets: list[int], marks: list[int], cancelled: set[int]
) -> None:
    async def run() -> None:
        place = Marks()
        waits = [place.committed(offset) for offset in offsets]
        for index in cancelled & set(range(len(waits))):
            waits[index].cancel()
        for mark in marks:
            place.moved(mark, 0)
            for index, (offset, wait) in enumerate(zip(offsets, waits, strict=True)):
                assert wait.done() == (offset <= mark or index in cancelled)
        place.end(GONE)
        highest = max(marks, default=-1)
        for index, (offset, wait) in enumerate(zip(offsets, waits, strict=True)):
            if index in cancelled:
                assert wait.cancelled()
            else:
                assert wait.exception() is (None if offset <= highest else GONE)

    asyncio.run(run())


def test_a_producer_that_is_gone_leaves_no_wait_behind() -> None:
    async def run() -> list[bool]:
        place = Marks()
        waits = [(place.committed(offset), PartitionProduceResponse()) for offset in (1, 2)]
        task = asyncio.ensure_future(produce.Committing(waits, 60_000, ProduceResponse).wait())
        await asyncio.sleep(0)  # it has begun to wait
        task.cancel()
        await asyncio.wait((task,))
        place.end(GONE)
        return [future.cancelled() for future, _ in waits]

    assert asyncio.run(run()) == [True, True]


def test_waits_are_over_in_the_order_of_their_offsets_and_their_coming() -> None:
    async def run() -> list[str]:
        place, order = Marks(), list[str]()
        for name, offset in (("b", 2), ("a", 1), ("b later", 2), ("c", 3)):
            place.committed(offset).add_done_callback(lambda _, name=name: order.append(name))
        place.moved(3, 0)
        await asyncio.sleep(0)
        return order

    assert asyncio.run(run()) == ["a", "b", "b later", "c"]


def test_waits_that_were_given_up_do_not_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a high watermark stands still, producers time out and come again."""
    monkeypatch.setattr(purgatory, "PURGE_FROM", 10)

    async def run() -> None:
        waits = OffsetWaits()
        kept = [waits.add(offset) for offset in (7, 3, 5, 3)]
        for number in range(1000):
            waits.add(number).cancel()
            assert len(waits) <= 21
        assert [each.done() for each in kept] == [False] * 4
        waits.reached(4)
        assert [each.done() for each in kept] == [False, True, False, True]
        waits.reached(7)
        assert all(each.done() for each in kept)

    asyncio.run(run())


def test_thousands_of_producers_wait_and_only_those_that_are_due_are_touched() -> None:
    async def run() -> None:
        place, count = Marks(), 20_000
        offsets = [(number * 7919) % count + 1 for number in range(count)]
        waits = {offset: place.committed(offset) for offset in offsets}
        for mark in range(0, count + 1, 500):
            before = place.commit_count
            place.moved(mark, 1)
            assert before - place.commit_count == (500 if mark else 0)
        assert all(wait.done() and wait.exception() is None for wait in waits.values())
        left = [place.committed(count + 1) for _ in range(count)]
        place.end(GONE)
        assert all(wait.exception() is GONE for wait in left)
        assert place.commit_count == 0

    asyncio.run(run())


def test_thousands_of_readers_are_woken_once_and_forgotten() -> None:
    async def run() -> None:
        place, count = Marks(), 5000
        polls = [LongPoll(10 if number % 2 else 1 << 30) for number in range(count)]
        for poll in polls:
            poll.watch(place)
        waiting = [asyncio.ensure_future(poll.wait(600)) for poll in polls]
        await asyncio.sleep(0)
        for _ in range(10):
            place.moved(1, 1)
        await asyncio.wait(waiting[1::2])
        assert len(place.polls) == count // 2  # those that want more go on waiting
        assert not any(task.done() for task in waiting[::2])
        place.end(GONE)
        assert all(await asyncio.gather(*waiting))
        assert not place.polls

    asyncio.run(run())


# ---- readers --------------------------------------------------------------------------------------------


@given(
    missing=st.integers(1, 100),
    arrivals=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=10),
)
def test_a_poll_is_woken_once_enough_bytes_came_to_all_its_partitions_together(
    missing: int, arrivals: list[tuple[int, int]]
) -> None:
    async def run() -> None:
        places = [Marks(), Marks(), Marks()]  # the last of which is not watched
        poll = LongPoll(missing)
        poll.watch(places[0])
        poll.watch(places[1])
        waiting = asyncio.ensure_future(poll.wait(60))
        await asyncio.sleep(0)
        counted = 0
        for place, count in arrivals:
            places[place].moved(0, count)
            counted += count if place < 2 else 0
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert waiting.done() == (counted >= missing)
            if waiting.done():
                break
        if not waiting.done():
            waiting.cancel()
        else:
            assert waiting.result() is True
        await asyncio.gather(waiting, return_exceptions=True)
        assert not any(place.polls for place in places)

    asyncio.run(run())


def test_the_end_of_the_log_and_the_high_watermark_wake_apart() -> None:
    async def run() -> None:
        place = Marks()
        at_end, at_mark = LongPoll(5), LongPoll(5)
        at_end.watch_end(place)
        at_mark.watch(place)
        place.end_moved(5)
        assert (at_end.looks_again, at_mark.looks_again) == (True, False)
        place.moved(1, 4)
        assert not at_mark.looks_again
        place.moved(2, 1)
        assert at_mark.looks_again
        assert await at_end.wait(60)
        assert await at_mark.wait(60)
        assert not place.end_polls
        assert not place.polls

    asyncio.run(run())


@pytest.mark.parametrize("wake", [lambda place: place.end(GONE), Marks.wake_readers], ids=["end", "wake"])
def test_a_follower_that_waits_is_answered_when_the_leadership_ends(wake: Callable[[Marks], None]) -> None:
    async def run() -> None:
        place, poll = Marks(), LongPoll(5)
        poll.watch_end(place)
        wake(place)
        assert await poll.wait(60)
        assert not poll.looks_again

    asyncio.run(run())


def test_a_poll_that_gets_nothing_ends_with_its_time() -> None:
    async def run() -> None:
        place = Marks()
        poll = LongPoll(10)
        poll.watch(place)
        place.moved(1, 9)
        assert await poll.wait(0.01) is False
        assert not place.polls
        place.moved(2, 9)  # nobody is there to be woken

    asyncio.run(run())


@pytest.mark.parametrize("wake", [lambda place: place.end(GONE), Marks.wake_readers], ids=["end", "wake"])
def test_a_poll_looks_again_when_its_partition_ends(wake: Callable[[Marks], None]) -> None:
    async def run() -> None:
        place, other = Marks(), Marks()
        poll = LongPoll(1 << 30)
        poll.watch(place)
        poll.watch(other)
        asyncio.get_running_loop().call_soon(wake, place)
        assert await poll.wait(60) is True
        assert not place.polls
        assert not other.polls

    asyncio.run(run())


def test_data_that_came_before_the_wait_began_counts() -> None:
    async def run() -> None:
        place = Marks()
        poll = LongPoll(5)
        poll.watch(place)
        place.moved(1, 5)
        assert await poll.wait(60) is True

    asyncio.run(run())


def test_a_cancelled_poll_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        place = Marks()
        for at_once in (True, False):
            poll = LongPoll(5)
            poll.watch(place)
            waiting = asyncio.ensure_future(poll.wait(0))
            await asyncio.sleep(0 if at_once else 0.005)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert not place.polls

    asyncio.run(run())
    assert not caplog.records


# ---- through a broker -----------------------------------------------------------------------------------


def test_data_that_comes_between_the_look_and_the_wait_is_not_missed(broker: Broker) -> None:
    """One partition is empty when it is looked at, and gets a record while the next is being opened."""
    with RawClient(broker.port) as client:
        for topic in ("first", "second"):
            client.ask(metadata_request(topic), 9, MetadataResponse)
        client.ask(produce_request("first", [b"x"]), 9, ProduceResponse)
        replicas = broker.node.broker.replicas
        open_replica = replicas._open_replica

        async def append_meanwhile(topic: object, partition: int) -> object:
            (first,) = [replica for replica in replicas._leading.values() if replica.name == "first"]
            await first.append(memoryview(batch([b"meanwhile"])), all_in_sync=False)
            return await open_replica(topic, partition)  # type: ignore[arg-type]

        replicas._open_replica = append_meanwhile  # type: ignore[assignment, method-assign]
        request = fetch_request("first", offset=1, max_wait_ms=15_000)
        request.topics = [*request.topics, *fetch_request("second").topics]
        answer = client.ask(request, 12, FetchResponse)  # gives up sooner than the broker would
        records = [p.records for topic in answer.responses for p in topic.partitions if p.records]
        assert len(records) == 1
