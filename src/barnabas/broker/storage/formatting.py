"""A directory before its first start: whose it is, and what is in it when it is new.

An empty directory is formatted as Kafka's `storage format --standalone` does it: the ids (`meta.properties`),
the voters (a snapshot of the metadata log that stands for its beginning), the features to begin with
(`bootstrap.checkpoint`), and a `server.properties` with which Apache Kafka starts on it. `meta.properties`
comes last and makes it count: what a crash leaves before that is made anew. A directory that holds anything
else is somebody's, and refused. A further directory of the same node gets its ids alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from barnabas.core.disk import Disk
from barnabas.core.errors import BarnabasError
from barnabas.core.settings.listeners import Listener
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
from barnabas.raft.snapshot import BOOTSTRAP_CHECKPOINT, SnapshotId, build_snapshot

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
METADATA_DIRECTORY = names.partition_directory(METADATA_TOPIC, 0)
SERVER_PROPERTIES = "server.properties"
# the version of the quorum's protocol in which its voters stand in the log
KRAFT_VERSION = 1
_SUPPORTED_KRAFT = KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION)

# what an unfinished formatting may have left, and a directory may hold that is still nobody's
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


class DirectoryRefused(BarnabasError):
    """This directory is not for this node, or not for Barnabas at all."""


async def check_directory(disk: Disk, node_id: int) -> MetaProperties | None:
    """Whose directory this is, which must be this node's; None where it is new and is to be formatted."""
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
    """What is in the directory that formatting does not leave behind."""
    found = [name for name in await disk.listdir("") if name not in _HARMLESS]
    inside = await disk.listdir(METADATA_DIRECTORY)
    return found + [f"{METADATA_DIRECTORY}/{name}" for name in inside if name.endswith(names.LOG)]


async def format_directory(
    disk: Disk,
    *,
    node_id: int,
    cluster_id: str,
    directory_id: UUID,
    controllers: Sequence[Listener],
    bootstrap: Sequence[Message],
    properties: Mapping[str, str],
    now_ms: int,
) -> MetaProperties:
    """Make a new directory that of this node, the only voter of a new cluster; gives whose it is then.

    `controllers` are its controller listeners, `bootstrap` the records with which the cluster begins (its
    features), `properties` what goes into `server.properties`.
    """
    meta = MetaProperties(cluster_id, node_id, directory_id)
    quorum = [
        KRaftVersionRecord(k_raft_version=KRAFT_VERSION),
        VotersRecord(voters=[make_voter(node_id, directory_id, controllers)]),
    ]
    voters = build_snapshot((), now_ms, controls=quorum, last_contained_ms=now_ms)
    features = build_snapshot([encode_record(record) for record in bootstrap], now_ms)
    await disk.mkdir("")
    release = await disk.lock(names.LOCK)
    try:
        if (found := await check_directory(disk, node_id)) is not None:
            return found  # another process was here between the look and the lock
        await disk.mkdir(METADATA_DIRECTORY)
        await _write(disk, f"{METADATA_DIRECTORY}/{SnapshotId(0, 0).name}", voters)
        topic_id = f"{METADATA_DIRECTORY}/{names.PARTITION_METADATA}"
        await checkpoints.write_partition_metadata(disk, topic_id, METADATA_TOPIC_ID)
        await _write(disk, BOOTSTRAP_CHECKPOINT, features)
        await _write(disk, names.RECOVERY_POINT_CHECKPOINT, b"0\n0\n")
        if not await disk.size_of(SERVER_PROPERTIES):  # someone's own is better
            text = format_properties(properties)
            await checkpoints.write_atomically(disk, SERVER_PROPERTIES, text.encode())
        await disk.sync_dir("")
        await checkpoints.write_meta_properties(disk, meta)
    finally:
        release()
    return meta


async def format_further(disk: Disk, meta: MetaProperties) -> None:
    """Make a new directory one more of a node that has its metadata elsewhere."""
    await disk.mkdir("")
    release = await disk.lock(names.LOCK)
    try:
        if strange := await _strangers(disk):
            raise DirectoryRefused(f"{disk.describe('')} was empty, and holds {strange[0]} now")
        await _write(disk, names.RECOVERY_POINT_CHECKPOINT, b"0\n0\n")
        await disk.sync_dir("")
        await checkpoints.write_meta_properties(disk, meta)
    finally:
        release()


def make_voter(node_id: int, directory_id: UUID, controllers: Sequence[Listener]) -> Voter:
    """A voter, reachable by its controller listeners."""
    return Voter(
        voter_id=node_id,
        voter_directory_id=directory_id.bytes,
        endpoints=[VoterEndpoint(name=each.name, host=each.host, port=each.port) for each in controllers],
        k_raft_version_feature=_SUPPORTED_KRAFT,
    )


def server_properties(
    places: Mapping[str, str],
    *,
    node_id: int,
    listeners: Sequence[Listener],
    controllers: Sequence[Listener],
) -> dict[str, str]:
    """The settings with which Apache Kafka runs on the directories, as a cluster of one; `places` are those
    that say where they are."""
    both = (*listeners, *controllers)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.bootstrap.servers": ",".join(_address(each) for each in controllers),
        "listeners": ",".join(each.endpoint for each in both),
        "controller.listener.names": ",".join(each.name for each in controllers),
        "listener.security.protocol.map": ",".join(f"{each.name}:{each.protocol}" for each in both),
        **places,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def _address(listener: Listener) -> str:
    """Where the node itself reaches one of its listeners, which may be bound to every interface."""
    return listener._replace(host=listener.host or "localhost").endpoint.partition("://")[2]


async def _write(disk: Disk, path: str, data: bytes) -> None:
    """A file that does not count yet: it needs to be durable, but not to come into being at once."""
    file = await disk.open(path, create=True)
    try:
        if file.size:
            await file.truncate(0)
        await file.append(data)
        await file.sync()
    finally:
        file.close()
