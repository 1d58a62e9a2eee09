"""One play for transactional producers, given to a broker by raw requests; what it answers is written down.

Producer ids are a broker's own, so they are told by when they first appeared; times are there or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.support.raw_client import RawClient, wait_until

TOPIC = "played"  # of two partitions
Producer = tuple[int, int]  # as the broker knows it
NOBODY = (-1, -1)
UNKNOWN = (987_654_321, 0)


class Play:
    """The requests, by name; each notes what came back."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self.notes: list[str] = []
        self._ids: dict[int, int] = {-1: -1, UNKNOWN[0]: UNKNOWN[0], 0: 0}

    def alias(self, producer_id: int) -> int:
        return self._ids.setdefault(producer_id, len(self._ids))

    def _note(self, what: str, *told: Any) -> str:
        self.notes.append(f"{what}: {' '.join(map(str, told))}")
        return self.notes[-1]

    def init(
        self,
        name: str | None,
        expected: Producer = NOBODY,
        *,
        version: int = 5,
        timeout_ms: int = 60_000,
    ) -> Producer:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        answer = self._client.ask(request, version, InitProducerIdResponse)
        told = error(answer.error_code), self.alias(answer.producer_id), answer.producer_epoch
        self._note(f"init {name} {self.alias(expected[0])}/{expected[1]} v{version} {timeout_ms}", *told)
        return answer.producer_id, answer.producer_epoch

    def add(
        self,
        name: str,
        producer: Producer,
        places: Sequence[tuple[str, int]] = ((TOPIC, 0),),
        *,
        version: int = 5,
        verify_only: bool = False,
    ) -> None:
        topics = [
            AddPartitionsToTxnTopic(name=topic, partitions=[one]) for topic, one in dict(places).items()
        ]
        one = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=verify_only,
            topics=topics,
        )
        request = AddPartitionsToTxnRequest(
            transactions=[one],
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )
        answer = self._client.ask(request, version, AddPartitionsToTxnResponse)
        results = answer.results_by_topic_v3_and_below
        if version > 3:
            assert [result.transactional_id for result in answer.results_by_transaction] == [name]
            results = answer.results_by_transaction[0].topic_results
        told = sorted(
            f"{topic.name}-{one.partition_index}={error(one.partition_error_code)}"
            for topic in results
            for one in topic.results_by_partition
        )
        what = "verify" if verify_only else "add"
        self._note(f"{what} {name} {producer[1]} v{version}", error(answer.error_code), *told)

    def add_offsets(self, name: str, producer: Producer, *, version: int = 4) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id="group"
        )
        answer = self._client.ask(request, version, AddOffsetsToTxnResponse)
        self._note(f"offsets {name} {producer[1]} v{version}", error(answer.error_code))

    def end(
        self,
        name: str,
        producer: Producer,
        *,
        commit: bool = True,
        version: int = 5,
        patience_s: float = 60.0,
    ) -> Producer:
        """It is waited for until the markers are written."""
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        answer = self._client.ask(request, version, EndTxnResponse)
        told = error(answer.error_code), self.alias(answer.producer_id), answer.producer_epoch
        self._note(f"end {name} {producer[1]} {commit} v{version}", *told)
        self.settle(name, patience_s)
        return answer.producer_id, answer.producer_epoch

    def settle(self, name: str, patience_s: float = 60.0) -> None:
        """Until nothing is on its way, and how it stands then."""
        wait_until(lambda: not self._is_prepared(name), "the markers", patience_s)
        self.describe(name)

    def _is_prepared(self, name: str) -> bool:
        return bool(self._state(name).transaction_state.startswith("Prepare"))

    def until(self, name: str, state: str) -> None:
        wait_until(lambda: self._state(name).transaction_state == state, state)
        self.describe(name)

    def _state(self, name: str) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        return self._client.ask(request, 0, DescribeTransactionsResponse).transaction_states[0]

    def describe(self, name: str) -> str:
        state = self._state(name)
        topics = sorted((topic.topic, sorted(topic.partitions)) for topic in state.topics)
        return self._note(
            f"describe {name}",
            error(state.error_code),
            state.transactional_id,
            state.transaction_state,
            state.transaction_timeout_ms,
            min(state.transaction_start_time_ms, 1),
            self.alias(state.producer_id),
            state.producer_epoch,
            topics,
        )

    def list(
        self,
        *states: str,
        producers: Sequence[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
        version: int = 2,
    ) -> None:
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producers),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        answer = self._client.ask(request, version, ListTransactionsResponse)
        found = sorted(
            (one.transactional_id, self.alias(one.producer_id), one.transaction_state)
            for one in answer.transaction_states
        )
        asked = [*states, *map(self.alias, producers), duration_ms, pattern]
        unknown = sorted(answer.unknown_state_filters)
        self._note(f"list {asked} v{version}", error(answer.error_code), unknown, found)


def error(code: int) -> str:
    return WIRE_ERRORS[code].name


def perform(play: Play) -> None:
    """The whole of it."""
    _beginnings(play)
    _old_clients(play, "old")
    _new_clients(play)
    _replaced(play, "replaced", version=5)
    _late(play)
    _looks(play)


