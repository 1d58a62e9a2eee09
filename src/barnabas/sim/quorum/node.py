"""A simulated node: a process with a raft core, on a machine with a disk and a clock.

It drives the core as a node does: it carries out one Ready at a time, each step of it with the disk taking a
while, tells the core of the time when that asks for it, and reports what a client or an observer could see.
It can be killed, lose power, be paused, run out of disk space, and come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.core.errors import InvariantViolation
from barnabas.raft.config import RaftConfig
from barnabas.raft.core import Raft
from barnabas.raft.election import State, VoterKey
from barnabas.raft.messages import (
    Answered,
    ApiVersions,
    ApiVersionsResponse,
    FetchResponse,
    FetchSnapshotResponse,
    LogTrimmed,
    Read,
    Received,
    Reply,
    Send,
    SnapshotTaken,
)
from barnabas.raft.ready import Ready
from barnabas.raft.states import NEVER
from barnabas.sim.chance import stream
from barnabas.sim.quorum.disk import Disk, Snapshot

if TYPE_CHECKING:
    from barnabas.sim.quorum.world import QuorumWorld

STARTS_US = 20_000  # how long a process takes to read its disk and to flush the log
CHUNK_BYTES = 1 << 20


class Node:
    """`life` counts the processes that ran; what was meant for an earlier one does not reach the next."""

    def __init__(self, world: QuorumWorld, key: VoterKey, disk: Disk, config: RaftConfig) -> None:
        self.world = world
        self.engine = world.engine
        self.id = key.id
        self.key = key
        self.disk = disk
        self.config = config
        self.random = stream(world.plan.seed, f"node {key.id}")
        self.raft: Raft | None = None
        self.life = 0
        self.move = 0  # its address, the n-th
        self.has_power = True
        self.is_paused = False
        self.hangs = False  # dials to it, that is
        self.refuses = False
        self.is_disk_full = False
        self.fails_next_write = False
        self.rate = 1.0
        self.jumped_ms = 0
        self.connections: dict[int, int] = {}
        self.in_flight: dict[int, int] = {}
        self.waiting: list[tuple[int, int]] = []  # proposals: the offset behind them, and their value
        self._inbox: list[tuple[Any, ...]] = []
        self._doing: Ready | None = None
        self._is_election_written = False
        self._tick_us = NEVER
        self._state = State.UNATTACHED
        self._epoch = 0
        self._reported = 0

    @property
    def is_up(self) -> bool:
        return self.raft is not None

    @property
    def name(self) -> str:
        return f"node-{self.id}"

    def now_ms(self) -> int:
        """The monotonic clock of the machine."""
        return int(self.engine.now_us * self.rate / 1000) + self.jumped_ms

    # --- life

    def start(self) -> None:
        """A process starts on what is on the disk, if the machine runs."""
        if self.raft is not None or not self.has_power:
            return
        self.life += 1
        self.engine.note(self.id, 1, self.life)
        self.engine.after(STARTS_US, self._started, self.life)

    def _started(self, life: int) -> None:
        if life != self.life or not self.has_power:
            return
        self.disk.log.flush()
        self.config = self.config._replace(bootstrap=self.world.bootstrap())
        self._state, self._epoch = State.UNATTACHED, -1
        now_ms = self.now_ms()
        self.raft = Raft(
            self.key,
            election=self.disk.election,
            log=self.disk.state(),
            config=self.config,
            random=self.random,
            now_ms=now_ms,
        )
        self._reported = self.raft.high_watermark
        self.world.started(self)
        self.raft.tick(now_ms)
        self.pump()

    def stop(self) -> None:
        """The process ends: killed, or by itself after an error of its disk. The page cache stays."""
        if self.raft is None:
            return
        self.engine.note(self.id, 2)
        if self._doing is not None:
            self._leave_undone(self._doing)
        self.raft = None
        self.life += 1
        self.is_paused = False
        self._doing = None
        self._tick_us = NEVER
        self._inbox.clear()
        self.connections.clear()
        self.in_flight.clear()
        self.waiting.clear()
        if self.has_power:
            self.world.network.process_died(self)

    def lose_power(self) -> None:
        self.has_power = False
        self.stop()
        self.disk.lose_power(self.random)

    def regain_power(self) -> None:
        self.has_power = True
        self.start()

    def _leave_undone(self, ready: Ready) -> None:
        """A crash in the middle of it."""
        if not self._is_election_written:
            if ready.election is not None and self.random.below(2):
                self.disk.election = ready.election
            return
        self.disk.write_in_part(ready, self.random)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Everything that came meanwhile is seen at once, and late."""
        if not self.is_paused:
            return
        self.is_paused = False
        inbox, self._inbox = self._inbox, []
        for call, *arguments in inbox:
            call(*arguments)
        if self.raft is not None:
            self.guarded(self.raft.tick, self.now_ms())

    # --- what happens to it

    def receive(self, life: int, event: Any) -> None:
        """A message or a notice for a process of this node."""
        if life != self.life or self.raft is None:
            return
        if self.is_paused:
            self._inbox.append((self.receive, life, event))
            return
        kind = type(event)
        if kind is Answered:
            if self.in_flight.pop(event.correlation, None) is None:
                return  # the connection that it would have come on is closed
        elif kind is Received and type(event.request) is ApiVersions:
            self.world.network.reply(self, event.token, ApiVersionsResponse(0, 0, 1))
            return
        if self.engine.on_line is not None:
            self.engine.line(self.name, event)
        self.engine.note(self.id, 3)
        self.world.received(self, event)
        self.guarded(self.raft.step, event, self.now_ms())

    def _tick(self, life: int, time_us: int) -> None:
        if life != self.life or self.raft is None or time_us != self._tick_us:
            return
        if self.is_paused:
            self._inbox.append((self._tick, life, time_us))
            return
        self._tick_us = NEVER
        self.world.busy.acts(self.id, self.engine.now_us)
        self.guarded(self.raft.tick, self.now_ms())

    def guarded(self, call: Any, *arguments: Any) -> None:
        """Let the core do something; a broken invariant stops the node, and is told."""
        try:
            call(*arguments)
            self.pump()
        except InvariantViolation as error:
            self.world.broken(self, error)
            self.stop()

    # --- carrying out

    def pump(self) -> None:
        """Carry out what the core asks for, up to the next wait for the disk."""
        while self.raft is not None and self._doing is None:
            self._observe()
            ready = self.raft.ready()
            if not ready:
                break
            self._doing = ready
            self._is_election_written = ready.election is None
            if ready.election is not None:
                self._later(self._election_written)
            else:
                self._say(ready)
        self._set_tick()

    def _later(self, call: Any) -> None:
        self.engine.after(self.world.disk_us(self), self._disk_done, self.life, call)

    def _disk_done(self, life: int, call: Any) -> None:
        if life != self.life or self.raft is None:
            return
        if self.is_paused:
            self._inbox.append((self._disk_done, life, call))
            return
        if self.fails_next_write or (self.is_disk_full and not self._is_election_written):
            self.fails_next_write = False
            self.stop()  # whether it is on the disk is not known
            return
        self.guarded(call)

    def _election_written(self) -> None:
        ready = self._doing
        assert ready is not None
        assert ready.election is not None
        self.disk.election = ready.election
        self._is_election_written = True
        self.world.election_written(self, ready.election)
        self._say(ready)

    def _say(self, ready: Ready) -> None:
        """Send what rests on the election, then go on with the log."""
        network = self.world.network
        for message in ready.messages:
            if type(message) is Send:
                self.world.sent(self, message)
                network.request(self, message)
            else:
                assert isinstance(message, Reply)
                self._answer(message)
        if ready.changes_log:
            self._later(self._log_written)
        else:
            self._finish(ready)

    def _answer(self, reply: Reply) -> None:
        response = reply.response
        self.world.replied(self, reply.token, response)
        if isinstance(response, FetchResponse) and response.read is not None:
            self._read(self.life, reply, response.read)
            return
        if isinstance(response, FetchSnapshotResponse) and response.error == 0:
            snapshot = self.disk.snapshots.get(response.snapshot)
            left = response.size_bytes - response.position
            response = response._replace(data=snapshot, data_bytes=min(left, CHUNK_BYTES))
        if callable(reply.token):
            reply.token(response)
        else:
            self.world.network.reply(self, reply.token, response)

    def _read(self, life: int, reply: Reply, read: Read, delay_us: int = -1) -> None:
        """Read from the log, sometimes so late that the log has become another one meanwhile."""
        if life != self.life or self.raft is None:
            return
        if self.is_paused:
            self._inbox.append((self._read, life, reply, read, 0))
            return
        if delay_us < 0 and (delay_us := self.world.read_us(self)) > 0:
            self.engine.after(delay_us, self._read, life, reply, read, 0)
            return
        assert isinstance(reply.response, FetchResponse)
        entries = self.disk.log.between(read.offset, read.end_offset, self.world.plan.fetch_entries)
        response = reply.response._replace(read=None, entries=entries)
        self.world.network.reply(self, reply.token, response)

    def _log_written(self) -> None:
        ready, raft = self._doing, self.raft
        assert ready is not None
        assert raft is not None
        if self.is_disk_full and ready.entries:
            self._doing = None
            self.waiting.clear()
            raft.withdraw(ready, self.now_ms())
            return
        self.disk.write(ready)
        self.world.written(self, ready)
        self._finish(ready)

    def _finish(self, ready: Ready) -> None:
        raft = self.raft
        assert raft is not None
        self._doing = None
        installed = None
        if ready.chunk is not None and ready.chunk.is_last:
            snapshot: Snapshot = ready.chunk.data
            installed = snapshot.voters, snapshot.kraft_version
            self.world.count("snapshot loads")
        if ready.truncate_to is not None:
            self.world.count("truncations")
            self.world.watermark.truncated(self.id, self.life, ready.truncate_to)
        raft.advance(ready, self.now_ms(), installed)

    def _observe(self) -> None:
        """Report what can be seen from outside: the state, the epoch, and what is committed."""
        raft = self.raft
        assert raft is not None
        state, epoch = raft.state, raft.epoch
        if state is not self._state or epoch != self._epoch:
            if self._state is State.LEADER:
                self.waiting.clear()
            was, self._state, self._epoch = self._state, state, epoch
            self.world.changed(self, was, state, epoch)
        if raft.high_watermark != self._reported:
            self._reported = raft.high_watermark
            self.world.committed(self, raft.high_watermark)
            while self.waiting and self.waiting[0][0] <= raft.high_watermark:
                self.world.answered(self, *self.waiting.pop(0))

    def _set_tick(self) -> None:
        if self.raft is None or self.is_paused:
            return
        due_ms = self.raft.next_deadline()
        if due_ms >= NEVER:
            return
        due_us = max(int((due_ms - self.jumped_ms) * 1000 / self.rate) + 1, self.engine.now_us + 1)
        if due_us < self._tick_us:
            self._tick_us = due_us
            self.engine.at(due_us, self._tick, self.life, due_us)

    # --- what clients and operators do with it

    def propose(self, value: int) -> None:
        """A client's record; it is answered when it is committed while this node leads the same epoch."""
        raft = self.raft
        if raft is None or self.is_paused or raft.state is not State.LEADER:
            return
        end_offset = raft.propose([(value, 1)])
        self.waiting.append((end_offset, value))
        self.guarded(lambda: None)

    def take_snapshot(self) -> None:
        """Of everything that is committed, if no Ready is under way; then the log before it goes."""
        raft = self.raft
        if raft is None or self.is_paused or self._doing is not None:
            return
        end_offset = raft.high_watermark
        chain = self.disk.log.chain_at(end_offset)
        if chain is None or end_offset <= self.disk.log.start_offset:
            return
        snapshot_id = raft.snapshot_id(end_offset)
        voters = raft.log.voters.at(end_offset)[1]
        kraft_version = raft.log.kraft_version.at(end_offset)[1]
        size_bytes = (1 + end_offset % 3) * CHUNK_BYTES
        snapshot = Snapshot(snapshot_id, chain, voters, kraft_version, size_bytes)
        self.disk.snapshots[snapshot_id] = snapshot
        self.world.count("snapshots")
        self.guarded(raft.step, SnapshotTaken(snapshot_id, size_bytes), self.now_ms())
        is_free = self.raft is raft and self._doing is None
        if is_free and self.random.below(4) and self.disk.log.chain_at(snapshot_id.end_offset) is not None:
            self.disk.log.trim(snapshot_id.end_offset)
            kept = {key: each for key, each in self.disk.snapshots.items() if key >= snapshot_id}
            self.disk.snapshots = kept
            self.guarded(raft.step, LogTrimmed(snapshot_id), self.now_ms())
