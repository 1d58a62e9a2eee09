"""Drives the core of `raft` over the log `__cluster_metadata`: persists, appends, flushes, tells of commits.

`propose` fixes the offsets of batches and returns at once. They are written with everything that is proposed
meanwhile, in one append and one flush; `on_commit` is called when the high watermark has moved. Batches that
could not be written and left no trace (a full disk) are withdrawn: `on_lost` is called, and the node goes on
leading. So it is when the lead itself is lost.

An error that leaves the log in doubt (a failed sync) ends this node's part in the cluster: `on_failure` is
called once, every later proposal gets the same `MetadataLogFailed`, and the node must stop. A new start reads
what is there and can tell.

This node is the only voter: the core sends nothing, and time tells it nothing but to stand for election.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from barnabas.broker.quorum.files import QUORUM_STATE_PATH
from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.errors import BarnabasError, InvariantViolation, StorageError
from barnabas.core.settings.listeners import Listener
from barnabas.log.checkpoints import write_atomically
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import Origin
from barnabas.raft.control_records import control_batch
from barnabas.raft.control_values import to_message
from barnabas.raft.core import NotLeader, Raft
from barnabas.raft.election import State, VoterKey
from barnabas.raft.log_index import Entry
from barnabas.raft.quorum_state import encode_quorum_state
from barnabas.raft.ready import Ready
from barnabas.raft.voters import VoterSet
from barnabas.records.batch import BatchHeader

logger = logging.getLogger("barnabas.quorum")

# their changes are published without a pause when the flush is done: some milliseconds
MAX_BATCHES_A_WRITE = 200

Appended = Callable[[int, int, Sequence[bytearray]], None]


class MetadataLogFailed(StorageError):
    """The metadata log is in doubt: the node must stop, and start anew."""


class RaftDriver:
    """This node's part in the metadata quorum. `elect` comes first."""

    def __init__(
        self,
        raft: Raft,
        log: PartitionLog,
        disk: Disk,
        clock: Clock,
        *,
        controllers: Sequence[Listener],
        on_failure: Callable[[BaseException], None] | None,
    ) -> None:
        self._raft = raft
        self._log = log
        self._disk = disk
        self._clock = clock
        self.controllers = tuple(controllers)
        self._on_failure = on_failure
        self.failure: BarnabasError | None = None
        self._writing: asyncio.Task[None] | None = None
        # set by the controller
        self.on_commit: Callable[[int], None] = lambda high_watermark: None
        self.on_lost: Callable[[BarnabasError], None] = lambda reason: None
        # called with offset, epoch and bytes of what was appended; the simulator replays it a second time
        self.on_append: Appended | None = None

    # --- what is known

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def leader_id(self) -> int:
        """The node that leads the quorum, -1 where none is known."""
        return self._raft.leader_id

    @property
    def is_leader(self) -> bool:
        return self._raft.state is State.LEADER

    @property
    def me(self) -> VoterKey:
        """This node, as a voter."""
        return self._raft.me

    @property
    def kraft_version(self) -> int:
        """The version of the quorum's protocol that is committed."""
        return self._raft.log.kraft_version.at(self._raft.high_watermark)[1]

    def voters_at(self, end_offset: int) -> tuple[int, VoterSet]:
        """The kraft.version and the voters by what the log says below that offset."""
        log = self._raft.log
        return log.kraft_version.at(end_offset)[1], log.voters.at(end_offset)[1]

    @property
    def high_watermark(self) -> int:
        """Everything below is committed."""
        return self._raft.high_watermark

    @property
    def end_offset(self) -> int:
        """The end of what is written."""
        return self._raft.end_offset

    @property
    def next_offset(self) -> int:
        """The offset of the first record that is proposed next."""
        return self._raft.next_offset

    # --- what is to be done

    async def elect(self) -> None:
        """Stand for election; returns when this node leads and what it says first is committed."""
        self._raft.tick(self._now_ms())
        await self._write()

    def propose(self, batches: Sequence[bytearray]) -> int:
        """Append these; returns the offset behind them, with which they are committed."""
        if self.failure is not None:
            raise self.failure
        largest = max(map(len, batches))
        if largest > self._log.config.segment_bytes:
            raise StorageError(
                f"a batch of {largest} bytes does not fit into a segment of the metadata log: raise "
                "metadata.log.segment.bytes, or ask for less at a time"
            )
        counted = [(batch, BatchHeader.parse(batch).last_offset_delta + 1) for batch in batches]
        return self._proposed(self._raft.propose(counted))

    def raise_kraft_version(self, version: int) -> int:
        """Keep the voters in the log; returns the offset behind the records that say so."""
        if self.failure is not None:
            raise self.failure
        return self._proposed(self._raft.raise_kraft_version(version))

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _proposed(self, end_offset: int) -> int:
        """See to it that it is written."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_pending())
            self._writing.add_done_callback(self._written)
        return end_offset

    async def settle(self) -> None:
        """Wait until everything that was proposed is written, or withdrawn."""
        while self._writing is not None and not self._writing.done():
            await asyncio.wait((self._writing,))

    def resign(self) -> None:
        """Lead no more in this epoch; proposals that are not committed are lost."""
        if self.is_leader:
            self._raft.resign(self._now_ms())
            self.on_lost(NotLeader(f"node {self.me.id} has resigned in epoch {self.epoch}"))

    async def abandon(self) -> None:
        """Write nothing any more, as a crash would."""
        if self.failure is None:
            self.failure = MetadataLogFailed("the node was abandoned")
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write_pending(self) -> None:
        try:
            await self._write()
        except BarnabasError as error:
            self.on_lost(self.failure or error)
        except Exception as error:  # noqa: BLE001 - an invariant is broken, and the node is told to stop
            self.on_lost(self.fail(error))

    def _written(self, task: asyncio.Task[None]) -> None:
        """One that is cancelled may never have begun; nobody who waits is forgotten."""
        if task.cancelled():
            self.on_lost(self.fail(asyncio.CancelledError("the write was cancelled")))

    def _first_of(self, ready: Ready) -> tuple[Ready, list[bytearray]]:
        """As much of it as one append takes, and its batches: within a segment, and few enough to be
        published in one turn."""
        batches: list[bytearray] = []
        size = 0
        for entry in ready.entries[:MAX_BATCHES_A_WRITE]:
            batch = self._batch(entry)
            size += len(batch)
            if batches and size > self._log.config.segment_bytes:
                break
            batches.append(batch)
        return ready._replace(entries=ready.entries[: len(batches)]), batches

    def _batch(self, entry: Entry) -> bytearray:
        if entry.control:
            return control_batch(map(to_message, entry.control), self._clock.wall_ms())
        data: bytearray = entry.data
        return data

    async def _write(self) -> None:
        """Do what the core asks for, until it asks for nothing more."""
        while asked := self._raft.ready():
            ready, batches = self._first_of(asked)
            if ready.election is not None:
                version = min(self._raft.kraft_version, 1)
                state = encode_quorum_state(ready.election, version, self._raft.voters.ids)
                await write_atomically(self._disk, QUORUM_STATE_PATH, state)
            if batches:
                await self._append(ready, batches)
            self._raft.advance(ready, self._now_ms())
            if self._log.advance_high_watermark(self._raft.high_watermark):
                self.on_commit(self._raft.high_watermark)

    async def _append(self, ready: Ready, batches: Sequence[bytearray]) -> None:
        """Write and flush what the core gave; the log numbers it as the core expects."""
        log, first = self._log, ready.entries[0]
        data = batches[0] if len(batches) == 1 else bytearray().join(batches)
        if log.end_offset != first.base_offset:
            raise self.fail(
                InvariantViolation(f"{log.path} ends at {log.end_offset}, not at {first.base_offset}")
            )
        try:
            await log.append_as_leader(data, first.epoch, Origin.COORDINATOR)
            await log.flush()
        except Exception as error:
            if log.failure is None and log.end_offset == first.base_offset:
                self._raft.withdraw(ready, self._now_ms())  # nothing was written, so nothing is in doubt
                raise
            raise self.fail(error) from error
        except BaseException as error:
            self.fail(error)
            raise
        if self.on_append is not None:
            self.on_append(first.base_offset, first.epoch, batches)

    def fail(self, error: BaseException) -> BarnabasError:
        """From now on nothing is proposed here; the node is told to stop."""
        if self.failure is None:
            self.failure = MetadataLogFailed(f"the metadata log is in doubt ({error}): the node must stop")
            logger.critical("%s", self.failure)
            if self._on_failure is not None:
                self._on_failure(self.failure)
        return self.failure
