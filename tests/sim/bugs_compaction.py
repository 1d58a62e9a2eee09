"""Bugs in compaction: what stays, where it stands, how it gets into place, and whether it comes at all."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from barnabas.core.disk import Buffer
from barnabas.log import names
from barnabas.log.compaction import cleaner, cleaning, swap
from barnabas.log.compaction.cleaner import Cleaner
from barnabas.log.compaction.replacement import Replacement
from barnabas.log.partition import PartitionLog
from barnabas.log.side_files import SideFiles
from barnabas.records import _pure_compact, kernel
from barnabas.records.batch import DELETE_HORIZON_FLAG, NO_TIMESTAMP, BatchHeader
from tests.sim.bugs_switch import Patch, bug, compaction, power_losses, prompt_compaction, starts

# The compiled kernel cannot be patched from outside; its twin says the same.


def _use_twin(patch: Patch, offset_map: type[_pure_compact.OffsetMap], batch_filter: Any) -> None:
    patch(cleaner, "OffsetMap", offset_map)
    patch(cleaning, "BatchFilter", batch_filter)


# ---- what stays ------------------------------------------------------------------------------------------


@bug(
    "the map notes the offset after the latest: the latest goes, too",
    "lost",
    "compacted",
    needs=(compaction,),
)
def map_off_by_one(patch: Patch) -> None:
    class OffsetMap(_pure_compact.OffsetMap):
        def get(self, key: bytes) -> int:
            found = super().get(key)
            return found + 1 if found >= 0 else found

    _use_twin(patch, OffsetMap, _pure_compact.BatchFilter)


@bug("the value before the latest stays in the latest one's place", "compacted", "lost", needs=(compaction,))
def superseded_kept(patch: Patch) -> None:
    class OffsetMap(_pure_compact.OffsetMap):
        def __init__(self, memory_bytes: int, hash_key: bytes) -> None:
            super().__init__(memory_bytes, hash_key)
            self.before: dict[bytes, int] = {}

        def put(self, key: bytes, offset: int) -> None:
            self.before[key] = super().get(key)
            super().put(key, offset)

    class BatchFilter(_pure_compact.BatchFilter):
        def _stays(self, section: memoryview, record: Any, header: Any) -> bool:
            key = bytes(section[record.key_at : record.key_at + record.key_size])
            before = self._offsets.before.get(key, -1)  # type: ignore[attr-defined]
            if before < 0:
                return super()._stays(section, record, header)
            offset = header.base_offset + record.offset_delta
            return bool(offset == before or offset > self._offsets.latest_offset)

    _use_twin(patch, OffsetMap, BatchFilter)


@bug("keys are told apart by two bits of their hash", "lost", "compacted", needs=(compaction,))
def keys_confused(patch: Patch) -> None:
    class OffsetMap(_pure_compact.OffsetMap):
        def _hash(self, key: bytes) -> bytes:
            return bytes([super()._hash(key)[0] & 3])

    _use_twin(patch, OffsetMap, _pure_compact.BatchFilter)


@bug(
    "delete.retention.ms counts for nothing: a tombstone goes with the second pass",
    "lost",
    "compacted",
    needs=(compaction,),
)
def tombstone_dropped_early(patch: Patch) -> None:
    batch_filter = cleaning.BatchFilter

    def without_retention(offsets: Any, kept: Any, end: int, now_ms: int, retention_ms: int) -> Any:
        return batch_filter(offsets, kept, end, now_ms, 0)

    patch(cleaning, "BatchFilter", without_retention)


@bug(
    "a tombstone's time begins anew with every pass, so that it never goes",
    "liveness",
    needs=(prompt_compaction,),
)
def tombstone_for_ever(patch: Patch) -> None:
    class BatchFilter(_pure_compact.BatchFilter):
        def _stays(self, section: memoryview, record: Any, header: Any) -> bool:
            return super()._stays(section, record, header._replace(attributes=header.attributes & ~0x40))

    _use_twin(patch, _pure_compact.OffsetMap, BatchFilter)


@bug("a tombstone goes with the first pass, with what it deletes", "lost", "compacted", needs=(compaction,))
def tombstone_not_kept(patch: Patch) -> None:
    class BatchFilter(_pure_compact.BatchFilter):
        def _stays(self, section: memoryview, record: Any, header: Any) -> bool:
            offset = header.base_offset + record.offset_delta
            is_seen = offset <= self._offsets.latest_offset
            return super()._stays(section, record, header) and not (is_seen and record.value_size < 0)

    _use_twin(patch, _pure_compact.OffsetMap, BatchFilter)


@bug(
    "neither a producer's last batch nor a snapshot tells of it after a compaction",
    "duplicates",
    needs=(starts, compaction),
    unseen=("takes a batch that was superseded and compacted away while its producer still tries to send it"),
)
def producers_compacted_away(patch: Patch) -> None:
    batch_filter = cleaning.BatchFilter

    def keep_none(offsets: Any, kept: Any, end: int, now_ms: int, retention_ms: int) -> Any:
        return batch_filter(offsets, array("q"), end, now_ms, retention_ms)

    async def no_snapshot(self: SideFiles, end_offset: int, producers: Any) -> None:
        pass

    patch(cleaning, "BatchFilter", keep_none)
    patch(SideFiles, "write_snapshot", no_snapshot)


@bug("what stays is numbered anew, without gaps", "offsets", "duplicates", needs=(compaction,))
def offsets_renumbered(patch: Patch) -> None:
    append = Replacement.append

    async def renumber(self: Replacement, data: Buffer) -> None:
        renumbered, position, offset = bytearray(data), 0, self.next_offset
        for header in kernel.scan(data, 0, len(data), False)[0]:
            kernel.assign(renumbered, position, offset, header.leader_epoch)
            position += header.size_bytes
            offset += header.last_offset_delta + 1
        await append(self, renumbered)

    patch(Replacement, "append", renumber)


@bug(
    "a tombstone's time takes the place of the first timestamp, on which the others go on counting",
    "readers",
    "offsets",
    needs=(compaction,),
)
def timestamps_not_rebased(patch: Patch) -> None:
    rebuilt = _pure_compact._rebuilt

    def keep_deltas(view: memoryview, header: BatchHeader, kept: list[Any], horizon_ms: int) -> bytearray:
        batch = rebuilt(view, header, kept, NO_TIMESTAMP)
        if horizon_ms < 0:
            return batch
        header = BatchHeader.parse(batch)
        return _pure_compact._finished(header, batch, len(kept), horizon_ms, DELETE_HORIZON_FLAG)

    _use_twin(patch, _pure_compact.OffsetMap, _pure_compact.BatchFilter)
    patch(_pure_compact, "_rebuilt", keep_deltas)


# ---- the swap --------------------------------------------------------------------------------------------


@bug("the originals go before the new segment is announced as theirs", "lost", needs=(starts, compaction))
def swap_not_announced(patch: Patch) -> None:
    rename = swap._rename

    async def not_yet(log: PartitionLog, base_offset: int, suffixes: Sequence[str]) -> None:
        pass

    async def from_cleaned(
        log: PartitionLog, base_offset: int, suffixes: Sequence[str], ending: str, new_ending: str
    ) -> None:
        await rename(log, base_offset, suffixes, names.CLEANED, new_ending)

    patch(swap, "_announce", not_yet)
    patch(swap, "_rename", from_cleaned)


@bug(
    "the names of a swap are not synced, and neither is what is in the new segment",
    "lost",
    "liveness",
    needs=(power_losses, compaction),
)
def swap_not_durable(patch: Patch) -> None:
    async def rename(
        log: PartitionLog, base_offset: int, suffixes: Sequence[str], ending: str, new_ending: str
    ) -> None:
        for suffix in suffixes:
            path = swap._path(log, base_offset, suffix)
            await log.home.disk.rename(path + ending, path + new_ending)

    async def finish(self: Replacement, modified_ms: int) -> None:
        segment = self._segment
        segment.times.add(segment.max_timestamp, segment.max_timestamp_offset)
        await segment.offsets.seal()
        await segment.times.seal()
        segment.close()

    patch(swap, "_rename", rename)
    patch(Replacement, "finish", finish)


@bug("nothing is ever compacted", "liveness", needs=(prompt_compaction,))
def compaction_never_runs(patch: Patch) -> None:
    async def nothing(self: Cleaner) -> int:
        return 0

    patch(Cleaner, "clean_all", nothing)
