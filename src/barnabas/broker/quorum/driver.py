"""Drives the core of `raft`: passes time, messages and connection events in, and carries out what it returns.

Every event goes through `step` or a tick of the timer. One task carries out the core's output, in the core's
order: the vote is made durable, messages are sent, the log is changed and flushed, and only then `advance`
confirms it. `propose` assigns the offsets of batches and returns at once; they are written with all batches
that are proposed meanwhile, in one append and one flush.

Callbacks to the owner: `on_commit` when the high watermark has moved; `on_elected` when this node has become
the leader of an epoch; `on_lost` when proposals will not be committed by this node, because the lead is lost,
or because an append failed without a trace (a full disk), in which case the node goes on leading.

An error that leaves the log or the vote in doubt (a failed sync) ends this node's part in the cluster:
`on_failure` is called once, every later proposal gets the same `MetadataLogFailed`, and the node must stop. A
new start reads the files and recovers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.broker.quorum.raft_disk import RaftDisk
from barnabas.broker.quorum.totals import QuorumTotals
from barnabas.core.alarm import Alarm
from barnabas.core.clock import Clock
from barnabas.core.disk import Buffer, DiskFull, FileMissing
from barnabas.core.errors import BarnabasError, OffsetOutOfRange, StorageError
from barnabas.core.network import Address
from barnabas.core.settings.listeners import Listener
from barnabas.raft.core import NotLeader, Raft
from barnabas.raft.election import NO_NODE, Election, State, VoterKey
from barnabas.raft.ready import Ready, SnapshotChunk
from barnabas.raft.replication import Leadership
from barnabas.raft.snapshot import Snapshot, SnapshotId
from barnabas.raft.states import NEVER, Resigned
from barnabas.raft.voters import Endpoint, VoterSet
from barnabas.records.batch import BatchHeader

if TYPE_CHECKING:
    from barnabas.broker.quorum.describing import DescribedQuorum
    from barnabas.raft.messages import Event, FetchResponse, FetchSnapshotResponse, Request, Response, Send

logger = logging.getLogger("barnabas.quorum")

# the pause of the core after a write that failed without a trace, and between attempts to write a vote
_RETRY_SECONDS = 1.0
_TRIES_A_MESSAGE = 60
# the clock is read in whole milliseconds: a little later, the deadline has surely passed
_PAST_DEADLINE_MS = 0.5

Appended = Callable[[int, int, Sequence[Buffer]], None]
WriteSnapshot = Callable[[], Awaitable[Snapshot]]


class MetadataLogFailed(StorageError):
    """The metadata log is in doubt: the node must stop, and restart."""


class _Withdrawn(Exception):
    """A change of the log failed without a trace."""

    def __init__(self, error: BarnabasError) -> None:
        super().__init__(str(error))
        self.error = error


class Sender(Protocol):
    """Sends the core's requests to other nodes (links.py)."""

    problems: dict[str, str]  # by address: why the last request there failed

    def send(self, send: Send) -> None:
        """Send a request; its outcome is passed to `step`."""

    async def ask(self, node_id: int, endpoint: Endpoint, request: Request) -> Response:
        """The response to a request that is not the core's."""

    def close(self) -> None:
        """Send nothing any more."""


