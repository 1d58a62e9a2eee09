"""Fetch sessions (KIP-227): a client of many partitions names only what changed, and so does the response.

A session remembers the partitions that its client asked for and the last answer for each of them. Its epoch
counts the requests, so that a lost or repeated request is noticed; after 2^31 - 1 comes 1. Epoch 0 begins a
session with all partitions that the client wants, epoch -1 fetches without a session; both end the session
they name.

Partitions are served in the order of the session. A partition that had records goes to the end, so that no
partition starves under the response's limit. A session knows its topics either by id (version 13 on) or by
name. An id without a topic stays in the session, since the metadata of its topic may not have arrived yet. A
session by ids remembers the names of its topics too. So a topic that was deleted is answered as an unknown
topic, one that was created again as an inconsistent id, and an id that was never known as an unknown id.

Sessions are kept in the order of their last use, up to a number of slots. When all slots are taken, a session
is evicted if it was not used for two minutes, or if it is worth less than the new one: followers are worth
more than consumers, more partitions more than fewer. A consumer's session evicts only sessions that have
lived for two minutes; a follower's session evicts any consumer's as well. Without a free slot, a client is
served without a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.replicas.follower_reads import FollowerReads
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.random import Random
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.schema import Uuid
from barnabas.protocol.wire import size_of

if TYPE_CHECKING:
    from barnabas.broker.replicas.follower_reads import Resting
    from barnabas.broker.replicas.purgatory import LongPoll
    from barnabas.broker.replicas.replica import Replica

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_NUMBER = 2**31 - 1
FIRST_VERSION_WITH_IDS = 13
SAFE_SECONDS = 120  # a younger session is safe; one that is unused for longer may be evicted

_NOT_TOLD = -1

# A topic's id or name, and the partition
_Key = tuple[Uuid | str, int]
# The name of the topic with an id; empty where there is none
NameOf = Callable[[Uuid], str]


def _no_name(_topic_id: Uuid) -> str:
    return ""


class FetchSessionIdNotFound(BarnabasError):
    """The session does not exist, or was evicted."""

    wire = wire_error("FETCH_SESSION_ID_NOT_FOUND")


class InvalidFetchSessionEpoch(BarnabasError):
    """A request of the session was lost, or came twice."""

    wire = wire_error("INVALID_FETCH_SESSION_EPOCH")


class FetchSessionTopicIdError(BarnabasError):
    """A session that began with names goes on with ids, or the other way round."""

    wire = wire_error("FETCH_SESSION_TOPIC_ID_ERROR")


class Want(NamedTuple):
    """A partition to read, by id or by name depending on the version (the other is empty)."""

    topic: str
    topic_id: Uuid
    ask: FetchPartition
    # the name of the topic that had this id when the partition was first asked for, if there was one
    name_of_id: str = ""


class FetchContext:
    """The partitions that one request reads, and its response. This class serves requests without a
    session."""

    __slots__ = ("wants",)

    def __init__(self, wants: list[Want]) -> None:
        self.wants = wants

    has_more = False  # whether more partitions are due to be read than at the last `look`

    @property
    def asks_for_something(self) -> bool:
        """Whether the request names any partition."""
        return bool(self.wants)

    def asked(self, now: float, registration: object) -> None:
        """Called when a follower's request arrives; `registration` is its broker's registration in the
        metadata."""

    def answered(self, replicas: list[Replica | None]) -> None:
        """Called with the replicas that the response was made from; None for a partition answered with an
        error."""

    def waiting(self, poll: LongPoll) -> AbstractContextManager[None]:
        """A context that is open while the request waits."""
        return nullcontext()

    def look(self) -> list[Want]:
        """The partitions to read now; they become `wants`."""
        return self.wants

    def respond(self, results: list[PartitionData], throttle_time_ms: int = 0) -> FetchResponse:
        """The response, given a result for each of `wants`."""
        return _response(NO_SESSION, zip(self.wants, results, strict=True), throttle_time_ms)


class _FullContext(FetchContext):
    """A request that names all its partitions; it begins a session if a slot is free."""

    __slots__ = ("_by_id", "_follower_id", "_sessions")

    def __init__(self, sessions: FetchSessions, wants: list[Want], *, by_id: bool, follower_id: int) -> None:
        self.wants = wants
        self._sessions = sessions
        self._by_id = by_id
        self._follower_id = follower_id  # negative for a client

    def respond(self, results: list[PartitionData], throttle_time_ms: int = 0) -> FetchResponse:
        session_id = NO_SESSION
        is_follower = self._follower_id >= 0
        session = self._sessions.new(len(results), by_id=self._by_id, is_follower=is_follower)
        if session is not None:
            session_id = session.id
            if is_follower:
                session.reads = FollowerReads(self._follower_id)
            for want, result in zip(self.wants, results, strict=True):
                known = session.add(want)
                known.has_news(result)
        return _response(session_id, zip(self.wants, results, strict=True), throttle_time_ms)


class _IncrementalContext(FetchContext):
    """A request for the whole session; partitions without news are left out of the response."""

    __slots__ = ("_epoch", "_known", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._epoch = session.epoch
        self._known = list(session.partitions.values())
        self.wants = [known.want for known in self._known]

    def respond(self, results: list[PartitionData], throttle_time_ms: int = 0) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:
            # the client sent another request without waiting: the session no longer knows its state
            code = InvalidFetchSessionEpoch.wire.code
            return _response(session.id, (), throttle_time_ms, code)
        news = []
        for known, result in zip(self._known, results, strict=True):
            if known.has_news(result):
                news.append((known.want, result))
                if _has_records(result):
                    session.move_to_end(known)
        return _response(session.id, news, throttle_time_ms)


class _FollowerContext(_IncrementalContext):
    """A follower's request for the whole session: only partitions with possible news are read
    (`follower_reads`)."""

    __slots__ = ("reads",)

    def __init__(self, session: Session, reads: FollowerReads) -> None:
        self._session = session
        self._epoch = session.epoch
        self.reads = reads
        self._known = []
        self.wants = []

    @property
    def asks_for_something(self) -> bool:
        return True

    @property
    def has_more(self) -> bool:  # type: ignore[override]
        return len(self.reads.due) > len(self._known)

    def asked(self, now: float, registration: object) -> None:
        self.reads.asked(now, registration, self._session.partitions.values())

    def look(self) -> list[Want]:
        self._known = list(self.reads.due)
        self.wants = [known.want for known in self._known]
        return self.wants

    def waiting(self, poll: LongPoll) -> AbstractContextManager[None]:
        return self.reads.waiting(poll)

    def answered(self, replicas: list[Replica | None]) -> None:
        if self._session.epoch == self._epoch:
            for known, replica in zip(self._known, replicas, strict=True):
                self.reads.told(known, replica)


class Known:
    """A partition of a session: the client's request for it, and the last answer."""

    __slots__ = ("high_watermark", "log_start_offset", "resting", "want")

    def __init__(self, want: Want) -> None:
        self.want = want
        self.resting: Resting | None = None
        self.high_watermark = _NOT_TOLD
        self.log_start_offset = _NOT_TOLD

    def has_news(self, result: PartitionData) -> bool:
        """Whether the response must contain the partition; remembers the result as the last answer."""
        if (
            result.high_watermark == self.high_watermark
            and result.log_start_offset == self.log_start_offset
            and not result.error_code
            and result.preferred_read_replica < 0
            and result.diverging_epoch is None
        ):
            return _has_records(result)
        self.log_start_offset = result.log_start_offset
        # after an error, the next answer without one must be sent
        self.high_watermark = _NOT_TOLD if result.error_code else result.high_watermark
        return True


