"""The metadata log of a directory, replayed as a node would, to see whether one could go on from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from barnabas.broker.settings.unenforced import ALLOW, UnenforcedSecurity, refuse_unenforced
from barnabas.cli.checks.findings import Finding, ok, problem, warning
from barnabas.cli.dump.batches import FoundBatch, walk
from barnabas.cli.dump.segments import segment_files
from barnabas.cli.output import counted
from barnabas.core.errors import BarnabasError, InvariantViolation
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import decode_record
from barnabas.metadata.versions import LATEST_METADATA_VERSION, OLDEST_METADATA_VERSION
from barnabas.raft.snapshot import CHECKPOINT, SnapshotId, parse_snapshot_name
from barnabas.records.reader import read_batch


def check_metadata(directory: Path) -> tuple[list[Finding], ClusterImage | None]:
    """What is to be said of the metadata, and the image it comes to, None where it cannot be read."""
    image = ClusterImage()
    try:
        replayed = _replay(directory, image)
    except (BarnabasError, InvariantViolation) as error:
        return [problem(f"the metadata cannot be read: {error}", "restore the directory from a copy")], None
    return list(_findings(directory, image, replayed)), image


def _replay(directory: Path, image: ClusterImage) -> int:
    found = sorted(
        snapshot
        for each in directory.glob(f"*{CHECKPOINT}")
        if (snapshot := parse_snapshot_name(each.name)) is not None
    )
    newest = found[-1] if found else SnapshotId(0, 0)
    replayed = 0
    if found:
        for value in _values(directory / newest.name, 0):
            image.replay(decode_record(value))
            replayed += 1
    for segment in segment_files(directory):
        for value in _values(segment, newest.end_offset):
            image.replay(decode_record(value))
            replayed += 1
    return replayed


def _values(path: Path, first_offset: int) -> Iterator[bytes]:
    """The values of the metadata records in a file, from an offset on; what is torn at its end is left."""
    for found in walk(path, bodies=True):
        if isinstance(found, FoundBatch) and not found.header.is_control:
            for record in read_batch(found.data):
                if record.offset >= first_offset:
                    yield record.value or b""


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
        what = str(error).removeprefix("Refusing to start: ").partition(". ")[0]
        yield problem(what, f"remove them with Apache Kafka, or start with {ALLOW}=true, without protection")
    if len(image.brokers) > 1:
        yield warning(
            f"the cluster has {len(image.brokers)} brokers, and this directory is one's of them",
            "a node here serves the partitions it leads; the others must run, too",
        )
