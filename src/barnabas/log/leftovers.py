"""Files that a stop may leave in a partition's directory besides its segments, and their treatment.

- `.deleted` files were being removed: removed. So are `.cleaned` ones, which belong to an unfinished
  compaction, and temporary files.
- `.swap` files are the result of a finished compaction: the segments that they replace are removed, as far as
  the batches show them, and the swap is completed (the order of its steps, and why a tail of the originals
  may stay, is in `compaction/swap.py`). If a `.cleaned` file at or below their offset shows that the set was
  incomplete, the originals stay instead.
- A segment before the start of the log was being removed too, but its new name was lost: removed.
- An index without a segment is removed.
"""

from __future__ import annotations

import logging
from bisect import bisect_right

from barnabas.core.disk import Disk
from barnabas.log import names
from barnabas.log.checkpoints import TEMPORARY
from barnabas.records import kernel

logger = logging.getLogger("barnabas.log")

_SEGMENT_SUFFIXES = (names.LOG, names.INDEX, names.TIME_INDEX, names.TXN_INDEX)
_SCAN_BYTES = 1 << 20


async def tidy(disk: Disk, path: str, start_offset: int = 0) -> list[int]:
    """Finish or undo interrupted changes; returns the base offsets of the segments, ascending."""
    listed = await disk.listdir(path)
    if any(name.endswith((names.DELETED, names.CLEANED, names.SWAP, TEMPORARY)) for name in listed):
        await _clear(disk, path, listed)
        await disk.sync_dir(path)  # removed files must not come back after the next crash
        listed = await disk.listdir(path)
    bases = {base for name in listed if (base := names.parse_offset(name, names.LOG)) is not None}
    for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
        for name in listed:
            base = names.parse_offset(name, suffix)
            if base is not None and base not in bases:
                logger.warning("removing %s, which has no segment", disk.describe(f"{path}/{name}"))
                await disk.remove(f"{path}/{name}")
    return await _drop_before(disk, path, sorted(bases), start_offset)


async def _drop_before(disk: Disk, path: str, bases: list[int], start_offset: int) -> list[int]:
    """Remove the segments that end before the start of the log; there may be holes between them."""
    first = max(0, bisect_right(bases, start_offset) - 1)
    for base in bases[:first]:
        for suffix in _SEGMENT_SUFFIXES:
            await disk.remove(f"{path}/{names.offset_name(base)}{suffix}")
    if first:
        await disk.sync_dir(path)
    return bases[first:]


async def _clear(disk: Disk, path: str, listed: list[str]) -> None:
    incomplete_from = min(
        (base for name in listed if (base := _base(name, names.CLEANED)) is not None), default=None
    )
    swapped = {name: base for name in listed if (base := _base(name, names.SWAP)) is not None}
    swaps = {base for base in swapped.values() if incomplete_from is None or base < incomplete_from}
    undone = [name for name, base in swapped.items() if base not in swaps]
    for name in undone:
        await disk.remove(f"{path}/{name}")
    if undone:
        # without the `.cleaned` file, the rest of these would pass for a complete set after a crash
        await disk.sync_dir(path)
    for name in listed:
        if name.endswith((names.DELETED, names.CLEANED, TEMPORARY)):
            await disk.remove(f"{path}/{name}")
    if swaps:
        await _complete_swap(disk, path, listed, swaps)


def _base(name: str, ending: str) -> int | None:
    """The base offset in the name of a segment file that has the additional `ending`."""
    for suffix in _SEGMENT_SUFFIXES:
        base = names.parse_offset(name, suffix + ending)
        if base is not None:
            return base
    return None


async def _complete_swap(disk: Disk, path: str, listed: list[str], swaps: set[int]) -> None:
    """Remove the segments that are replaced, then rename the new files, the batches first: while these do not
    have their final names, any file that has one is an original, and is removed."""
    logs = [base for base in swaps if _swapped(base, names.LOG) in listed]
    if logs:
        start_offset = min(logs)
        # the files of the first original are removed even if nothing was kept
        end_offset = max(
            [await _next_offset(disk, f"{path}/{_swapped(base, names.LOG)}", base) for base in logs]
            + [start_offset + 1]
        )
        logger.warning("completing the compaction of %s from offset %d to %d", path, start_offset, end_offset)
        for name in listed:
            for suffix in _SEGMENT_SUFFIXES:
                base = names.parse_offset(name, suffix)
                if base is not None and start_offset <= base < end_offset:
                    await disk.remove(f"{path}/{name}")
        await disk.sync_dir(path)
    for suffix in _SEGMENT_SUFFIXES:
        for base in sorted(swaps):
            if (swapped := _swapped(base, suffix)) in listed:
                await disk.rename(f"{path}/{swapped}", f"{path}/{names.offset_name(base)}{suffix}")
        await disk.sync_dir(path)


def _swapped(base: int, suffix: str) -> str:
    return f"{names.offset_name(base)}{suffix}{names.SWAP}"


async def _next_offset(disk: Disk, path: str, base_offset: int) -> int:
    """The offset after a file's last batch."""
    file = await disk.open(path)
    position, next_offset = 0, base_offset
    while position < file.size:
        data = await file.read(position, _SCAN_BYTES)
        headers = kernel.scan_headers(data, 0, len(data))
        if not headers:
            break
        header, at = headers[-1]
        next_offset = header.next_offset
        position += at + header.size_bytes
    file.close()
    return next_offset
