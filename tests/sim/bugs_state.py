"""Bugs in what is remembered of producers, in the high watermark, and in how requests are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from barnabas.broker.connections.connections import Connections, Session
from barnabas.broker.connections.later import LaterAnswer
from barnabas.broker.connections.requests import answer
from barnabas.broker.handlers import fetch, list_offsets
from barnabas.broker.quorum.controller import ActiveController
from barnabas.broker.replicas.purgatory import Marks
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.roles import Leading
from barnabas.core.disk import Disk
from barnabas.core.errors import BarnabasError, StorageError
from barnabas.log import directory, names, producer, reading, recovery, snapshots
from barnabas.log.partition import Bound, PartitionLog
from barnabas.log.producer import Producer
from barnabas.log.producers import ProducerStates
from barnabas.log.segment import Located, Segment
from barnabas.log.snapshots import CorruptSnapshot
from barnabas.metadata.records import NoOpRecord
from barnabas.protocol.frames import SCRATCH_BYTES, FrameReader
from tests.sim.bugs_switch import Patch, bug, disk_errors, power_losses, retries, starts

T = TypeVar("T")

# ---- producers -------------------------------------------------------------------------------------------


@bug("only the last batch of a producer is remembered, not the last five", "duplicates", needs=(retries,))
def duplicate_window_of_one(patch: Patch) -> None:
    patch(producer, "BATCHES_KEPT", 1)


@bug("what is known of producers is lost at a start", "duplicates", needs=(starts,))
def producers_lost(patch: Patch) -> None:
    open_partition = directory.open_partition

    async def forget(*args: Any, **kwargs: Any) -> PartitionLog:
        log = await open_partition(*args, **kwargs)
        log.producers = ProducerStates(log.end_offset)
        return log

    patch(directory, "open_partition", forget)


@bug(
    "the newest snapshot of the producers is believed, even one beyond the end of the log",
    "lost",
    "order",
    needs=(power_losses,),
    unseen=(
        "takes a segment rolled just before a power loss that keeps the new snapshot, loses the "
        "batches in it, and falls between an append and its acknowledgement"
    ),
)
def snapshot_beyond_the_end(patch: Patch) -> None:
    load_producers = recovery.load_producers

    async def believe(disk: Disk, path: str, segments: Any, end_offset: int) -> tuple[ProducerStates, int]:
        listed = [names.parse_offset(name, names.SNAPSHOT) for name in await disk.listdir(path)]
        newest = max((offset for offset in listed if offset is not None), default=0)
        entries = None
        if newest > end_offset:
            try:
                file = f"{path}/{names.offset_name(newest)}{names.SNAPSHOT}"
                entries = await snapshots.read_snapshot(disk, file)
            except CorruptSnapshot:
                pass
        found, snapshot_offset = await load_producers(disk, path, segments, end_offset)
        if entries is not None:
            found.load(entries, end_offset)
        return found, snapshot_offset

    patch(recovery, "load_producers", believe)


@bug(
    "the producers are as the newest snapshot has them, whatever came after it", "duplicates", needs=(starts,)
)
def snapshot_not_caught_up(patch: Patch) -> None:
    async def nothing(*args: Any) -> list[Any]:
        return []

    patch(recovery, "replay", nothing)


@bug(
    "any sequence is taken, also one that leaves a gap or goes back", "duplicates", "order", needs=(retries,)
)
def sequence_gap_accepted(patch: Patch) -> None:
    patch(Producer, "check_next", lambda self, header: None)


# ---- the high watermark ----------------------------------------------------------------------------------


@bug(
    "after a start the high watermark is what the last checkpoint says",
    "watermark",
    "readers",
    "compacted",
    "liveness",
    needs=(starts,),
)
def high_watermark_forgotten(patch: Patch) -> None:
    """Until the high watermark reaches the start of the epoch consumers are told of no end, and wait."""
    patch(Replica, "_lead", lead_without_rule)


@bug(
    "after a start the high watermark is what the last checkpoint says, and consumers are told so",
    "watermark",
    needs=(starts,),
)
def high_watermark_goes_back(patch: Patch) -> None:
    def tell_all_the_same(replica: Replica, bound: Bound) -> None:
        """Without the refusal until the high watermark reaches the start of the epoch."""

    patch(Replica, "_lead", lead_without_rule)
    patch(list_offsets, "_require_known", tell_all_the_same)


def lead_without_rule(replica: Replica, role: Leading, own_end: int) -> None:
    """Without the leader's rule, which would raise the high watermark to what this node holds."""


