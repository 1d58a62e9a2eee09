"""AlterPartition as a node sends it: many changes a request, one request at a time, and what answers mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from barnabas.broker.connections.requests import RequestContext
from barnabas.broker.replicas import partition_changes
from barnabas.broker.replicas.partition_changes import Member, Outcome, PartitionChange, PartitionChanges
from barnabas.controller.decisions import ControllerNotAnswering
from barnabas.core.clock import ManualClock
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from barnabas.protocol.schema import Message
from tests.broker.test_replicas import until

M = TypeVar("M", bound=Message)
TOPIC, OTHER_TOPIC = bytes(15) + b"\x01", bytes(15) + b"\x02"


class Controller:
    """A controller whose answers the test gives, one after another; by default every change is taken."""

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: dict[tuple[bytes, int], str] = {}  # what single partitions are answered, once
        self.forgotten: set[int] = set()  # partitions that are left out of the next answer
        self.whole: list[str | BarnabasError] = []  # what whole requests come to, before others are answered

    async def send(
        self,
        request: Message,
        response: type[M],
        context: RequestContext | None = None,
        *,
        timeout_s: float | None = None,
    ) -> M:
        assert isinstance(request, AlterPartitionRequest)
        self.requests.append(decode(AlterPartitionRequest, 3, memoryview(encode(request, 3)), 0))
        await self.gate.wait()
        answer = self._answer(request)
        assert isinstance(answer, response)
        return answer

    def _answer(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self.whole:
            error = self.whole.pop(0)
            if isinstance(error, BarnabasError):
                raise error
            return AlterPartitionResponse(throttle_time_ms=0, error_code=wire_error(error).code, topics=[])
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                error = self.errors.pop((topic.topic_id, each.partition_index), "NONE")
                if each.partition_index not in self.forgotten:
                    answers.append(
                        PartitionData(
                            partition_index=each.partition_index,
                            error_code=wire_error(error).code,
                            leader_id=1,
                            leader_epoch=each.leader_epoch,
                            isr=[],
                            partition_epoch=each.partition_epoch + 1,
                        )
                    )
            topics.append(TopicData(topic_id=topic.topic_id, partitions=answers))
        self.forgotten.clear()
        return AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics)


class Asker:
    """The changes of a node, and what was answered of them."""

    def __init__(self) -> None:
        self.controller = Controller()
        self.clock = ManualClock()
        self.broker_epoch = 70
        self.failures: list[BaseException] = []
        self.changes = PartitionChanges(
            1, self.controller, self.clock, broker_epoch=lambda: self.broker_epoch, fail=self.failures.append
        )
        self.answers: list[tuple[int, Outcome, int]] = []

    def ask(self, partition: int, topic_id: bytes = TOPIC, epoch: int = 5) -> PartitionChange:
        change = PartitionChange(
            topic_id,
            partition,
            4,
            epoch,
            (Member(1, 70), Member(2, -1)),
            joining=(2,),
            answered=self._answered,
        )
        self.changes.submit(change)
        return change

    def _answered(self, change: PartitionChange, outcome: Outcome, partition_epoch: int) -> None:
        self.answers.append((change.partition, outcome, partition_epoch))

    @property
    def asked(self) -> list[list[int]]:
        """The partitions of each request."""
        return [
            [each.partition_index for topic in request.topics for each in topic.partitions]
            for request in self.controller.requests
        ]


def asking(work: Callable[[Asker], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        asker = Asker()
        await work(asker)
        await asker.changes.close()
        assert not asker.failures

    asyncio.run(run())


async def retried(asker: Asker, count: int) -> None:
    """Wait for that many requests, and let the pauses in between pass."""
    for _ in range(1000):
        if len(asker.controller.requests) >= count:
            return
        await asyncio.sleep(0)
        asker.clock.advance(partition_changes.RETRY_S)
    raise AssertionError(f"{len(asker.controller.requests)} requests")


def test_all_changes_that_wait_go_in_one_request() -> None:
    async def work(asker: Asker) -> None:
        for partition in (0, 1):
            asker.ask(partition)
        asker.ask(0, OTHER_TOPIC)
        await until(lambda: len(asker.answers) == 3)
        (request,) = asker.controller.requests
        assert (request.broker_id, request.broker_epoch) == (1, 70)
        assert [(topic.topic_id, len(topic.partitions)) for topic in request.topics] == [
            (TOPIC, 2),
            (OTHER_TOPIC, 1),
        ]
        first = request.topics[0].partitions[0]
        assert (first.leader_epoch, first.partition_epoch, first.leader_recovery_state) == (4, 5, 0)
        members = [(each.broker_id, each.broker_epoch) for each in first.new_isr_with_epochs]
        assert members == [(1, 70), (2, -1)]
        assert asker.answers == [(0, Outcome.TAKEN, 6), (1, Outcome.TAKEN, 6), (0, Outcome.TAKEN, 6)]

    asking(work)


def test_one_request_is_under_way_at_a_time() -> None:
    async def work(asker: Asker) -> None:
        asker.controller.gate.clear()
        asker.ask(0)
        await until(lambda: asker.controller.requests)
        for partition in (1, 2, 3):
            asker.ask(partition)
            await asyncio.sleep(0)
        assert asker.asked == [[0]]
        asker.controller.gate.set()
        await until(lambda: len(asker.answers) == 4)
        assert asker.asked == [[0], [1, 2, 3]]

    asking(work)


def test_a_request_does_not_grow_without_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_changes, "MAX_PARTITIONS", 2)

    async def work(asker: Asker) -> None:
        for partition in range(5):
            asker.ask(partition)
        await until(lambda: len(asker.answers) == 5)
        assert asker.asked == [[0, 1], [2, 3], [4]]

    asking(work)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("INELIGIBLE_REPLICA", Outcome.REFUSED),
        ("OPERATION_NOT_ATTEMPTED", Outcome.REFUSED),
        ("UNKNOWN_TOPIC_OR_PARTITION", Outcome.OUT_OF_DATE),
        ("UNKNOWN_TOPIC_ID", Outcome.OUT_OF_DATE),
        ("FENCED_LEADER_EPOCH", Outcome.OUT_OF_DATE),
        ("INVALID_UPDATE_VERSION", Outcome.OUT_OF_DATE),
        ("INVALID_REQUEST", Outcome.OUT_OF_DATE),
        ("NEW_LEADER_ELECTED", Outcome.OUT_OF_DATE),
    ],
)
def test_what_an_error_of_a_partition_means(error: str, outcome: Outcome) -> None:
    async def work(asker: Asker) -> None:
        asker.controller.errors[TOPIC, 1] = error
        for partition in (0, 1):
            asker.ask(partition)
        await until(lambda: len(asker.answers) == 2)
        assert [each[:2] for each in asker.answers] == [(0, Outcome.TAKEN), (1, outcome)]
        for _ in range(10):
            await asyncio.sleep(0)
            asker.clock.advance(1)
        assert asker.asked == [[0, 1]]

    asking(work)


@pytest.mark.parametrize("error", ["UNKNOWN_SERVER_ERROR", "NOT_CONTROLLER", "REQUEST_TIMED_OUT", ""])
def test_what_is_not_decided_is_asked_for_again(error: str) -> None:
    """ "" stands for an answer that leaves the partition out."""

    async def work(asker: Asker) -> None:
        if error:
            asker.controller.errors[TOPIC, 1] = error
        else:
            asker.controller.forgotten.add(1)
        for partition in (0, 1):
            asker.ask(partition)
        await until(lambda: len(asker.answers) == 2)
        asker.ask(2)  # goes along
        await retried(asker, 2)
        await until(lambda: len(asker.answers) == 4)
        assert sorted(asker.asked[1]) == [1, 2]
        assert (1, Outcome.REPEATED) in [each[:2] for each in asker.answers]

    asking(work)


@pytest.mark.parametrize(
    "error", ["STALE_BROKER_EPOCH", "CLUSTER_AUTHORIZATION_FAILED", ControllerNotAnswering("nobody")]
)
def test_a_request_that_comes_to_nothing_is_repeated(
    error: str | BarnabasError, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(asker: Asker) -> None:
        asker.controller.whole += [error, error]
        asker.ask(0)
        await retried(asker, 2)
        asker.broker_epoch = 71
        asker.ask(1)
        await retried(asker, 3)
        await until(lambda: len(asker.answers) == 2)
        assert [sorted(each) for each in asker.asked] == [[0], [0], [0, 1]]
        assert [each.broker_epoch for each in asker.controller.requests] == [70, 70, 71]

    asking(work)
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1


def test_changes_that_are_over_are_not_asked_for_and_not_answered() -> None:
    async def work(asker: Asker) -> None:
        asker.controller.gate.clear()
        first = asker.ask(0)
        await until(lambda: asker.controller.requests)
        first.is_over = asker.ask(1).is_over = True
        asker.ask(0, epoch=6)
        asker.controller.gate.set()
        await until(lambda: asker.answers)
        assert asker.asked == [[0], [0]]
        assert asker.answers == [(0, Outcome.TAKEN, 7)]

    asking(work)


def test_a_later_change_is_not_replaced_by_one_that_is_repeated() -> None:
    async def work(asker: Asker) -> None:
        asker.controller.gate.clear()
        asker.controller.whole.append("STALE_BROKER_EPOCH")
        first = asker.ask(0)
        await until(lambda: asker.controller.requests)
        first.is_over = True
        asker.ask(0, epoch=6)
        asker.controller.gate.set()
        await retried(asker, 2)
        await until(lambda: asker.answers)
        assert asker.answers == [(0, Outcome.TAKEN, 7)]

    asking(work)


def test_nothing_is_sent_after_the_end() -> None:
    async def work(asker: Asker) -> None:
        asker.controller.gate.clear()
        asker.ask(0)
        await until(lambda: asker.controller.requests)
        await asker.changes.close()
        asker.ask(1)
        asker.controller.gate.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (asker.asked, asker.answers) == ([[0]], [])

    asking(work)


def test_an_unexpected_error_ends_the_node() -> None:
    async def work(asker: Asker) -> None:
        asker.controller.whole.append(BarnabasError("not one of those that are expected"))
        asker.ask(0)
        await until(lambda: asker.failures)
        asker.failures.clear()

    asking(work)