class Session:
    """One client's partitions, in the order in which they are served."""

    __slots__ = (
        "_has_unknown_ids",
        "by_id",
        "created",
        "epoch",
        "id",
        "is_follower",
        "last_used",
        "partitions",
        "reads",
    )

    def __init__(self, session_id: int, now: float, *, by_id: bool, is_follower: bool) -> None:
        self.id = session_id
        self.by_id = by_id
        self.is_follower = is_follower
        self.created = self.last_used = now
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[_Key, Known] = {}
        self._has_unknown_ids = False
        self.reads: FollowerReads | None = None  # of a follower

    @property
    def worth(self) -> tuple[bool, int, int]:
        return self.is_follower, len(self.partitions), self.id

    def add(self, want: Want) -> Known:
        """Add a partition, or replace the request for it."""
        key = self._key(want.topic, want.topic_id, want.ask.partition)
        known = self.partitions.get(key)
        if known is None:
            known = self.partitions[key] = Known(want)
        elif known.want.name_of_id:
            known.want = want._replace(name_of_id=known.want.name_of_id)
        else:
            known.want = want
        if self.by_id and not known.want.name_of_id:
            self._has_unknown_ids = True
        if self.reads is not None:
            self.reads.named(known)
        return known

    def update(self, request: FetchRequest, name_of: NameOf) -> None:
        """Apply the changes that a request names: other positions, added and forgotten partitions."""
        if self._has_unknown_ids:
            self._resolve(name_of)
        for want in _wants(request, name_of if self.by_id else None):
            self.add(want)
        for gone in request.forgotten_topics_data:
            for partition in gone.partitions:
                known = self.partitions.pop(self._key(gone.topic, gone.topic_id, partition), None)
                if known is not None and self.reads is not None:
                    self.reads.forget(known)

    def _resolve(self, name_of: NameOf) -> None:
        """Look again for topics whose ids were not known when the client named them."""
        self._has_unknown_ids = False
        for known in self.partitions.values():
            if not known.want.name_of_id:
                known.want = known.want._replace(name_of_id=name_of(known.want.topic_id))
                if not known.want.name_of_id:
                    self._has_unknown_ids = True

    def move_to_end(self, known: Known) -> None:
        want = known.want
        key = self._key(want.topic, want.topic_id, want.ask.partition)
        self.partitions[key] = self.partitions.pop(key)
        if self.reads is not None:
            self.reads.read_last(known)

    def _key(self, topic: str, topic_id: Uuid, partition: int) -> _Key:
        return (topic_id if self.by_id else topic), partition


