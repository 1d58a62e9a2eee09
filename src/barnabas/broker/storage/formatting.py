"""A log directory before its first start: the check of its owner, and its formatting when it is new.

A new directory is formatted as by Kafka's storage tool. It gets the ids (`meta.properties`) and the cluster's
initial features (`bootstrap.checkpoint`). The metadata directory also gets the voters of a new quorum, if
they are given, in a snapshot at the start of the metadata log. A `server.properties` with which Apache Kafka
can start on the directory may be written besides. `meta.properties` is written last and makes the directory
formatted: what a crash leaves before that is written again. A directory with any other content may belong to
something else, and is refused. A directory that is added to a node later gets only its ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from barnabas.core.disk import Disk
from barnabas.core.errors import BarnabasError
from barnabas.core.settings.properties import format_properties
from barnabas.log import checkpoints, names
from barnabas.log.checkpoints import TEMPORARY, MetaProperties
from barnabas.metadata.records import encode_record
from barnabas.protocol.schema import Message
from barnabas.raft.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from barnabas.raft.snapshot import BOOTSTRAP_CHECKPOINT, CHECKPOINT, SnapshotId, build_snapshot

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
METADATA_DIRECTORY = names.partition_directory(METADATA_TOPIC, 0)
SERVER_PROPERTIES = "server.properties"
# the kraft.version in which the voters are in the log
KRAFT_VERSION = 1
_SUPPORTED_KRAFT = KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION)

# files that an unfinished formatting may have left, or that an unformatted directory may have
_HARMLESS = {
    names.LOCK,
    "lost+found",
    METADATA_DIRECTORY,
    BOOTSTRAP_CHECKPOINT,
    SERVER_PROPERTIES,
    SERVER_PROPERTIES + TEMPORARY,
    names.RECOVERY_POINT_CHECKPOINT,
    names.META_PROPERTIES + TEMPORARY,
}


# and in the metadata log's directory
_VOTERS = SnapshotId(0, 0).name
_OF_FORMATTING = (_VOTERS.removesuffix(CHECKPOINT), names.PARTITION_METADATA)


class InitialVoter(NamedTuple):
    """A voter of a new quorum: the node, its controller's address, and its metadata directory."""

    node_id: int
    host: str
    port: int
    directory_id: UUID


class DirectoryRefused(BarnabasError):
    """The directory belongs to another node or cluster, or to another program."""


async def check_directory(disk: Disk, node_id: int) -> MetaProperties | None:
    """The owner of a directory, which must be this node; None for a new directory, which is to be
    formatted."""
    where = disk.describe("")
    await _refuse_old_formats(disk)
    meta = await checkpoints.read_meta_properties(disk)
    if meta is None:
        if strange := await _strangers(disk):
            raise DirectoryRefused(
                f"{where} has no {names.META_PROPERTIES} but is not empty (it holds {strange[0]}): "
                "give the node an empty directory, or the one it had"
            )
        return None
    if meta.node_id != node_id:
        raise DirectoryRefused(
            f"{where} belongs to node.id {meta.node_id}, this is node.id {node_id}: "
            f"start with node.id={meta.node_id}, or with another directory"
        )
    if meta.directory_id is None:
        raise DirectoryRefused(
            f"{where} has no directory.id in its {names.META_PROPERTIES}, as before Kafka 3.7: "
            "start Apache Kafka 4.3 on it once, which adds it"
        )
    return meta


async def _refuse_old_formats(disk: Disk) -> None:
    data = await checkpoints.read_whole(disk, names.META_PROPERTIES) or b""
    if b"version=0" in data.split():
        raise DirectoryRefused(
            f"{disk.describe(names.META_PROPERTIES)} is of version 0: the directory is that of a broker that "
            "used ZooKeeper; migrate the cluster to KRaft with Apache Kafka 3.9 first"
        )


async def _strangers(disk: Disk) -> list[str]:
    """The files in the directory that formatting does not leave behind."""
    found = [name for name in await disk.listdir("") if name not in _HARMLESS]
    inside = await disk.listdir(METADATA_DIRECTORY)
    return found + [f"{METADATA_DIRECTORY}/{name}" for name in inside if not name.startswith(_OF_FORMATTING)]


async def format_directory(
    disk: Disk,
    meta: MetaProperties,
    *,
    bootstrap: Sequence[Message],
    voters: Sequence[InitialVoter] = (),
    listener: str = "",
    properties: Mapping[str, str] | None = None,
    now_ms: int,
) -> MetaProperties:
    """Format a new directory for this node; returns the directory's owner.

    `bootstrap` are the records with which the cluster begins (its features), `voters` those of a new quorum,
    reached by the controller listener with the name `listener`; `properties` are the contents of
    `server.properties`.
    """
    features = build_snapshot([encode_record(record) for record in bootstrap], now_ms)
    await disk.mkdir("")
    release = await disk.lock(names.LOCK)
    try:
        if (found := await check_directory(disk, meta.node_id)) is not None:
            return found  # another process formatted it between the check and the lock
        await disk.remove_tree(METADATA_DIRECTORY)  # of an unfinished formatting
        if voters:
            await _write_voters(disk, voters, listener, now_ms)
        await _write(disk, BOOTSTRAP_CHECKPOINT, features)
        if properties is not None and not await disk.size_of(SERVER_PROPERTIES):  # a user's own is kept
            text = format_properties(properties)
            await checkpoints.write_atomically(disk, SERVER_PROPERTIES, text.encode())
        await disk.sync_dir("")
        await checkpoints.write_meta_properties(disk, meta)
    finally:
        release()
    return meta


async def _write_voters(disk: Disk, voters: Sequence[InitialVoter], listener: str, now_ms: int) -> None:
    """Write the snapshot at the start of a log that holds its voters."""
    quorum = [
        KRaftVersionRecord(k_raft_version=KRAFT_VERSION),
        VotersRecord(voters=[make_voter(each, listener) for each in sorted(voters)]),
    ]
    await disk.mkdir(METADATA_DIRECTORY)
    data = build_snapshot((), now_ms, controls=quorum, last_contained_ms=now_ms)
    await _write(disk, f"{METADATA_DIRECTORY}/{_VOTERS}", data)
    await disk.sync_dir(METADATA_DIRECTORY)


async def format_further(disk: Disk, meta: MetaProperties) -> None:
    """Make a new directory a further one of a node whose metadata is elsewhere."""
    await disk.mkdir("")
    release = await disk.lock(names.LOCK)
    try:
        if strange := await _strangers(disk):
            raise DirectoryRefused(f"{disk.describe('')} was empty, and holds {strange[0]} now")
        await checkpoints.write_meta_properties(disk, meta)
    finally:
        release()


def make_voter(voter: InitialVoter, listener: str) -> Voter:
    """A voter as in a VotersRecord, reached by the controller listener of that name."""
    return Voter(
        voter_id=voter.node_id,
        voter_directory_id=voter.directory_id.bytes,
        endpoints=[VoterEndpoint(name=listener, host=voter.host, port=voter.port)],
        k_raft_version_feature=_SUPPORTED_KRAFT,
    )


async def _write(disk: Disk, path: str, data: bytes) -> None:
    """Write a file durably but not atomically: it does not count before `meta.properties` is there."""
    file = await disk.open(path, create=True)
    try:
        if file.size:
            await file.truncate(0)
        await file.append(data)
        await file.sync()
    finally:
        file.close()