def perform_old(play: Play, level: int) -> None:
    """What there is of it where the cluster is on an older version of transactions."""
    _old_clients(play, f"old-{level}")
    _replaced(play, f"replaced-{level}", version=3)
    first = play.init(f"late-{level}", timeout_ms=10)
    play.add(f"late-{level}", first, version=0)
    play.until(f"late-{level}", "CompleteAbort")
    play.end(f"late-{level}", first, version=1)
    play.init(f"late-{level}", first)
    play.init(f"late-{level}")


def _beginnings(play: Play) -> None:
    play.init("")
    for timeout_ms in (0, -1, 900_001):
        play.init("a", timeout_ms=timeout_ms)
    play.init("a", (7, -1))
    play.init("a", (-1, 7))
    play.add("nobody", UNKNOWN)
    play.add("nobody", UNKNOWN, version=0)
    play.add("nobody", UNKNOWN, verify_only=True)
    play.add("", UNKNOWN)
    play.add("", UNKNOWN, version=3)
    play.add_offsets("nobody", UNKNOWN)
    play.add_offsets("", UNKNOWN)
    play.end("", UNKNOWN)
    for version in range(6):
        play.end("nobody", UNKNOWN, version=version)
        play.init(f"v{version}", version=version)
        play.init(f"v{version}", version=version)
    play.init("unknown", UNKNOWN)  # which is a new name here


def _old_clients(play: Play, name: str) -> None:
    first = play.init(name, version=4)
    play.describe(name)
    play.end(name, first, version=1)
    play.end(name, first, version=1, commit=False)
    play.add(name, first, [(TOPIC, 0), ("missing", 0)], version=0)
    play.add(name, first, [(TOPIC, 2)], version=0)
    for version in range(4):
        play.add(name, first, version=version)
        play.add(name, (first[0], 1), version=version)
    play.add(name, UNKNOWN, version=0)
    play.add(name, first, verify_only=True)
    play.add(name, first, [(TOPIC, 1)], version=4, verify_only=True)
    play.add_offsets(name, first, version=3)
    play.add_offsets(name, (first[0], 1), version=1)
    play.add_offsets(name, (first[0], 1), version=2)
    play.describe(name)
    for version in range(5):
        play.end(name, (first[0], 1), version=version)
    play.end(name, first, version=1)
    play.end(name, first, version=4)
    play.end(name, first, version=1, commit=False)
    play.add(name, first, [(TOPIC, 1)], version=0)
    play.end(name, first, version=1, commit=False)
    play.end(name, first, version=1)


def _new_clients(play: Play) -> None:
    first = play.init("new")
    play.end("new", first)
    second = play.end("new", first, commit=False)
    play.end("new", first, commit=False)
    play.end("new", first)
    play.add("new", first)
    play.add("new", second)
    play.add("new", second, verify_only=True)
    play.end("new", first)
    play.end("new", (second[0], second[1] + 1))
    third = play.end("new", second)
    play.end("new", second)
    play.end("new", second, commit=False)
    play.end("new", third)
    play.add("new", third, [(TOPIC, 1)], version=4)
    play.describe("new")
    fourth = play.end("new", third, commit=False)
    play.add("new", fourth, version=3)  # an old client again
    play.end("new", fourth, version=4)
    play.end("new", fourth, commit=False)


def _replaced(play: Play, name: str, version: int) -> None:
    first = play.init(name)
    second = play.init(name, first)
    play.init(name, first)
    play.init(name, UNKNOWN)
    third = play.init(name, timeout_ms=1234)
    play.init(name, second)
    play.init(name, second, version=3)
    play.add(name, third, version=version)
    play.init(name)
    play.settle(name)
    play.end(name, third, commit=False, version=min(version, 5))
    fourth = play.init(name)
    play.add(name, fourth, version=version)
    play.init(name, fourth)
    play.settle(name)
    play.init(name, fourth)
    play.settle(name)


def _late(play: Play) -> None:
    first = play.init("late", timeout_ms=10)
    play.add("late", first)
    play.until("late", "CompleteAbort")
    play.add("late", first)
    play.end("late", first)
    second = play.end("late", first, commit=False)
    play.add("late", second, version=3)
    play.until("late", "CompleteAbort")
    play.end("late", second, version=2)
    play.init("late")


def _looks(play: Play) -> None:
    open_now = play.init("open")
    play.add("open", open_now)
    play.describe("nobody")
    play.describe("")
    for version in range(3):
        play.list(version=version)
    play.list("Ongoing")
    play.list("CompleteCommit", "CompleteAbort", "Whatever", "PrepareEpochFence", "Dead")
    play.list("whatever")
    play.list(producers=[open_now[0], UNKNOWN[0]])
    play.list(duration_ms=3_600_000)
    play.list(duration_ms=0, version=1)
    play.list(pattern="o.*")
    play.list("Ongoing", pattern="v\\d|open")
    play.list(pattern="o")
    play.list(pattern="")
    play.list(pattern="((")