@bug("the high watermark is one beyond the end of the log", "liveness", "watermark")
def high_watermark_beyond_the_end(patch: Patch) -> None:
    def advance(self: PartitionLog, offset: int) -> bool:
        if offset < self.high_watermark:
            return False
        self.high_watermark = offset + 1
        self.producers.on_high_watermark(offset)
        return True

    patch(PartitionLog, "advance_high_watermark", advance)


# ---- reading ---------------------------------------------------------------------------------------------


@bug("a read that begins inside a batch begins with the next one", "readers")
def batch_skipped(patch: Patch) -> None:
    locate = Segment.locate

    async def next_batch(self: Segment, offset: int) -> Located | None:
        found = await locate(self, offset)
        if found is None or found.header.base_offset >= offset:
            return found
        return await locate(self, found.header.next_offset)

    patch(Segment, "locate", next_batch)


@bug(
    "a look-up goes on when segments are taken away or replaced in the middle of it",
    "readers",
    "liveness",
    unseen=(
        "one broker never cuts its log under a reader, and what a compaction or retention "
        "replaces stays readable: a look-up that was overtaken finds what was right when it began"
    ),
)
def torn_reads(patch: Patch) -> None:
    async def disturbed(log: PartitionLog, look: Callable[[], Awaitable[T]]) -> T:
        if log.ended is not None:
            raise log.ended
        return await look()

    patch(reading, "_undisturbed", disturbed)


@bug("new data wakes no reader that waits for it", "liveness")
def lost_wakeup(patch: Patch) -> None:
    moved = Marks.moved

    def asleep(self: Marks, high_watermark: int, new_bytes: int) -> None:
        polls, self.polls = self.polls, {}
        moved(self, high_watermark, new_bytes)
        self.polls = polls

    patch(Marks, "moved", asleep)


@bug(
    "what comes between a reader's look and its waiting does not wake it",
    "liveness",
    unseen=(
        "takes an append within the microseconds in which a fetch, after the faults, looks at another "
        "partition"
    ),
)
def wakeup_race(patch: Patch) -> None:
    patch(fetch, "_has_moved", lambda replica, result, is_undecided: False)


@bug("requests of a connection are answered as they are done, not in their order", "world", "liveness")
def responses_out_of_order(patch: Patch) -> None:
    async def answer_one(connections: Connections, session: Session, frame: memoryview) -> None:
        connection = session.connection
        with suppress(BarnabasError):
            response = await answer(
                frame, connections._router, session.listener, connection.peer.host, connections._services
            )
            if isinstance(response, LaterAnswer):
                await response.response.wait()
                response = response.parts()
            if response is not None:
                await connection.write(response)
                connection.flush()

    async def answer_all(self: Connections, session: Session) -> None:
        reader = FrameReader(memoryview(bytearray(SCRATCH_BYTES)), self._limits.max_request_bytes)
        tasks: list[asyncio.Task[None]] = []
        try:
            while count := await session.connection.readinto(reader.buffer()):
                session.last_active = self._clock.monotonic()
                for frame in reader.received(count):
                    work = answer_one(self, session, memoryview(bytearray(frame)))
                    tasks.append(asyncio.get_running_loop().create_task(work))
        finally:
            for task in tasks:
                task.cancel()

    patch(Connections, "_answer_all", answer_all)


# ---- metadata --------------------------------------------------------------------------------------------


@bug("the controller publishes the last record of a decision, and does not write it", "world")
def decided_not_written(patch: Patch) -> None:
    batches = ActiveController._batches

    def without_the_last(self: Any, records: Any, metadata_version: int, now_ms: int) -> list[bytearray]:
        kept = records if len(records) < 2 else [*records[:-1], NoOpRecord()]
        return batches(self, kept, metadata_version, now_ms)

    patch(ActiveController, "_batches", without_the_last)


# ---- failures --------------------------------------------------------------------------------------------


@bug(
    "a log that failed takes no more appends, and nobody starts the node anew",
    "liveness",
    needs=(disk_errors,),
)
def failed_for_ever(patch: Patch) -> None:
    def fail(self: PartitionLog, error: BaseException) -> None:
        is_told = isinstance(error, StorageError)
        self.failure = error if is_told else StorageError(f"a change of {self.path} was interrupted")

    patch(PartitionLog, "fail", fail)