class FetchSessions:
    """All fetch sessions of a node."""

    __slots__ = ("_clock", "_max_slots", "_random", "_sessions")

    def __init__(self, clock: Clock, random: Random, max_slots: int) -> None:
        self._clock = clock
        self._random = random
        self._max_slots = max_slots
        self._sessions: dict[int, Session] = {}  # the least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(self, request: FetchRequest, version: int, name_of: NameOf = _no_name) -> FetchContext:
        """The context of a request. A session error is raised, and answered without any partition."""
        epoch = request.session_epoch
        by_id = version >= FIRST_VERSION_WITH_IDS
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            wants = _wants(request, name_of if by_id else None)
            if epoch == FINAL_EPOCH:
                return FetchContext(wants)
            return _FullContext(self, wants, by_id=by_id, follower_id=_replica_id(request))
        session = self._find(request.session_id, epoch, by_id=by_id)
        session.update(request, name_of)
        session.epoch = next_epoch(epoch)
        if not session.partitions:
            del self._sessions[session.id]
            return FetchContext(_wants(request, None))
        self._touch(session)
        if session.reads is not None:
            return _FollowerContext(session, session.reads)
        return _IncrementalContext(session)

    def new(self, size: int, *, by_id: bool, is_follower: bool) -> Session | None:
        """A new session with `size` partitions, or None if no slot is free."""
        now = self._clock.monotonic()
        if len(self._sessions) >= self._max_slots and not self._make_room(size, now, is_follower=is_follower):
            return None
        session_id = self._random.below(MAX_NUMBER) + 1
        while session_id in self._sessions:
            session_id = self._random.below(MAX_NUMBER) + 1
        session = self._sessions[session_id] = Session(session_id, now, by_id=by_id, is_follower=is_follower)
        return session

    def _find(self, session_id: int, epoch: int, *, by_id: bool) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}"
            )
        if session.by_id is not by_id:
            raise FetchSessionTopicIdError(
                f"fetch session {session_id} began with topic {'ids' if session.by_id else 'names'}"
            )
        return session

    def _touch(self, session: Session) -> None:
        session.last_used = self._clock.monotonic()
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _make_room(self, size: int, now: float, *, is_follower: bool) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.last_used > SAFE_SECONDS:
            del self._sessions[oldest.id]
            return True
        evictable = [each for each in self._sessions.values() if _may_go(each, for_follower=is_follower)]
        least = min(evictable, key=lambda each: each.worth, default=None)
        if least is None or (is_follower, size, NO_SESSION) < least.worth:
            return False
        del self._sessions[least.id]
        return True


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows."""
    return 1 if epoch == MAX_NUMBER else epoch + 1


def _may_go(session: Session, *, for_follower: bool) -> bool:
    if for_follower and not session.is_follower:
        return True
    # up to its last use: idle time does not count
    return session.last_used - session.created > SAFE_SECONDS


def _wants(request: FetchRequest, name_of: NameOf | None) -> list[Want]:
    wants = []
    for topic in request.topics:
        name_of_id = "" if name_of is None else name_of(topic.topic_id)
        wants += [Want(topic.topic, topic.topic_id, ask, name_of_id) for ask in topic.partitions]
    return wants


def _replica_id(request: FetchRequest) -> int:
    state = request.replica_state
    return request.replica_id if state is None else state.replica_id


def _has_records(result: PartitionData) -> bool:
    records = result.records
    return records is not None and size_of(records) > 0


def _response(
    session_id: int,
    found: Iterable[tuple[Want, PartitionData]],
    throttle_time_ms: int,
    error_code: int = 0,
) -> FetchResponse:
    """The response. Adjacent partitions of one topic are grouped, which keeps the order."""
    topics: list[FetchableTopicResponse] = []
    partitions: list[PartitionData] = []
    name: str | None = None
    topic_id: Uuid | None = None
    for want, result in found:
        if want.topic != name or want.topic_id != topic_id:
            name, topic_id, partitions = want.topic, want.topic_id, []
            topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions))
        partitions.append(result)
    return FetchResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        session_id=session_id,
        responses=topics,
        node_endpoints=[],
    )
