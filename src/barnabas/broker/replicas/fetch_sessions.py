"""Fetch sessions (KIP-227): a client of many partitions names only what changed, and so does the answer.

A session remembers what its client asks for and what it was last told of each partition. Its epoch counts the
requests, so that one that was lost or repeated is noticed; after 2^31 - 1 comes 1. Epoch 0 begins a session
with everything the client wants, epoch -1 asks without one; both end the session they name.

Partitions are served in the order of the session, and one that had records goes to the end of it, so that
none starves under the response's limit. A topic is known by its id (version 13 on) or by its name, throughout
a session; an id that no topic has stays in the session, since the topic may be on its way here. A session by
ids remembers the names of its topics too. A topic that is deleted is then an unknown topic, and one that is
created again has an inconsistent id; an unknown id is one that was never known.

Sessions are kept in the order of their last use, up to a number of slots. When all are taken a session makes
room if it was not used for two minutes, or else if it is worth less than the new one: followers are worth
more than consumers, more partitions more than fewer. Consumers can drive out only sessions that have lived
for two minutes, followers also any consumer's. Whoever finds no room is served without a session.
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
SAFE_SECONDS = 120  # for so long a session is safe from others

_NOT_TOLD = -1

# A topic's id or name, and the partition
_Key = tuple[Uuid | str, int]
# The name of the topic with an id; empty where there is none
NameOf = Callable[[Uuid], str]


def _no_name(_topic_id: Uuid) -> str:
    return ""


class FetchSessionIdNotFound(BarnabasError):
    """The session was never there, or has made room for another."""

    wire = wire_error("FETCH_SESSION_ID_NOT_FOUND")


class InvalidFetchSessionEpoch(BarnabasError):
    """A request of the session was lost, or came twice."""

    wire = wire_error("INVALID_FETCH_SESSION_EPOCH")


class FetchSessionTopicIdError(BarnabasError):
    """A session that began with names goes on with ids, or the other way round."""

    wire = wire_error("FETCH_SESSION_TOPIC_ID_ERROR")


class Want(NamedTuple):
    """A partition to be read; by id or by name, as the version has it (the other is empty)."""

    topic: str
    topic_id: Uuid
    ask: FetchPartition
    # the name of the topic that had this id when the partition was first asked for, if there was one
    name_of_id: str = ""


class FetchContext:
    """What one request asks for, and how its answer is made. This one is without a session."""

    __slots__ = ("wants",)

    def __init__(self, wants: list[Want]) -> None:
        self.wants = wants

    has_more = False  # whether more has to be read than at the last look

    @property
    def asks_for_something(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self.wants)

    def asked(self, now: float, registration: object) -> None:
        """A follower's request is taken up; `registration` is what is known of its broker."""

    def answered(self, replicas: list[Replica | None]) -> None:
        """The response was made of what these replicas have; None where that was an error."""

    def waiting(self, poll: LongPoll) -> AbstractContextManager[None]:
        """While the request waits."""
        return nullcontext()

    def look(self) -> list[Want]:
        """What has to be read now; it becomes `wants`."""
        return self.wants

    def respond(self, results: list[PartitionData], throttle_time_ms: int = 0) -> FetchResponse:
        """The answer, given what was found for each of `wants`."""
        return _response(NO_SESSION, zip(self.wants, results, strict=True), throttle_time_ms)


class _FullContext(FetchContext):
    """Everything is asked for and answered; a session begins if there is room for it."""

    __slots__ = ("_by_id", "_follower_id", "_sessions")

    def __init__(self, sessions: FetchSessions, wants: list[Want], *, by_id: bool, follower_id: int) -> None:
        self.wants = wants
        self._sessions = sessions
        self._by_id = by_id
        self._follower_id = follower_id  # negative where a client asks

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
    """The whole session is asked for; what has no news is left out of the answer."""

    __slots__ = ("_epoch", "_known", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._epoch = session.epoch
        self._known = list(session.partitions.values())
        self.wants = [known.want for known in self._known]

    def respond(self, results: list[PartitionData], throttle_time_ms: int = 0) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:
            # the client went on without waiting: what it was told last is not known any more
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
    """The same for a follower: only what it may not know everything of is read (`follower_reads`)."""

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
    """A partition of a session: what is asked, and what the client was told of it last."""

    __slots__ = ("high_watermark", "log_start_offset", "resting", "want")

    def __init__(self, want: Want) -> None:
        self.want = want
        self.resting: Resting | None = None
        self.high_watermark = _NOT_TOLD
        self.log_start_offset = _NOT_TOLD

    def has_news(self, result: PartitionData) -> bool:
        """Whether a client that follows the session must be told; it counts as told from then on."""
        if (
            result.high_watermark == self.high_watermark
            and result.log_start_offset == self.log_start_offset
            and not result.error_code
            and result.preferred_read_replica < 0
            and result.diverging_epoch is None
        ):
            return _has_records(result)
        self.log_start_offset = result.log_start_offset
        # once an error is over, the client must hear of it
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
        """Take a partition in, or what is asked of it now."""
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
        """What the client asks for differently, in addition, and no more."""
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
        """Look again for topics whose ids were not known when they were asked for."""
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
    """All sessions of a node."""

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
        """The partitions of all sessions together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(self, request: FetchRequest, version: int, name_of: NameOf = _no_name) -> FetchContext:
        """What a request asks for; an error of the session is raised, and answered without any partition."""
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
        """A session for so many partitions, if there is room for it."""
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
    """The epoch of the request after one of this epoch."""
    return 1 if epoch == MAX_NUMBER else epoch + 1


def _may_go(session: Session, *, for_follower: bool) -> bool:
    if for_follower and not session.is_follower:
        return True
    # as of its last use: one that was idle since has not proved itself
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
    """Partitions that stand next to each other are grouped by topic: the order is kept."""
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
