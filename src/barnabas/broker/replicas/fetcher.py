"""The fetcher of one leader: fetches all partitions that this node follows there, in one fetch session.

It has one task, one connection and one request in flight. A response names only replicas with news; the other
replicas cost nothing, neither here nor in the next request. Applying a response to a replica usually does not
have to wait and is done in place (`core.eager`). Where it has to wait, for a sync, a truncation or a slow
disk, the other replicas go on: the busy replica is left out of the requests until it is done.

A request that finds nothing waits at the leader. That wait must not delay replicas which the request does not
name. It is short while replicas are being opened, retried after a failure or busy. When a replica is added
that the leader does not know of, the waiting request is given up, together with its connection, but not at
short intervals (`_give_up_waiting`).

A replica that fails is left out of the requests; the pause grows with every failure in a row.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from barnabas.broker.replicas.follower_session import FetchLimits, FollowerSession
from barnabas.broker.replicas.following import FollowedReplica, Key
from barnabas.broker.replicas.leader_offsets import EARLIEST, LATEST, ask_offsets
from barnabas.broker.traffic import ReplicationTraffic
from barnabas.core.alarm import Alarm
from barnabas.core.clock import Clock
from barnabas.core.eager import begin
from barnabas.core.errors import BarnabasError, FencedLeaderEpoch, wire_error
from barnabas.log.moving import PartitionMoved
from barnabas.log.partition import UnexpectedOffset
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.transport.connection import BrokerConnection
from barnabas.transport.errors import BrokerError, wire_error_of
from barnabas.transport.link import Link
from barnabas.transport.waiting import Wake

logger = logging.getLogger("barnabas.replicas")

# after this many bytes or partitions the fetcher yields to other tasks
TURN_BYTES = 1 << 20
TURN_PARTITIONS = 200
PATIENCE_S = 0.02  # how long a round waits for replicas that are busy
BUSY_WAIT_MS = 50  # how long a request may wait while some are busy
OPENING_WAIT_MS = 20  # ... and while more are being opened
QUIET_S = 0.02  # a response that takes longer is waiting for records
# The first pause before a replica is fetched again whose leader may only lack the latest metadata; it doubles
# with every failure in a row. After this many in a row, a warning is logged.
FIRST_RETRY_S = 0.02
SOON_IS_OVER = 6
_SOON = frozenset(
    wire_error(name).code
    for name in (
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_LEADER_EPOCH",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
    )
)
_OUT_OF_RANGE = wire_error("OFFSET_OUT_OF_RANGE").code


class FetcherSettings(NamedTuple):
    """Settings of the fetchers, named as Kafka's."""

    limits: FetchLimits = FetchLimits()
    backoff_s: float = 1.0  # replica.fetch.backoff.ms


class FetcherSite(Protocol):
    """What a fetcher needs from its node."""

    node_id: int
    clock: Clock
    settings: FetcherSettings
    traffic: ReplicationTraffic
    busy: dict[Key, asyncio.Task[None]]  # tasks at work on replicas, of any fetcher

    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""

    def is_opening(self) -> bool:
        """Whether more replicas will have to be followed soon."""

    def ended(self, key: Key) -> None:
        """The task in `busy` for this replica has ended."""

    def fail(self, error: BaseException) -> None:
        """End the node."""


