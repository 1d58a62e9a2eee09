"""Replacing segments by a compacted one: a crash leaves the originals or the replacement.

The steps, each durable before the next begins:

1. The new files are complete, as `.cleaned` (see `replacement`). 2. They are renamed `.swap`. While one of
   them is still `.cleaned` a start undoes this; afterwards a start completes the swap (see `leftovers`). 3.
   The originals are renamed `.deleted`. 4. The new batches get their final name, then their indexes do: an
   index with its final name beside batches that do not have theirs yet would be taken for an original's.

A start that finds `.swap` files removes the originals up to the end of the new batches. It cannot tell
originals beyond that, of which no record was kept, from other segments. So these remain at first, and are
removed afterwards, one after another, the lowest first, their batches before their indexes. What is left of a
group is then always its tail, and the records that supersede others, or decide transactions, come after them.
A tail after the new segment therefore says nothing that the whole group did not say.

Each change takes the log's lock, but the removal of a tail is not one change: it may have hundreds of
segments, and each takes a sync. Readers do not notice: they can read a pinned original to its end, and
look-ups start over. If step 2 fails it is undone, and the log is unchanged; a failure after that leaves the
files in doubt, and the log refuses changes until it is reopened. Reads go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.log import names
from barnabas.log.compaction.replacement import Replacement
from barnabas.log.compaction.throttle import GivenUp
from barnabas.log.partition import Doomed, PartitionLog, new_segment
from barnabas.log.segment import Segment


class Stand:
    """The segments that a cleaning works on: those below its first uncleanable offset."""

    def __init__(self, log: PartitionLog, end_offset: int) -> None:
        count = sum(base_offset < end_offset for base_offset in log.bases)
        self._log = log
        self._end_offset = end_offset
        self._sizes = [segment.size_bytes for segment in log.segments[:count]]
        self.segments = log.segments[:count]

    def require(self) -> None:
        """GivenUp if the log does not have exactly these segments any more: known facts may not hold."""
        log, count = self._log, len(self.segments)
        found = log.segments[:count]
        if (
            not self.segments
            or len(log.segments) <= count
            or any(a is not b for a, b in zip(found, self.segments, strict=True))
            or [segment.size_bytes for segment in found] != self._sizes
            or log.recovery_point < self._end_offset
        ):
            raise GivenUp(f"{log.path} was cut at one of its ends meanwhile")

    def replace(self, originals: Sequence[Segment], instead: Sequence[Segment]) -> None:
        first = self.segments.index(originals[0])
        self.segments[first : first + len(originals)] = instead
        self._sizes[first : first + len(originals)] = [segment.size_bytes for segment in instead]


async def swap_in(
    log: PartitionLog, stand: Stand, originals: Sequence[Segment], replacement: Replacement
) -> None:
    """Replace the originals by the finished replacement; GivenUp if they are not in the log any more."""
    tail = [one for one in originals[1:] if one.base_offset >= replacement.next_offset]
    replaced = originals[: len(originals) - len(tail)]
    async with log.turn:
        log.require_sound()
        stand.require()
        suffixes = await replacement.files()
        await _announce(log, replacement.base_offset, suffixes)
        log.side.names_changed()
        with log.reshaping():
            paths = await _take_out(log, replaced)
            await _rename(log, replacement.base_offset, suffixes[:1], names.SWAP, "")
            await _rename(log, replacement.base_offset, suffixes[1:], names.SWAP, "")
            segment = new_segment(log.home, log.path, log.config, replacement.base_offset)
            await segment.file()
            _publish(log, replaced, [segment], paths)
        stand.replace(replaced, [segment])
    for original in tail:
        await _drop(log, stand, original)


async def _drop(log: PartitionLog, stand: Stand, original: Segment) -> None:
    """Remove a segment of which no record was kept, without a replacement."""
    async with log.turn:
        log.require_sound()
        stand.require()
        log.side.names_changed()
        with log.reshaping():
            gone = [await original.doom_batches()]
            await log.home.disk.sync_dir(log.path)  # the aborted transactions must not be gone before them
            gone += await _doom_beside(log, original)
            _publish(log, [original], [], [tuple(gone)])
        stand.replace([original], [])


async def _announce(log: PartitionLog, base_offset: int, suffixes: Sequence[str]) -> None:
    """Step 2: rename the new files to `.swap`."""
    try:
        await _rename(log, base_offset, suffixes, names.CLEANED, names.SWAP)
    except BaseException:
        try:
            await _withdraw(log, base_offset, suffixes)
        except BaseException as error:
            log.fail(error)  # a start would complete the swap, whatever happens to the log until then
            raise
        raise


async def _withdraw(log: PartitionLog, base_offset: int, suffixes: Sequence[str]) -> None:
    """Undo step 2, however far it got. While one file is `.cleaned` the others are ignored; a crash that left
    some `.swap` files and no `.cleaned` one would give the originals other indexes."""
    disk, batches = log.home.disk, _path(log, base_offset, names.LOG)
    if await disk.size_of(batches + names.SWAP) is not None:
        await disk.rename(batches + names.SWAP, batches + names.CLEANED)
        await disk.sync_dir(log.path)
    for suffix in suffixes[1:]:
        await disk.remove(_path(log, base_offset, suffix + names.SWAP))
    await disk.sync_dir(log.path)


async def _take_out(log: PartitionLog, replaced: Sequence[Segment]) -> list[tuple[str, ...]]:
    """Step 3: rename the originals to `.deleted`; returns the new paths of each original's files."""
    batches = [await segment.doom_batches() for segment in replaced]
    beside = [await _doom_beside(log, segment, is_first=segment is replaced[0]) for segment in replaced]
    await log.home.disk.sync_dir(log.path)
    return [(path, *others) for path, others in zip(batches, beside, strict=True)]


async def _doom_beside(log: PartitionLog, original: Segment, *, is_first: bool = False) -> list[str]:
    """Rename the files beside the batches to `.deleted`; returns the new paths."""
    gone = await original.doom_indexes()
    snapshot = log.side.snapshot_path(original.base_offset)
    # the producer snapshot of a segment is removed with it, except for the newest, which a start needs
    is_needed = is_first or original.base_offset == log.side.snapshot_offset
    if not is_needed and await log.home.disk.size_of(snapshot) is not None:
        await log.home.disk.rename(snapshot, snapshot + names.DELETED)
        gone.append(snapshot + names.DELETED)
    return gone


def _publish(
    log: PartitionLog,
    originals: Sequence[Segment],
    instead: Sequence[Segment],
    paths: Sequence[tuple[str, ...]],
) -> None:
    first = log.segments.index(originals[0])
    log.segments = [*log.segments[:first], *instead, *log.segments[first + len(originals) :]]
    log.bases = [one.base_offset for one in log.segments]
    due_at = log.home.clock.monotonic() + log.config.file_delete_delay_ms / 1000
    log.doomed += [Doomed(due_at, one, gone) for one, gone in zip(originals, paths, strict=True)]


async def _rename(
    log: PartitionLog, base_offset: int, suffixes: Sequence[str], ending: str, new_ending: str
) -> None:
    """Replace the ending of the files with these suffixes; durable on return."""
    for suffix in suffixes:
        path = _path(log, base_offset, suffix)
        await log.home.disk.rename(path + ending, path + new_ending)
    await log.home.disk.sync_dir(log.path)


def _path(log: PartitionLog, base_offset: int, suffix: str) -> str:
    return f"{log.path}/{names.offset_name(base_offset)}{suffix}"
