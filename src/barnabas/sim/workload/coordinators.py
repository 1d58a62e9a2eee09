"""Raw requests to coordinators, on the client's engine: a connection to whoever coordinates a key.

An answer is good, or an error by name. One that is lost leaves open whether it was done; a request whose
answer is not awaited any more may still arrive. An error that no client should ever get ends the
simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.coordinator_finder import CoordinatorFinder, CoordinatorType
from barnabas.client.errors import BrokerError, wire_error_of
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from barnabas.protocol.schema import EVERY_VERSION, Message, Struct
from barnabas.sim.group_events import CommittedSeen, Place
from barnabas.sim.workload.client import CLIENT, Client

M = TypeVar("M", bound=Message)

GROUP, TRANSACTION = CoordinatorType.GROUP, CoordinatorType.TRANSACTION
BY_NAME = 9  # the last version of OffsetCommit and OffsetFetch that calls topics by their names
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"
# after which a client looks for the coordinator anew
MOVED = frozenset(wire_error(name).code for name in ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"))
UNSTABLE_S, UNSTABLE_TRIES = 0.3, 60

# The broker cannot tell now; it may later.
TROUBLE = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "REQUEST_TIMED_OUT",
    "NOT_LEADER_OR_FOLLOWER",
    "KAFKA_STORAGE_ERROR",
    "NOT_ENOUGH_REPLICAS",
    "UNKNOWN_TOPIC_OR_PARTITION",
)
# What clients of groups and transactions may be told besides.
EXPECTED = frozenset(
    (
        *TROUBLE,
        "UNKNOWN_MEMBER_ID",
        "ILLEGAL_GENERATION",
        "REBALANCE_IN_PROGRESS",
        "MEMBER_ID_REQUIRED",
        "FENCED_INSTANCE_ID",
        "CONCURRENT_TRANSACTIONS",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "TRANSACTION_ABORTABLE",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        UNSTABLE,
    )
)


class Unexpected(RuntimeError):
    """An answer that no fault explains."""


class Refused(BarnabasError):
    """The broker said no; `error` is the name of what it said."""

    def __init__(self, doing: str, error: str) -> None:
        super().__init__(f"{doing}: {error}")
        self.error = error


def name_of(code: int, doing: str) -> str:
    """An error by name; "" for none."""
    name = wire_error_of(code).name if code else ""
    if name and name not in EXPECTED:
        raise Unexpected(f"{doing} was answered with {name}")
    return name


class Asking:
    """Whoever asks coordinators, as one client. `answered_by`: the node that gave the last answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.cluster = Cluster(*client.seams, CLIENT)
        self._finder = CoordinatorFinder(self.cluster.ask)
        self.answered_by = 0

    async def __aenter__(self) -> Asking:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cluster.close()

    async def ask(
        self,
        kind: CoordinatorType,
        key: str,
        request: Message,
        response: type[M],
        *,
        at_most: int = EVERY_VERSION,
        timeout_s: float | None = None,
    ) -> M:
        """Ask the coordinator of a group or a transactional id."""
        try:
            node = await self._find(kind, key)
            connection = await self.cluster.connect(node)
            answer = await connection.ask(request, response, at_most=at_most, timeout_s=timeout_s)
        except BarnabasError:
            self._finder.forget(kind, [key])
            raise
        if MOVED.intersection(_codes(answer)):
            self._finder.forget(kind, [key])
        self.answered_by = node
        return answer

    async def _find(self, kind: CoordinatorType, key: str) -> int:
        try:
            return await self._finder.find(kind, key)
        except BrokerError as error:
            name = name_of(error.error.code, f"looking for the coordinator of {key}")
            raise Refused(f"no coordinator of {key}", name) from error

    async def committed(
        self, group: str, places: Iterable[Place], *, is_stable: bool
    ) -> dict[Place, tuple[int, str]]:
        """What a group has committed, and the mark it was committed with; waits until it is stable."""
        client, wanted = self._client, _by_topic(places)
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in wanted.items()
        ]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=is_stable
        )
        for _ in range(UNSTABLE_TRIES):
            asked_at = client.now
            answer = await self.ask(GROUP, group, request, OffsetFetchResponse, at_most=BY_NAME)
            found, error = _found(group, answer.groups[0])
            if not error:
                for place, (offset, mark) in found.items():
                    who, node = (client.name, group), self.answered_by
                    seen = CommittedSeen(client.now, asked_at, *who, *place, offset, mark, is_stable, node)
                    client.history.add(seen)
                return found
            if error != UNSTABLE:
                break
            await client.clock.sleep(UNSTABLE_S)
        raise Refused(f"no offsets of {group}", error)


def _codes(answer: Struct) -> Iterator[int]:
    """All error codes of an answer."""
    for name, value in vars(answer).items():
        if name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Struct):
                yield from _codes(each)


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    wanted: dict[str, list[int]] = {}
    for topic, partition in places:
        wanted.setdefault(topic, []).append(partition)
    return wanted


def _found(group: str, answer: OffsetFetchResponseGroup) -> tuple[dict[Place, tuple[int, str]], str]:
    """The offsets and their marks, and the first error."""
    error = name_of(answer.error_code, f"the offsets of {group}")
    found: dict[Place, tuple[int, str]] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            error = error or name_of(each.error_code, f"the offset of {topic.name}-{each.partition_index}")
            found[topic.name, each.partition_index] = each.committed_offset, each.metadata or ""
    return found, error