class Fetcher:
    """The fetcher of one leader."""

    def __init__(self, leader: int, site: FetcherSite, dial: Callable[[], Link]) -> None:
        self.leader = leader
        self._site = site
        self._clock = site.clock
        self._dial = dial
        self._link = dial()
        self._session = FollowerSession(site.settings.limits)
        self._followed: dict[Key, FollowedReplica] = {}
        self._retries: list[tuple[float, int, FollowedReplica]] = []
        self._retry_count = 0
        self._busy: dict[Key, asyncio.Task[None]] = {}
        self._out_of_range: list[FollowedReplica] = []
        self._wake = Wake(self._clock)
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None
        # the request in flight: since when, and how long it may wait at the leader; when the last one was
        # given up
        self._asked_at: float | None = None
        self._wait_s = 0.0
        self._gave_up_at = float("-inf")
        self._give_up = Alarm(self._clock, self._give_up_waiting)
        self._trouble = ""
        # for metrics
        self.requests = 0
        self.bytes_in = 0
        self.failures = 0

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def followed(self) -> list[FollowedReplica]:
        """The replicas that this fetcher follows."""
        return list(self._followed.values())

    # ---- the followed replicas

    def start(self) -> None:
        """Start the task that fetches."""
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def follow(self, one: FollowedReplica) -> None:
        """Fetch this replica from now on."""
        self._followed[one.key] = one
        self._session.ask_for(one)
        self._has_new()

    def leave(self, one: FollowedReplica) -> None:
        """Stop fetching this replica: a response under way does not apply to it."""
        del self._followed[one.key]
        self._session.leave_out(one.key)

    def try_again(self, one: FollowedReplica) -> None:
        """Retry a failed replica at once: the reason of the failure may be gone."""
        if one.retry_at is not None:
            one.retry_at = None
            self._session.ask_for(one)
            self._has_new()

    def resume(self, one: FollowedReplica) -> None:
        """A task on a replica has ended: fetch the replica again, unless a retry is due later."""
        session = self._session
        if one.retry_at is None and one.key not in session.known and one.key not in session.changed:
            session.ask_for(one)
        self._has_new()

    @property
    def is_connected(self) -> bool:
        return self._link.made is not None

    def redial(self) -> None:
        """Open a new connection: the leader has another address."""
        self._link.close()
        self._link = self._dial()
        self._wake.call()

    async def close(self) -> None:
        """Stop, and return when no task works on any replica. Tasks that have begun are finished: a
        truncation that stops half-way leaves files in doubt."""
        self._is_closed = True
        self._give_up.clear()
        self._link.close()
        self._wake.call()
        waited = [*self._busy.values(), *([] if self._task is None else [self._task])]
        if waited:
            await asyncio.wait(waited)

    # ---- rounds

    async def _run(self) -> None:
        try:
            while not self._is_closed:
                self._take_up_retries()
                if not self._session.has_something:
                    await self._wake.wait(self._next_retry_at())
                    continue
                link = self._link
                try:
                    connection = await link.wait()
                    await self._round(connection)
                except BarnabasError as error:
                    self._session.begin_anew()
                    if link is self._link:  # otherwise it was given up on purpose
                        self._say(error)
        except Exception as error:  # noqa: BLE001 - nothing awaits this task, and the node must not go on without it
            self._site.fail(error)

    async def _round(self, connection: BrokerConnection) -> None:
        """Send one request, and apply the response."""
        session, site = self._session, self._site
        for key in site.busy:
            session.leave_out(key)
        wait_ms = self._may_wait_ms()
        request = session.request(site.node_id, site.broker_epoch(), wait_ms)
        self.requests += 1
        self._asked_at, self._wait_s = self._clock.monotonic(), wait_ms / 1000
        try:
            response = await connection.ask(request, FetchResponse)
        finally:
            self._asked_at = None
            self._give_up.clear()
        if not session.answered(response):
            self._refused(response.error_code, was_new=request.session_epoch == 0)
            return
        self._say(None)
        await self._take(response)
        if self._out_of_range:
            await self._meet_leader(connection)
        if self._busy:
            await asyncio.wait(self._busy.values(), timeout=PATIENCE_S)

    def _may_wait_ms(self) -> int:
        """How long the leader may let the request wait for records."""
        if self._session.has_new:
            return 0  # new partitions are to be answered at once
        wait_ms = self._site.settings.limits.wait_ms
        if self._site.is_opening():
            wait_ms = min(wait_ms, OPENING_WAIT_MS)
        if self._busy:
            wait_ms = min(wait_ms, BUSY_WAIT_MS)
        retry_at = self._next_retry_at()
        if retry_at is not None:
            wait_ms = min(wait_ms, max(1, int((retry_at - self._clock.monotonic()) * 1000)))
        return wait_ms

    def _refused(self, error_code: int, *, was_new: bool) -> None:
        error = wire_error_of(error_code)
        if was_new:  # a lost session is expected, a session that cannot begin is an error
            raise BrokerError(error, f"broker {self.leader} answers no fetch of this follower: {error.name}")
        logger.info("the fetch session with broker %d begins anew: %s", self.leader, error.name)

    async def _take(self, response: FetchResponse) -> None:
        known, now = self._session.known, self._clock.monotonic()
        turn_bytes, turn_partitions = TURN_BYTES, TURN_PARTITIONS
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                one = known.get((topic_id, data.partition_index))
                if one is None:
                    continue  # left out since the request
                if data.error_code:
                    self._failed(one, data.error_code)
                    continue
                before = self.bytes_in
                self._begin(one, one.take(data, now))
                turn_bytes -= self.bytes_in - before
                turn_partitions -= 1
                if turn_bytes <= 0 or turn_partitions <= 0:
                    turn_bytes, turn_partitions = TURN_BYTES, TURN_PARTITIONS
                    await asyncio.sleep(0)

    # ---- work on one replica

    def _begin(self, one: FollowedReplica, work: Coroutine[Any, Any, int | None]) -> None:
        task = begin(self._do(one, work))
        if task is not None:
            key = one.key
            self._busy[key] = self._site.busy[key] = task
            task.add_done_callback(lambda task: self._done(key, task))

    def _done(self, key: Key, task: asyncio.Task[None]) -> None:
        del self._busy[key], self._site.busy[key]
        self._site.ended(key)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._site.fail(error)

    async def _do(self, one: FollowedReplica, work: Coroutine[Any, Any, int | None]) -> None:
        """Finish the work on a replica, and ask for the next records."""
        is_cut = False
        try:
            appended = await work
            is_cut = appended is None
            if appended:
                self.bytes_in += appended
                self._site.traffic.bytes_in += appended
        except FencedLeaderEpoch:
            pass  # the replica has another role by now
        except BarnabasError as error:
            self._back_off(one, error, soon=isinstance(error, (UnexpectedOffset, PartitionMoved)))
            return
        one.failures = 0
        session = self._session
        if self._followed.get(one.key) is not one:
            return
        if is_cut:
            session.renew(one)
        elif one.key not in session.known or one.place() != one.asked:
            session.ask_for(one)

    def _failed(self, one: FollowedReplica, error_code: int) -> None:
        """The leader has answered with an error for this replica."""
        if error_code == _OUT_OF_RANGE:
            self._out_of_range.append(one)
            return
        error = wire_error_of(error_code)
        told = BrokerError(error, f"broker {self.leader} answers {error.name} to a fetch of {one.name}")
        self._back_off(one, told, soon=error_code in _SOON)

    def _back_off(self, one: FollowedReplica, error: BarnabasError, *, soon: bool = False) -> None:
        """Leave a replica out for a pause; a short one (`soon`) where only the metadata of one side is
        behind."""
        if self._followed.get(one.key) is not one:
            return
        self._session.leave_out(one.key)
        one.failures += 1
        self.failures += 1
        pause_s = self._site.settings.backoff_s
        if soon:
            pause_s = min(pause_s, FIRST_RETRY_S * 2 ** min(one.failures - 1, 20))
        one.retry_at = self._clock.monotonic() + pause_s
        self._retry_count += 1  # a tie-break: replicas do not compare
        heappush(self._retries, (one.retry_at, self._retry_count, one))
        is_news = one.failures == (SOON_IS_OVER if soon else 1)
        logger.log(
            logging.WARNING if is_news else logging.DEBUG, "%s cannot follow its leader: %s", one.name, error
        )

    def _next_retry_at(self) -> float | None:
        while self._retries:
            at, _, one = self._retries[0]
            if one.retry_at == at and self._followed.get(one.key) is one:
                return at
            heappop(self._retries)
        return None

    def _take_up_retries(self) -> None:
        now = self._clock.monotonic()
        while (at := self._next_retry_at()) is not None and at <= now:
            one = heappop(self._retries)[2]
            one.retry_at = None
            self._session.ask_for(one)

    async def _meet_leader(self, connection: BrokerConnection) -> None:
        """Ask the leader for the offsets of replicas whose fetch was out of range, and move the replicas
        there."""
        lost, self._out_of_range = self._out_of_range, []
        first, end = await asyncio.gather(
            *(ask_offsets(connection, self._site.node_id, lost, time) for time in (EARLIEST, LATEST))
        )
        for one in lost:
            error_code = first[one.key].error_code or end[one.key].error_code
            if error_code:
                self._failed(one, error_code)
            else:
                self._begin(one, one.meet_leader(first[one.key].offset, end[one.key].offset))

    # ---- the connection

    def _has_new(self) -> None:
        """Called for a replica that the leader does not know of: it must not wait behind a long poll."""
        self._wake.call()
        if self._asked_at is None:
            return
        limit_s = self._site.settings.limits.wait_ms / 1000
        at = max(self._asked_at + QUIET_S, self._gave_up_at + limit_s)
        if at < self._asked_at + self._wait_s:
            self._give_up.set(at)

    def _give_up_waiting(self) -> None:
        """Give up a request that waits for records: a connection serves only one request at a time."""
        connection = self._link.made
        if self._asked_at is None or connection is None or connection.is_receiving:
            return
        if self._session.has_new:
            self._gave_up_at = self._clock.monotonic()
            self.redial()

    def _say(self, error: BarnabasError | None) -> None:
        """Log the first failure, and the first success after it."""
        trouble = "" if error is None else str(error)
        if self._is_closed or trouble == self._trouble:
            return
        if trouble:
            logger.warning("fetching from broker %d: %s", self.leader, trouble)
        else:
            logger.info("fetching from broker %d goes on", self.leader)
        self._trouble = trouble
