"""The metadata log of a directory, replayed as a node would, to see whether one could go on from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from barnabas.broker.settings.unenforced import ALLOW, UnenforcedSecurity, refuse_unenforced
from barnabas.cli.checks.findings import Finding, ok, problem
from barnabas.cli.dump.batches import FoundBatch, walk
from barnabas.cli.dump.segments import segment_files
from barnabas.cli.output import counted
from barnabas.core.errors import BarnabasError, InvariantViolation
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import decode_record
from barnabas.metadata.replay import Replayer, replay_all
from barnabas.metadata.versions import LATEST_METADATA_VERSION, OLDEST_METADATA_VERSION
from barnabas.protocol.schema import Message
from barnabas.raft.snapshot import CHECKPOINT, SnapshotId, parse_snapshot_name
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import read_batch


def check_metadata(directory: Path) -> tuple[list[Finding], ClusterImage | None]:
    """What is to be said of the metadata, and the image it comes to, None where it cannot be read."""
    try:
        image, replayed = _replay(directory)
    except (BarnabasError, InvariantViolation) as error:
        return [problem(f"the metadata cannot be read: {error}", "restore the directory from a copy")], None
    return list(_findings(directory, image, replayed)), image


def _replay(directory: Path) -> tuple[ClusterImage, int]:
    """The image that the newest snapshot and the log come to, and how many records made it."""
    found = sorted(
        snapshot
        for each in directory.glob(f"*{CHECKPOINT}")
        if (snapshot := parse_snapshot_name(each.name)) is not None
    )
    newest = found[-1] if found else SnapshotId(0, 0)
    image, replayed = ClusterImage(newest.end_offset, newest.epoch), 0
    if found:
        records = [each for _, batch in _batches(directory / newest.name, 0) for each in batch]
        image, replayed = replay_all(image, records), len(records)
    replayer = Replayer(image)
    for segment in segment_files(directory):
        for header, batch in _batches(segment, newest.end_offset):
            replayer.load(header.base_offset, header.leader_epoch, batch)
            replayed += len(batch)
    replayer.finish()
    return replayer.image, replayed


def _batches(path: Path, first_offset: int) -> Iterator[tuple[BatchHeader, list[Message]]]:
    """The batches of metadata records in a file, from an offset on; a torn batch at its end is left out."""
    for found in walk(path, bodies=True):
        if not isinstance(found, FoundBatch) or found.header.is_control:
            continue
        if found.header.base_offset >= first_offset:
            yield found.header, [decode_record(each.value or b"") for each in read_batch(found.data)]


def _findings(directory: Path, image: ClusterImage, replayed: int) -> Iterator[Finding]:
    topics, version = image.topics_by_name, image.metadata_version
    partitions = sum(len(topic.partitions) for topic in topics.values())
    yield ok(
        f"metadata: {counted(replayed, 'record')} of {counted(len(topics), 'topic')}, "
        f"{counted(partitions, 'partition')} and {counted(len(image.brokers), 'broker')}, "
        f"metadata.version {version}"
    )
    if not OLDEST_METADATA_VERSION <= version <= LATEST_METADATA_VERSION:
        yield problem(
            f"metadata.version {version} is not from {OLDEST_METADATA_VERSION} to {LATEST_METADATA_VERSION}",
            "bring it there with Apache Kafka's kafka-features.sh first",
        )
    try:
        refuse_unenforced(image, str(directory), allowed=False)
    except UnenforcedSecurity as error:
        what = str(error).partition(". ")[0]
        yield problem(what, f"remove them with Apache Kafka, or start with {ALLOW}=true, without protection")
