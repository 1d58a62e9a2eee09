"""Bugs in what is on the disk when, and in what a start makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from barnabas.core.disk import Buffer, Disk, File, HandleClosed
from barnabas.core.errors import StorageError
from barnabas.log import checkpoints, directory, leftovers, names, recovery, trimming
from barnabas.log.checkpoints import TopicPartition
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.offset_checkpoints import OffsetCheckpoints
from barnabas.log.partition import PartitionLog
from barnabas.log.recovery import _Recovery
from barnabas.log.segment import Segment
from barnabas.log.sparse_index import CorruptIndex, OffsetIndex, TimeIndex
from barnabas.records.batch import BatchHeader
from tests.sim.bugs_switch import (
    Patch,
    bug,
    clean_stops,
    compaction,
    flushed_in_time,
    flushed_messages,
    power_losses,
    retention,
    starts,
)

# ---- what an acknowledgement means -----------------------------------------------------------------------


class _WriteBehind:
    """Appends are begun, one after another, and not waited for."""

    def __init__(self, file: File, last: list[asyncio.Task[None]]) -> None:
        self._file, self._last = file, last

    async def append(self, data: Buffer) -> None:
        before = self._last[-1:]
        self._last[:] = [asyncio.get_running_loop().create_task(self._write(bytes(data), before))]

    async def _write(self, data: bytes, before: Sequence[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        with suppress(StorageError, HandleClosed):  # nobody is left to be told
            await self._file.append(data)


@bug(
    "an append is answered when its write has begun, not when it is done", "lost", "liveness", needs=(starts,)
)
def ack_before_write(patch: Patch) -> None:
    writes: dict[Segment, list[asyncio.Task[None]]] = {}
    appendable = Segment.appendable

    def write_behind(self: Segment) -> Any:
        under_way = writes.setdefault(self, [])
        file = self.opened_file if under_way and not under_way[0].done() else appendable(self)
        return None if file is None else _WriteBehind(file, under_way)

    patch(Segment, "appendable", write_behind)


@bug(
    "flush.messages=1: the sync is begun, and not waited for", "lost", needs=(power_losses, flushed_messages)
)
def ack_before_sync(patch: Patch) -> None:
    is_appending: ContextVar[bool] = ContextVar("is_appending", default=False)
    append, flush = PartitionLog.append_as_leader, PartitionLog.flush

    async def append_as_leader(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        token = is_appending.set(True)
        try:
            return await append(self, *args, **kwargs)
        finally:
            is_appending.reset(token)

    async def in_the_background(self: PartitionLog, up_to: int | None) -> None:
        is_appending.set(False)
        with suppress(StorageError, HandleClosed):
            await flush(self, up_to)

    async def flush_later(self: PartitionLog, up_to: int | None = None) -> None:
        if is_appending.get():
            asyncio.get_running_loop().create_task(in_the_background(self, up_to))
        else:
            await flush(self, up_to)

    patch(PartitionLog, "append_as_leader", append_as_leader)
    patch(PartitionLog, "flush", flush_later)


@bug("flush.ms counts from now, and so is never over", "lost", needs=(power_losses, flushed_in_time))
def flush_ms_ignored(patch: Patch) -> None:
    always_now = property(lambda log: log.home.clock.monotonic(), lambda log, value: None)
    patch(PartitionLog, "flushed_at", always_now)


@bug(
    "the recovery point in the checkpoint is the end of the log, synced or not",
    "lost",
    "liveness",
    needs=(power_losses,),
)
def recovery_point_before_sync(patch: Patch) -> None:
    writing: ContextVar[OffsetCheckpoints] = ContextVar("writing")
    write_offsets, write_checkpoint = OffsetCheckpoints._write_offsets, checkpoints.write_offset_checkpoint

    async def note_directory(self: OffsetCheckpoints) -> None:
        writing.set(self)
        await write_offsets(self)

    async def write_ends(disk: Disk, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        if name == names.RECOVERY_POINT_CHECKPOINT and (of := writing.get(None)) is not None:
            offsets = {**offsets, **{key: log.end_offset for key, log in of._logs.items()}}
        await write_checkpoint(disk, name, offsets)

    patch(OffsetCheckpoints, "_write_offsets", note_directory)
    patch(checkpoints, "write_offset_checkpoint", write_ends)


@bug("a new topic is confirmed before the metadata is synced", "lost", "world", needs=(power_losses,))
def metadata_before_sync(patch: Patch) -> None:
    flush = PartitionLog.flush

    async def flush_data(self: PartitionLog, up_to: int | None = None) -> None:
        if not self.path.startswith("__cluster_metadata"):
            await flush(self, up_to)

    patch(PartitionLog, "flush", flush_data)


# ---- starting --------------------------------------------------------------------------------------------


@bug(
    "the mark of a clean stop is left standing: the next crash is not recovered from",
    "lost",
    "liveness",
    needs=(clean_stops,),
)
def clean_mark_left(patch: Patch) -> None:
    async def leave_it(disk: Disk) -> None:
        pass

    patch(checkpoints, "remove_clean_shutdown", leave_it)


@bug(
    "a torn batch is left in place, and appended behind",
    "liveness",
    "lost",
    "readers",
    "world",
    needs=(starts,),
)
def tail_not_cut(patch: Patch) -> None:
    async def leave_it(self: _Recovery, segment: Segment, position: int, problem: str) -> None:
        segment.size_bytes = (await segment.file()).size

    patch(_Recovery, "_cut", leave_it)


@bug(
    "after a crash the indexes are taken as they are, and as empty where they are not there",
    "lookups",
    needs=(starts,),
)
def index_not_rebuilt(patch: Patch) -> None:
    async def load_indexes(self: Segment) -> None:
        await self.file()
        for index in (self.offsets, self.times):
            try:
                await index.load()
            except CorruptIndex:
                index.forget()
        if self.times.last is not None:
            self.max_timestamp = self.times.last[0]
            self.max_timestamp_offset = self.base_offset + self.times.last[1]
        self._indexed = True

    async def pass_by(self: Segment, headers: Sequence[BatchHeader], position: int) -> int:
        return position + sum(header.size_bytes for header in headers)

    patch(Segment, "begin_rebuild", load_indexes)
    patch(Segment, "reindex", pass_by)


@bug("a look-up by time begins at the index entry after the right one", "lookups")
def time_index_off_by_one(patch: Patch) -> None:
    async def next_entry(self: TimeIndex, value: int, column: int = 0) -> tuple[int, int] | None:
        return await self.ceiling(value, column)

    patch(TimeIndex, "floor", next_entry)


@bug("a read begins at the index entry after the right one", "lost", "compacted", "readers")
def offset_index_off_by_one(patch: Patch) -> None:
    async def next_entry(self: OffsetIndex, offset: int) -> int:
        found = await self.ceiling(offset - self.base_offset)
        return 0 if found is None else found[1]

    patch(OffsetIndex, "position_before", next_entry)


@bug("the leader epochs are forgotten at a start", "lookups", needs=(starts,))
def epochs_lost(patch: Patch) -> None:
    async def forget(disk: Disk, path: str, *, is_expected: bool) -> tuple[LeaderEpochs, bool]:
        return LeaderEpochs(), True

    patch(recovery, "_read_epochs", forget)


@bug(
    "after a start the log goes on with its last offset, not with the one after it",
    "offsets",
    "readers",
    "world",
    needs=(starts,),
)
def offset_given_twice(patch: Patch) -> None:
    open_partition = directory.open_partition

    async def one_too_early(*args: Any, **kwargs: Any) -> PartitionLog:
        log = await open_partition(*args, **kwargs)
        if log.end_offset > log.start_offset and not log.path.startswith("__cluster_metadata"):
            log.end_offset -= 1
        return log

    patch(directory, "open_partition", one_too_early)


# ---- retention -------------------------------------------------------------------------------------------


@bug(
    "retention takes segments away and leaves the start of the log where it was",
    "lost",
    "liveness",
    needs=(retention,),
)
def start_offset_not_raised(patch: Patch) -> None:
    async def leave_it(log: PartitionLog, offset: int) -> None:
        pass

    patch(trimming, "raise_start_offset", leave_it)


@bug("retention goes by the first record of a segment, not by its newest", "retention", needs=(retention,))
def retention_too_early(patch: Patch) -> None:
    segment_facts = trimming.segment_facts

    async def first_timestamps(log: PartitionLog) -> list[Any]:
        facts = await segment_facts(log)
        for segment in log.segments:
            if segment.first_timestamp is None and segment.size_bytes:
                await segment.learn_first_timestamp()
        pairs = zip(facts, log.segments, strict=True)
        return [
            fact._replace(largest_timestamp_ms=fact.largest_timestamp_ms if first is None else first)
            for fact, first in ((fact, segment.first_timestamp) for fact, segment in pairs)
        ]

    patch(trimming, "segment_facts", first_timestamps)


# ---- a compaction's files at a start ---------------------------------------------------------------------


@bug(
    "a swap that a crash interrupted is not completed at the start: its files are removed",
    "lost",
    needs=(starts, compaction),
)
def swap_not_completed(patch: Patch) -> None:
    async def remove(disk: Disk, path: str, listed: list[str], swaps: set[int]) -> None:
        for name in listed:
            if name.endswith(names.SWAP):
                await disk.remove(f"{path}/{name}")

    patch(leftovers, "_complete_swap", remove)


@bug(
    "a start takes `.cleaned` files, finished or not, for the result of a compaction",
    "lost",
    "compacted",
    "world",
    needs=(starts, compaction),
)
def cleaned_believed(patch: Patch) -> None:
    clear = leftovers._clear

    async def believe(disk: Disk, path: str, listed: list[str]) -> None:
        believed = []
        for name in listed:
            if name.endswith(names.CLEANED):
                swap = name.removesuffix(names.CLEANED) + names.SWAP
                await disk.rename(f"{path}/{name}", f"{path}/{swap}")
                name = swap
            believed.append(name)
        await clear(disk, path, believed)

    patch(leftovers, "_clear", believe)
