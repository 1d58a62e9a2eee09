"""The names of files and directories in a log directory: Kafka's, so that each can read the other's data.

A segment's files have its base offset in twenty digits, so that sorting by name sorts by offset. A
partition's directory is `<topic>-<partition>`; one that is being deleted, moved in or set aside has a unique
id and a kind after a dot. Parsing is strict: it accepts exactly the names that the functions here make, so
that a stray file is never taken for data.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple
from uuid import UUID

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
# appended to one of the above: waiting for removal; written by a compaction; about to replace an original
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

# in a partition's directory
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
# at the root of a log directory
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
LOCK = ".lock"

OFFSET_DIGITS = 20
MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1
# the longest name on common file systems
MAX_NAME_CHARS = 255


def offset_name(offset: int) -> str:
    """The stem of a segment's files: its base offset, in twenty digits."""
    return f"{offset:020d}"


def parse_offset(name: str, suffix: str) -> int | None:
    """The offset in the file name `<twenty digits><suffix>`; None for any other name."""
    stem = name.removesuffix(suffix)
    if len(stem) != OFFSET_DIGITS or stem + suffix != name or not (stem.isascii() and stem.isdecimal()):
        return None
    offset = int(stem)
    return offset if offset <= MAX_OFFSET else None


class DirectoryKind(enum.Enum):
    """The purpose of a partition's directory."""

    LIVE = "live"
    DELETE = "delete"  # the partition was deleted; the files are removed in the background
    FUTURE = "future"  # a copy moving in from another log directory
    STRAY = "stray"  # the cluster no longer assigns it here; kept for the operator


class PartitionDirectory(NamedTuple):
    """The parts of a partition directory's name; a long topic may be cut short if the kind is not live."""

    topic: str
    partition: int
    kind: DirectoryKind


_PARTITION = re.compile(r"(?P<topic>\S+)-(?P<partition>0|[1-9][0-9]{0,9})")
_MARKED = re.compile(r"(?P<live>\S+)\.[^\s.]+-(?P<kind>delete|future|stray)")


def partition_directory(topic: str, partition: int) -> str:
    """The directory of a partition in use."""
    return f"{topic}-{partition}"


def marked_directory(topic: str, partition: int, kind: DirectoryKind, unique: UUID) -> str:
    """The directory of a partition that is being deleted, moved in or set aside.

    The longest topic names leave no room for the mark, so the topic is cut to fit. A future directory keeps
    the whole name, since it will become a live one.
    """
    mark = f"-{partition}.{unique.hex}-{kind.value}"
    if kind is DirectoryKind.FUTURE:
        return topic + mark
    return topic[: MAX_NAME_CHARS - len(mark)] + mark


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """The parts of a directory's name; None if it is not a partition's."""
    kind = DirectoryKind.LIVE
    if name.endswith(("-delete", "-future", "-stray")):
        marked = _MARKED.fullmatch(name)
        if marked is None:
            return None
        name, kind = marked["live"], DirectoryKind(marked["kind"])
    match = _PARTITION.fullmatch(name)
    if match is None or int(match["partition"]) > MAX_PARTITION:
        return None
    return PartitionDirectory(match["topic"], int(match["partition"]), kind)