class RaftDriver:
    """This node's part in the metadata quorum. Begins with `start`."""

    def __init__(
        self,
        raft: Raft,
        disk: RaftDisk,
        clock: Clock,
        *,
        controllers: Sequence[Listener],
        sender: Callable[[RaftDriver], Sender],
        on_failure: Callable[[BaseException], None] | None,
    ) -> None:
        """`controllers` are this node's controller listeners; `sender` is called when the core first sends a
        request."""
        self._raft = raft
        self._disk = disk
        self._clock = clock
        self.controllers = tuple(controllers)
        self.totals = QuorumTotals()
        self._make_sender = sender
        self._sender: Sender | None = None
        self._on_failure = on_failure
        self.failure: BarnabasError | None = None
        self._carrying_out: asyncio.Task[None] | None = None
        self._alarm = Alarm(clock, self._tick)
        self._not_before = 0.0
        self._led_epoch = -1  # the epoch that this node leads, or -1
        self._is_closed = False
        self._has_persisted = False  # since this start
        # set by the owner
        self.on_commit: Callable[[int], None] = lambda high_watermark: None
        self.on_lost: Callable[[BarnabasError], None] = lambda reason: None
        self.on_elected: Callable[[int], None] = lambda epoch: None
        self.on_change: Callable[[], None] = lambda: None  # when the state, the epoch or the leader changes
        # called with the last piece of a fetched snapshot, with a function that writes it and starts the log
        # behind it; returns the snapshot's voters and kraft.version
        self.install: Callable[[SnapshotId, WriteSnapshot], Awaitable[tuple[VoterSet, int]]]
        # called with offset, epoch and bytes of each append; the simulator replays them a second time
        self.on_append: Appended | None = None
        # called with the end offset after each truncation; the simulator counts them
        self.on_truncate: Callable[[int], None] = lambda end_offset: None
        self._told: Any = None
        self._committed = -1  # the high watermark of the last `on_commit`

    # --- state

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def leader_id(self) -> int:
        """The node that leads the quorum, or -1."""
        return self._raft.leader_id

    @property
    def leader_address(self) -> Address | None:
        """The leader's address, if it is known."""
        leader_id = self._raft.leader_id
        if leader_id == NO_NODE:
            return None
        endpoint = self._raft.config.reached_at(self._raft.endpoints_of(leader_id))
        return None if endpoint is None else Address(endpoint.host, endpoint.port)

    @property
    def state(self) -> State:
        return self._raft.state

    @property
    def is_closed(self) -> bool:
        """Whether it has stopped taking part."""
        return self._is_closed

    @property
    def is_leader(self) -> bool:
        return self._raft.state is State.LEADER

    @property
    def is_led(self) -> bool:
        """Whether a leader is known that is not suspected to be gone."""
        return self.is_leader or (self._raft.state is State.FOLLOWER and not self._raft.suspicion.is_gone)

    @property
    def is_sole_voter(self) -> bool:
        return self._raft.voters.is_only(self._raft.me)

    @property
    def core(self) -> Raft:
        """The core, for reading only."""
        return self._raft

    @property
    def me(self) -> VoterKey:
        """This node's key as a voter."""
        return self._raft.me

    @property
    def kraft_version(self) -> int:
        """The committed kraft.version."""
        return self._raft.log.kraft_version.at(self._raft.high_watermark)[1]

    def describe(self) -> DescribedQuorum | None:
        """The replicas of the log as this node knows them, if it leads."""
        from barnabas.broker.quorum.describing import describe

        role = self._raft.role
        if not isinstance(role, Leadership):
            return None
        return describe(self._raft, role, self._now_ms(), self._clock.wall_ms())

    def voters_at(self, end_offset: int) -> tuple[int, VoterSet]:
        """The kraft.version and the voters by the log below that offset."""
        log = self._raft.log
        return log.kraft_version.at(end_offset)[1], log.voters.at(end_offset)[1]

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is committed."""
        return self._raft.high_watermark

    @property
    def leader_high_watermark(self) -> int:
        """The high watermark that the leader of this epoch has reported; -1 before that."""
        return self._raft.leader_high_watermark

    @property
    def has_committed(self) -> bool:
        """Whether this node leads, and a record of its own epoch is committed: then everything before it is,
        too."""
        role = self._raft.role
        return isinstance(role, Leadership) and role.high_watermark >= 0

    @property
    def end_offset(self) -> int:
        """The end of the written log."""
        return self._raft.end_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next record to be proposed."""
        return self._raft.next_offset

    # --- events

    def start(self) -> None:
        """Begin to take part."""
        self._tick()

    def step(self, event: Event) -> None:
        """Pass an event to the core."""
        if self.failure is None and not self._is_closed:
            self._do(lambda: self._raft.step(event, self._now_ms()))

    async def received(self, request: Request) -> Response:
        """The response to a request of another node."""
        if self.failure is not None:
            raise self.failure
        if self._is_closed:
            raise NotLeader(f"node {self.me.id} is stopping")
        from barnabas.raft.messages import Received  # a sole voter gets none

        token: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.step(Received(token, request))
        return await token

    def propose(self, batches: Sequence[bytearray]) -> int:
        """Append these batches; returns the offset behind them, with which they are committed."""
        if self.failure is not None:
            raise self.failure
        largest = max(map(len, batches))
        segment_bytes = self._disk.log.config.segment_bytes
        if largest > segment_bytes:
            raise StorageError(
                f"a batch of {largest} bytes does not fit into a segment of the metadata log: raise "
                "metadata.log.segment.bytes, or ask for less at a time"
            )
        counted = [(batch, BatchHeader.parse(batch).last_offset_delta + 1) for batch in batches]
        end_offset = self._raft.propose(counted)
        self._wake()
        return end_offset

    def raise_kraft_version(self, version: int) -> int:
        """Keep the voters in the log; returns the offset behind the records for that."""
        if self.failure is not None:
            raise self.failure
        end_offset = self._raft.raise_kraft_version(version)
        self._wake()
        return end_offset

    async def fetched(self, response: FetchResponse) -> bytearray | None:
        """The records for a fetch response of the core. None if this node no longer leads that epoch, since
        the log may have changed. Empty if a snapshot has replaced them meanwhile: the next fetch gets it."""
        read = response.read
        if read is None:
            return bytearray()
        try:
            found = await self._disk.read(read.offset, read.end_offset, read.max_bytes)
        except OffsetOutOfRange:
            found = bytearray()
        return found if self.is_leader and self.epoch == response.known.epoch else None

    async def fetched_snapshot(self, response: FetchSnapshotResponse) -> bytes | None:
        """The piece of a snapshot for a response of the core; None if the snapshot was removed meanwhile."""
        try:
            return await self._disk.read_snapshot(response.snapshot, response.position, response.max_bytes)
        except FileMissing:
            return None

    async def ask_high_watermark(self) -> int:
        """The leader's high watermark now, by a fetch that does not wait."""
        from barnabas.raft.following import fetch_request

        raft = self._raft
        endpoint = raft.config.reached_at(raft.endpoints_of(raft.leader_id))
        if endpoint is None or self._sender is None:
            raise NotLeader("no other node is known to lead")
        request = fetch_request(raft)._replace(max_wait_ms=0)
        answer = await self._sender.ask(raft.leader_id, endpoint, request)
        high_watermark: int = getattr(answer, "high_watermark", -1)
        if answer.error or high_watermark < 0:
            raise NotLeader(f"node {raft.leader_id} does not say what is committed")
        return high_watermark

    def resign(self) -> None:
        """Stop leading in this epoch, and tell the voters; uncommitted proposals are lost."""
        if self.is_leader and self.failure is None:
            self._do(lambda: self._raft.resign(self._now_ms()))

    @property
    def problems(self) -> list[str]:
        """Why requests to other nodes of the quorum failed, a line for each address."""
        found = {} if self._sender is None else self._sender.problems
        return [f"{address} {problem}" for address, problem in found.items() if problem]

    @property
    def has_told_successors(self) -> bool:
        """Whether every voter knows that this node has resigned."""
        role = self._raft.role
        return not isinstance(role, Resigned) or not role.untold

    @property
    def is_settled(self) -> bool:
        """Whether no write is under way."""
        return self._carrying_out is None or self._carrying_out.done()

    async def settle(self) -> None:
        """Wait until all proposals are written or withdrawn."""
        while self._carrying_out is not None and not self._carrying_out.done():
            await asyncio.wait((self._carrying_out,))

    async def close(self) -> None:
        """Stop taking part; a write under way is finished."""
        self._is_closed = True
        self._end_sending()
        await self.settle()
        self._disk.close()

    async def abandon(self) -> None:
        """Stop at once, as a crash would."""
        self._is_closed = True
        if self.failure is None:
            self.failure = MetadataLogFailed("the node was abandoned")
        self._end_sending()
        if self._carrying_out is not None:
            self._carrying_out.cancel()
            await asyncio.gather(self._carrying_out, return_exceptions=True)
        self._disk.close()

    def _end_sending(self) -> None:
        self._alarm.clear()
        if self._sender is not None:
            self._sender.close()

    # --- turns of the core

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _tick(self) -> None:
        if self.failure is None and not self._is_closed:
            self._do(lambda: self._raft.tick(self._now_ms()))

    def _do(self, turn: Callable[[], None]) -> None:
        try:
            turn()
        except Exception as error:  # noqa: BLE001 - an invariant is broken, and the node is told to stop
            self.on_lost(self.fail(error))
            return
        self._wake()

    def _wake(self) -> None:
        """Have the core's output carried out, and set the timer to its next deadline."""
        self._observe()
        if self._carrying_out is None or self._carrying_out.done():
            task = self._carrying_out = asyncio.get_running_loop().create_task(self._carry_out())
            task.add_done_callback(self._carried_out)
        self._set_alarm()

    def _set_alarm(self) -> None:
        deadline_ms = self._raft.next_deadline()
        if deadline_ms < NEVER and self.failure is None and not self._is_closed:
            self._alarm.set(max((deadline_ms + _PAST_DEADLINE_MS) / 1000, self._not_before))

    def _observe(self) -> None:
        """Call the owner for what has changed."""
        raft = self._raft
        led_epoch = raft.epoch if raft.state is State.LEADER else -1
        if led_epoch != self._led_epoch:
            lost, self._led_epoch = self._led_epoch, led_epoch
            if lost >= 0:
                self.on_lost(NotLeader(f"node {self.me.id} does not lead epoch {lost} any more"))
            if led_epoch >= 0:
                self.on_elected(led_epoch)
        told = raft.state, raft.election, raft.leader_high_watermark
        if told != self._told:
            self._told = told
            self.totals.saw(raft.state, raft.election, self._clock.monotonic())
            self.on_change()

    # --- the core's output

    async def _carry_out(self) -> None:
        try:
            while ready := self._raft.ready():
                is_leader = self.is_leader
                if ready.election is not None:
                    await self._persist(ready)
                self._send(ready)
                try:
                    ready, installed = await self._change_log(ready, is_leader)
                except _Withdrawn as withdrawn:
                    self._withdraw(ready, withdrawn.error)
                else:
                    self._raft.advance(ready, self._now_ms(), installed)
                self._after_turn()
        except Exception as error:  # noqa: BLE001 - the log is in doubt, and the node is told to stop
            self.on_lost(self.fail(error))

    def _after_turn(self) -> None:
        self._observe()
        high_watermark = self._raft.high_watermark
        self._disk.log.advance_high_watermark(high_watermark)
        if high_watermark > self._committed:  # at the start the log may know it already
            self._committed = high_watermark
            self.on_commit(high_watermark)
        self._set_alarm()

    def _carried_out(self, task: asyncio.Task[None]) -> None:
        """A task that was cancelled may never have begun: the waiting callers must get an error all the
        same."""
        if task.cancelled():
            self.on_lost(self.fail(asyncio.CancelledError("the write was cancelled")))
        elif self.failure is None:
            self._observe()
            self._set_alarm()

    async def _persist(self, ready: Ready) -> None:
        assert ready.election is not None
        tries = 0
        try:
            while (full := await self._write_election(ready.election)) is not None:
                if tries % _TRIES_A_MESSAGE == 0:
                    logger.error("this node takes no part in the quorum until there is room: %s", full)
                tries += 1
                await self._clock.sleep(_RETRY_SECONDS)
        except BaseException as error:
            # the vote may be on the disk or not: this node must not vote in that epoch again
            raise self.fail(error) from error
        self._has_persisted = True

    async def _write_election(self, election: Election) -> DiskFull | None:
        """Write the vote; returns the error if the disk is full. Then nothing is sent, neither the vote nor
        anything else, and the same vote is written again. A start or a stop does not wait for that, and gets
        the error."""
        try:
            await self._disk.write_election(election, self._raft.kraft_version, self._raft.voters.ids)
        except DiskFull as error:
            if self._is_closed or not self._has_persisted:
                raise
            return error
        return None

    def _send(self, ready: Ready) -> None:
        if not ready.messages:
            return
        from barnabas.raft.messages import Send

        for message in ready.messages:
            if not isinstance(message, Send):
                if not message.token.done():
                    message.token.set_result(message.response)
                continue
            if self._sender is None:
                self._sender = self._make_sender(self)
            self._sender.send(message)

    async def _change_log(self, ready: Ready, is_leader: bool) -> tuple[Ready, tuple[VoterSet, int] | None]:
        """Truncate, write a piece of a snapshot, append. Returns what was done, and the voters and
        kraft.version of a snapshot that is complete now."""
        installed = None
        end_offset = self._disk.log.end_offset
        batches: Sequence[Buffer] = ()
        try:
            if ready.truncate_to is not None:
                await self._disk.truncate(ready.truncate_to)
                end_offset = self._disk.log.end_offset
                self.on_truncate(end_offset)
            if ready.chunk is not None:
                installed = await self._take_chunk(ready.chunk)
            if ready.entries:
                batches = self._disk.first_of(ready.entries)
                ready = ready._replace(entries=ready.entries[: len(batches)])
                await self._disk.append(ready.entries[0], batches, is_leader=is_leader)
        except Exception as error:
            if isinstance(error, BarnabasError) and self._left_no_trace(ready, end_offset):
                raise _Withdrawn(error) from error
            raise self.fail(error) from error
        except BaseException as error:
            self.fail(error)
            raise
        if self.on_append is not None and is_leader and batches:
            first = ready.entries[0]
            self.on_append(first.base_offset, first.epoch, batches)
        return ready, installed

    async def _take_chunk(self, chunk: SnapshotChunk) -> tuple[VoterSet, int] | None:
        if chunk.is_last:
            return await self.install(chunk.snapshot, partial(self._disk.write_last_chunk, chunk))
        await self._disk.write_chunk(chunk)
        return None

    def _left_no_trace(self, ready: Ready, end_offset: int) -> bool:
        """Whether a failed change has left the log as it was: an append, or a piece of an incomplete
        snapshot."""
        log = self._disk.log
        return log.failure is None and ready.truncate_to is None and log.end_offset == end_offset

    def _withdraw(self, ready: Ready, error: BarnabasError) -> None:
        self._not_before = self._clock.monotonic() + _RETRY_SECONDS
        self._raft.withdraw(ready, self._now_ms())
        self.on_lost(error)

    def fail(self, error: BaseException) -> BarnabasError:
        """Refuse proposals from now on; the node is told to stop."""
        if self.failure is None:
            self.failure = MetadataLogFailed(f"the metadata log is in doubt ({error}): the node must stop")
            logger.critical("%s", self.failure)
            self._end_sending()
            if self._on_failure is not None:
                self._on_failure(self.failure)
        return self.failure
