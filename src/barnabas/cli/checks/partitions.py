"""The partitions of a log directory: how much they hold, and whether their files are in order.

Without `verify` only the last segment of each is walked through, by its batches' headers: that is where a
crash leaves its traces. With it every byte of every segment is read, and indexes are held against them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

from barnabas.cli.checks.findings import Finding, ok, problem, warning
from barnabas.cli.dump.contents import what_is
from barnabas.cli.dump.segments import Survey, check_index, segment_files, survey
from barnabas.cli.dump.side_files import epoch_checkpoint, properties
from barnabas.cli.output import bytes_text, counted
from barnabas.core.errors import BarnabasError
from barnabas.log import names
from barnabas.log.checkpoints import TEMPORARY, uuid_from_text
from barnabas.log.names import DirectoryKind, PartitionDirectory, parse_partition_directory
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.names import CLUSTER_METADATA

_ON_THE_WAY = (names.DELETED, names.CLEANED, names.SWAP, TEMPORARY)
_SHOWN = 5


class PartitionsSeen:
    """What the partitions of a directory come to."""

    def __init__(self) -> None:
        self.partitions = 0
        self.segments = 0
        self.size_bytes = 0
        self.torn: list[str] = []
        self.broken: list[str] = []
        self.mendable: list[str] = []
        self.strays: list[str] = []
        self.leftover_files: list[Path] = []
        self.strangers: list[Path] = []

    def findings(self, *, is_used: bool, was_clean: bool, verified: bool) -> Iterator[Finding]:
        """All this, judged by whether a node is running, and whether the last one stopped cleanly."""
        how = "every byte read" if verified else "their ends looked at"
        yield ok(
            f"{counted(self.partitions, 'partition')}, {counted(self.segments, 'segment')}, "
            f"{bytes_text(self.size_bytes)}; {how}"
        )
        for text in _some(self.broken):
            yield problem(text, "restore the partition from a copy, or delete the topic")
        for text in _some(self.torn):
            if is_used:
                yield warning(text, "nothing, if it is being written to just now; look again")
            elif was_clean:
                yield problem(text, "the stop was clean, so this happened later: restore from a copy")
            else:
                yield warning(text, "nothing: the next start cuts it off; it was not synced")
        for text in _some(self.mendable):
            yield warning(text, "nothing: the next start makes it anew")
        if self.strays:
            shown = ", ".join(self.strays[:_SHOWN])
            yield warning(
                f"{counted(len(self.strays), 'partition')} of no topic in the metadata: {shown}",
                "the next start sets them aside as ...-stray; nothing is deleted",
            )


def _some(texts: list[str]) -> Iterator[str]:
    yield from texts[:_SHOWN]
    if len(texts) > _SHOWN:
        yield f"and {len(texts) - _SHOWN} more of the kind"


def look_at_partitions(
    path: Path,
    recovery_points: Mapping[tuple[str, int], int],
    image: ClusterImage | None,
    *,
    verify: bool,
    surveyed: Callable[[Survey], None],
) -> PartitionsSeen:
    """Look at every partition in a directory; `surveyed` is told of each segment that was read."""
    seen = PartitionsSeen()
    for each in sorted(path.iterdir()):
        parsed = parse_partition_directory(each.name) if each.is_dir() else None
        if parsed is not None and parsed.kind is DirectoryKind.LIVE:
            recovery_point = recovery_points.get((parsed.topic, parsed.partition), 0)
            end = _look_at(each, parsed, image, seen, verify=verify, surveyed=surveyed)
            if end is not None and end < recovery_point:
                seen.broken.append(f"{each.name} ends at {end}, but was synced up to {recovery_point} once")
    return seen


def _look_at(
    directory: Path,
    parsed: PartitionDirectory,
    image: ClusterImage | None,
    seen: PartitionsSeen,
    *,
    verify: bool,
    surveyed: Callable[[Survey], None],
) -> int | None:
    """Look at one partition; gives its end offset, None where it has no segment."""
    seen.partitions += 1
    for file in sorted(directory.iterdir()):
        if file.name.endswith(_ON_THE_WAY):
            seen.leftover_files.append(file)
        elif what_is(file) is None and not _is_metadatas(file, parsed):
            seen.strangers.append(file)
        seen.size_bytes += file.stat().st_size
    segments = list(segment_files(directory))
    seen.segments += len(segments)
    _look_at_ids(directory, parsed, image, seen)
    previous: Survey | None = None
    for segment in segments if verify else segments[-1:]:
        found = survey(segment, verify=verify)
        surveyed(found)
        _judge(segment, found, previous, segment == segments[-1], seen)
        if verify:
            _look_at_indexes(segment, found, seen)
        previous = found
    if previous is None:
        return None
    return previous.base_offset if previous.last_offset is None else previous.last_offset + 1


def _is_metadatas(file: Path, parsed: PartitionDirectory) -> bool:
    """The metadata log keeps snapshots that are unfinished, gone or corrupt under names of their own."""
    return parsed.topic == CLUSTER_METADATA and ".checkpoint" in file.name


def _judge(
    segment: Path, found: Survey, previous: Survey | None, is_last: bool, seen: PartitionsSeen
) -> None:
    where = f"{segment.parent.name}/{segment.name}"
    for text in found.problems:
        is_tail = found.tail is not None and text.endswith(found.tail.reason)
        (seen.torn if is_tail and is_last else seen.broken).append(f"{where}: {text}")
    ended = -1 if previous is None or previous.last_offset is None else previous.last_offset
    if found.base_offset is not None and ended >= found.base_offset:
        seen.broken.append(f"{where} begins at {found.base_offset}, but {ended} stands before it")


def _look_at_indexes(segment: Path, found: Survey, seen: PartitionsSeen) -> None:
    for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
        index = segment.with_suffix(suffix)
        if index.exists():
            where = f"{segment.parent.name}/{index.name}"
            seen.mendable += [f"{where}: {text}" for text in check_index(index, found)]


def _look_at_ids(
    directory: Path, parsed: PartitionDirectory, image: ClusterImage | None, seen: PartitionsSeen
) -> None:
    epochs, metadata = directory / names.LEADER_EPOCH_CHECKPOINT, directory / names.PARTITION_METADATA
    try:
        if epochs.exists():
            epoch_checkpoint(epochs)
    except BarnabasError as error:
        seen.mendable.append(str(error))
    topic_id: UUID | None = None
    try:
        if metadata.exists():
            topic_id = uuid_from_text(properties(metadata)[0].get("topic_id", ""))
    except ValueError as error:
        seen.broken.append(f"{directory.name}/{names.PARTITION_METADATA}: {error}")
    if image is None or topic_id is None or parsed.topic == CLUSTER_METADATA:
        return
    topic = image.topic_by_id(topic_id.bytes)
    if topic is None or topic.name != parsed.topic or topic.partition(parsed.partition) is None:
        seen.strays.append(directory.name)
