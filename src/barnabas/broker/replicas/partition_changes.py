"""AlterPartition: the ISR changes that this node's leaders ask the active controller for.

All waiting changes go into one request. One request is in flight at a time, with at most one change of each
partition. A change stays pending at its leader until the metadata shows the outcome: until then the change
may have been made or not, and the leader must be prepared for both. The answer decides the next step:

    answer                                             the change
    NONE                                               is accepted: the metadata will have it
    INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED        is refused: the leader takes it back
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,      is out of date: later metadata is on its way
    FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION,
    INVALID_REQUEST, NEW_LEADER_ELECTED
    anything else, or no answer for the partition      is sent again

A request that fails as a whole is repeated after a pause, with the changes that wait by then. Changes of
leaderships or epochs that are over are dropped, and answers to them are ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from barnabas.broker.cluster.controller_channel import ControllerChannel
from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.clock import Clock
from barnabas.core.errors import WIRE_ERRORS, wire_error
from barnabas.metadata.parts import RECOVERED
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AskedPartition,
    AskedTopic,
    BrokerState,
    PartitionData,
)

logger = logging.getLogger("barnabas.replicas")

RETRY_S = 0.05
MAX_PARTITIONS = 1000  # in one request: the controller decides on all of them at once


def _codes(*names: str) -> frozenset[int]:
    return frozenset(wire_error(name).code for name in names)


_REFUSED = _codes("INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED")
_OUT_OF_DATE = _codes(
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "FENCED_LEADER_EPOCH",
    "INVALID_UPDATE_VERSION",
    "INVALID_REQUEST",
    "NEW_LEADER_ELECTED",
)


class Outcome(Enum):
    """The meaning of an answer to a change."""

    TAKEN = auto()
    REFUSED = auto()
    OUT_OF_DATE = auto()
    REPEATED = auto()


class Member(NamedTuple):
    """A member of the requested ISR, and the broker epoch of its last fetch."""

    node_id: int
    broker_epoch: int


class PartitionChange:
    """The ISR that a leader asks for. The leader sets `is_over` when later metadata has arrived."""

    __slots__ = (
        "answered",
        "is_over",
        "isr",
        "joining",
        "leader_epoch",
        "leaving",
        "partition",
        "partition_epoch",
        "topic_id",
    )

    def __init__(
        self,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[Member, ...],
        *,
        joining: tuple[int, ...] = (),
        leaving: tuple[int, ...] = (),
        answered: Callable[[PartitionChange, Outcome, int], None],
    ) -> None:
        """`answered` is called with every outcome, and with the partition epoch of an accepted change."""
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = isr
        self.joining = joining
        self.leaving = leaving
        self.answered = answered
        self.is_over = False


_Key = tuple[bytes, int]  # topic id and partition


class PartitionChanges:
    """The changes of one node. `broker_epoch` gives the epoch of its registration, `fail` ends the node."""

    def __init__(
        self,
        node_id: int,
        controller: ControllerChannel,
        clock: Clock,
        *,
        broker_epoch: Callable[[], int],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._clock = clock
        self.broker_epoch = broker_epoch
        self._fail = fail
        self._waiting: dict[_Key, PartitionChange] = {}
        self._sender: asyncio.Task[None] | None = None
        self._is_closed = False
        self._trouble = ""  # why the last request failed

    def submit(self, change: PartitionChange) -> None:
        """Send a change to the controller, together with the others that wait."""
        if self._is_closed:
            return
        self._waiting[change.topic_id, change.partition] = change
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_waiting())

    async def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._waiting.clear()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait((self._sender,))

    async def _send_waiting(self) -> None:
        try:
            while changes := self._take():
                again = await self._send(changes)
                for change in again:
                    # unless a change of a later epoch was submitted meanwhile
                    self._waiting.setdefault((change.topic_id, change.partition), change)
                if again:
                    await self._clock.sleep(RETRY_S)
        except Exception as error:  # noqa: BLE001 - nothing awaits this task
            self._fail(error)
        finally:
            self._sender = None

    def _take(self) -> list[PartitionChange]:
        taken: list[PartitionChange] = []
        while self._waiting and len(taken) < MAX_PARTITIONS:
            change = self._waiting.pop(next(iter(self._waiting)))
            if not change.is_over:
                taken.append(change)
        return taken

    async def _send(self, changes: list[PartitionChange]) -> list[PartitionChange]:
        """Send these changes; returns those to send again."""
        request = request_for(self._node_id, self.broker_epoch(), changes)
        try:
            response = await self._controller.send(request, AlterPartitionResponse)
        except NOT_COMMITTED as error:
            self._say(str(error))
            return changes
        self._say(_name(response.error_code) if response.error_code else "")
        if response.error_code:
            return changes
        answers = {
            (topic.topic_id, one.partition_index): one
            for topic in response.topics
            for one in topic.partitions
        }
        again = []
        for change in changes:
            answer = answers.get((change.topic_id, change.partition))
            outcome = outcome_of(answer)
            if change.is_over:
                continue
            change.answered(change, outcome, 0 if answer is None else answer.partition_epoch)
            if outcome is Outcome.REPEATED:
                again.append(change)
        return again

    def _say(self, trouble: str) -> None:
        """Log the first failure, and the first success after it."""
        if trouble and trouble != self._trouble:
            logger.warning("changes of in-sync replicas wait for the active controller: %s", trouble)
        elif self._trouble and not trouble:
            logger.info("changes of in-sync replicas: the active controller answers again")
        self._trouble = trouble


def request_for(node_id: int, broker_epoch: int, changes: list[PartitionChange]) -> AlterPartitionRequest:
    """One request for many changes. A leader counts as recovered from the start of its leadership."""
    topics: dict[bytes, list[AskedPartition]] = {}
    for change in changes:
        asked = AskedPartition(
            partition_index=change.partition,
            leader_epoch=change.leader_epoch,
            new_isr=[],
            new_isr_with_epochs=[
                BrokerState(broker_id=each.node_id, broker_epoch=each.broker_epoch) for each in change.isr
            ],
            leader_recovery_state=RECOVERED,
            partition_epoch=change.partition_epoch,
        )
        topics.setdefault(change.topic_id, []).append(asked)
    return AlterPartitionRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        topics=[AskedTopic(topic_id=topic_id, partitions=asked) for topic_id, asked in topics.items()],
    )


def outcome_of(answer: PartitionData | None) -> Outcome:
    """The outcome of an answer; None stands for no answer."""
    if answer is None:
        return Outcome.REPEATED
    code = answer.error_code
    if not code:
        return Outcome.TAKEN
    if code in _REFUSED:
        return Outcome.REFUSED
    return Outcome.OUT_OF_DATE if code in _OUT_OF_DATE else Outcome.REPEATED


def _name(error_code: int) -> str:
    known = WIRE_ERRORS.get(error_code)  # a newer controller may have other errors
    return f"error {error_code}" if known is None else known.name
