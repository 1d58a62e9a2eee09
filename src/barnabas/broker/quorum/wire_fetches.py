"""Fetch and FetchSnapshot: the raft core's values as Kafka's messages, and back.

The core's response to a fetch names the records to read; `with_records` adds the bytes. A follower splits
them into batches with `log_entries`.
"""

from __future__ import annotations

from barnabas.broker.quorum.log_entries import entries_of
from barnabas.broker.quorum.wire_parts import (
    INCONSISTENT_CLUSTER_ID,
    PARTITION,
    Answering,
    Asked,
    Asking,
    Unanswered,
    UnsupportedVersion,
    is_other_cluster,
    known_by,
    leader_endpoint,
    leader_nodes,
    require_no_error,
    voter_key,
)
from barnabas.broker.storage.formatting import METADATA_TOPIC_ID
from barnabas.core.errors import wire_error
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.protocol.messages import fetch as fetches
from barnabas.protocol.messages import fetch_snapshot as snapshots
from barnabas.protocol.messages.leaders import LeaderIdAndEpoch, NodeEndpoint
from barnabas.protocol.schema import Message, Records
from barnabas.raft import messages as raft
from barnabas.raft.election import NO_NODE
from barnabas.raft.log_index import EpochEnd
from barnabas.raft.snapshot import SnapshotId

FETCH_FIRST = 13  # the first version that names topics by id
ENDPOINTS_FIRST = 17  # Kafka's quorum does not set them in version 16, which has a field for them
TOPIC_ID = METADATA_TOPIC_ID.bytes
UNKNOWN_SERVER_ERROR = wire_error("UNKNOWN_SERVER_ERROR").code
UNKNOWN_TOPIC_OR_PARTITION = wire_error("UNKNOWN_TOPIC_OR_PARTITION").code


# --- Fetch


def fetch_request(asked: raft.Fetch, cluster_id: str, version: int) -> fetches.FetchRequest:
    if version < FETCH_FIRST:
        raise UnsupportedVersion(f"Fetch of version {version} does not name topics by id")
    partition = fetches.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=asked.epoch,
        fetch_offset=asked.offset,
        last_fetched_epoch=asked.last_epoch,
        partition_max_bytes=0,  # only the limit of the whole response counts
        replica_directory_id=asked.replica.directory_id.bytes,
        high_watermark=asked.high_watermark,
    )
    return fetches.FetchRequest(
        cluster_id=cluster_id,
        replica_id=asked.replica.id,
        replica_state=fetches.ReplicaState(replica_id=asked.replica.id),
        max_wait_ms=asked.max_wait_ms,
        min_bytes=0,
        max_bytes=asked.max_bytes,
        topics=[fetches.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
        forgotten_topics_data=[],
    )


def fetch(request: fetches.FetchRequest, listener: str) -> raft.Fetch:
    partition = request.topics[0].partitions[0]
    state = request.replica_state
    return raft.Fetch(
        partition.current_leader_epoch,
        voter_key(request.replica_id if state is None else state.replica_id, partition.replica_directory_id),
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark,
        request.max_wait_ms,
        request.max_bytes,
    )


def refuse_fetch(
    request: fetches.FetchRequest, cluster_id: str, known: raft.Known, asked: Asked
) -> Message | None:
    if is_other_cluster(request.cluster_id, cluster_id):
        return _fetch_error(INCONSISTENT_CLUSTER_ID)
    topics = request.topics
    if len(topics) != 1 or topics[0].topic_id != TOPIC_ID or len(topics[0].partitions) != 1:
        return _fetch_error(raft.INVALID_REQUEST)
    partition = topics[0].partitions[0]
    if partition.partition != PARTITION:
        return _fetch_error(raft.INVALID_REQUEST)
    is_epoch_possible = 0 <= partition.last_fetched_epoch <= partition.current_leader_epoch
    if request.max_wait_ms < 0 or partition.fetch_offset < 0 or not is_epoch_possible:
        return fetch_response(raft.FetchResponse(raft.INVALID_REQUEST, known), asked)
    return None


def _fetch_error(error: int) -> fetches.FetchResponse:
    return fetches.FetchResponse(throttle_time_ms=0, error_code=error, responses=[])


def fetch_response(answer: raft.FetchResponse, asked: Asked) -> fetches.FetchResponse:
    known, diverging, snapshot = answer.known, answer.diverging, answer.snapshot
    partition = fetches.PartitionData(
        partition_index=PARTITION,
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        diverging_epoch=diverging
        and fetches.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset),
        current_leader=LeaderIdAndEpoch(leader_id=known.leader_id, leader_epoch=known.epoch),
        snapshot_id=snapshot and fetches.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        aborted_transactions=[],
        records=b"",
    )
    topic = fetches.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    endpoint = leader_endpoint(known, asked.listener) if asked.version >= ENDPOINTS_FIRST else None
    nodes = []
    if endpoint is not None:
        nodes.append(NodeEndpoint(node_id=known.leader_id, host=endpoint.host, port=endpoint.port))
    return fetches.FetchResponse(
        throttle_time_ms=0, error_code=raft.NONE, responses=[topic], node_endpoints=nodes
    )


def with_records(response: fetches.FetchResponse, records: Records) -> fetches.FetchResponse:
    """Add the bytes for the core's response; all batches are complete but the last."""
    response.responses[0].partitions[0].records = records
    return response


def fetch_answer(response: fetches.FetchResponse, request: raft.Fetch, listener: str) -> raft.FetchResponse:
    require_no_error(response)
    partition = _fetched_partition(response)
    leader, diverging, snapshot = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    known = raft.Known(-1)
    if leader is not None:
        known = known_by(leader.leader_id, leader.leader_epoch, response.node_endpoints, listener)
    if diverging is not None and diverging.epoch < 0:
        diverging = None
    if snapshot is not None and (snapshot.epoch < 0 or snapshot.end_offset < 0):
        if snapshot.epoch >= 0 or snapshot.end_offset >= 0:
            raise Unanswered(f"a snapshot with end offset {snapshot.end_offset} and epoch {snapshot.epoch}")
        snapshot = None
    return raft.FetchResponse(
        partition.error_code,
        known,
        partition.high_watermark,
        partition.log_start_offset,
        None if diverging is None else EpochEnd(diverging.epoch, diverging.end_offset),
        None if snapshot is None else SnapshotId(snapshot.end_offset, snapshot.epoch),
        entries=entries_of(partition.records or b""),  # type: ignore[arg-type]
    )


def _fetched_partition(response: fetches.FetchResponse) -> fetches.PartitionData:
    topics = response.responses
    if len(topics) == 1 and topics[0].topic_id == TOPIC_ID and len(topics[0].partitions) == 1:
        partition = topics[0].partitions[0]
        if partition.partition_index == PARTITION:
            return partition
    raise Unanswered("FetchResponse tells of another partition")


# --- FetchSnapshot


def snapshot_request(
    asked: raft.FetchSnapshot, cluster_id: str, version: int
) -> snapshots.FetchSnapshotRequest:
    partition = snapshots.AskedPartition(
        partition=PARTITION,
        current_leader_epoch=asked.epoch,
        snapshot_id=snapshots.SnapshotId(end_offset=asked.snapshot.end_offset, epoch=asked.snapshot.epoch),
        position=asked.position,
        replica_directory_id=asked.replica.directory_id.bytes,
    )
    return snapshots.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=asked.replica.id,
        max_bytes=asked.max_bytes,
        topics=[snapshots.AskedTopic(name=CLUSTER_METADATA, partitions=[partition])],
    )


def snapshot(request: snapshots.FetchSnapshotRequest, listener: str) -> raft.FetchSnapshot:
    partition = request.topics[0].partitions[0]
    asked = partition.snapshot_id
    return raft.FetchSnapshot(
        partition.current_leader_epoch,
        voter_key(request.replica_id, partition.replica_directory_id),
        SnapshotId(asked.end_offset, asked.epoch),
        partition.position,
        request.max_bytes,
    )


def refuse_snapshot(
    request: snapshots.FetchSnapshotRequest, cluster_id: str, known: raft.Known, asked: Asked
) -> Message | None:
    """Another partition gets an error that the other requests do not use."""
    if is_other_cluster(request.cluster_id, cluster_id):
        return _snapshot_error(INCONSISTENT_CLUSTER_ID)
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return _snapshot_error(raft.INVALID_REQUEST)
    name, index = topics[0].name, topics[0].partitions[0].partition
    if (name, index) == (CLUSTER_METADATA, PARTITION):
        return None
    unknown = snapshots.PartitionSnapshot(
        index=index,
        error_code=UNKNOWN_TOPIC_OR_PARTITION,
        snapshot_id=snapshots.SnapshotId(end_offset=0, epoch=0),
        size=0,
        position=0,
        unaligned_records=b"",
    )
    return _snapshot_response(name, unknown, known, asked)


def _snapshot_error(error: int) -> snapshots.FetchSnapshotResponse:
    return snapshots.FetchSnapshotResponse(throttle_time_ms=0, error_code=error, topics=[])


def _snapshot_response(
    name: str, partition: snapshots.PartitionSnapshot, known: raft.Known, asked: Asked
) -> snapshots.FetchSnapshotResponse:
    return snapshots.FetchSnapshotResponse(
        throttle_time_ms=0,
        error_code=raft.NONE,
        topics=[snapshots.TopicSnapshot(name=name, partitions=[partition])],
        node_endpoints=leader_nodes(known, asked.listener),
    )


def snapshot_response(answer: raft.FetchSnapshotResponse, asked: Asked) -> snapshots.FetchSnapshotResponse:
    known = answer.known
    partition = snapshots.PartitionSnapshot(
        index=PARTITION,
        error_code=answer.error,
        snapshot_id=snapshots.SnapshotId(end_offset=answer.snapshot.end_offset, epoch=answer.snapshot.epoch),
        current_leader=snapshots.LeaderIdAndEpoch(leader_id=known.leader_id, leader_epoch=known.epoch),
        size=answer.size_bytes,
        position=answer.position,
        unaligned_records=b"" if answer.data is None else answer.data,
    )
    return _snapshot_response(CLUSTER_METADATA, partition, known, asked)


def snapshot_answer(
    response: snapshots.FetchSnapshotResponse, request: raft.FetchSnapshot, listener: str
) -> raft.FetchSnapshotResponse:
    if response.error_code == UNKNOWN_SERVER_ERROR:  # Kafka 4.3.0 sends this for any error in the partition
        return raft.FetchSnapshotResponse(UNKNOWN_SERVER_ERROR, raft.Known(request.epoch), request.snapshot)
    require_no_error(response)
    partition = _snapshot_partition(response)
    leader = partition.current_leader or snapshots.LeaderIdAndEpoch(leader_id=NO_NODE, leader_epoch=0)
    data = partition.unaligned_records
    return raft.FetchSnapshotResponse(
        partition.error_code,
        known_by(leader.leader_id, leader.leader_epoch, response.node_endpoints, listener),
        SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.size,
        partition.position,
        data=data,
        data_bytes=len(data),
    )


def _snapshot_partition(response: snapshots.FetchSnapshotResponse) -> snapshots.PartitionSnapshot:
    topics = response.topics
    if len(topics) == 1 and topics[0].name == CLUSTER_METADATA and len(topics[0].partitions) == 1:
        partition = topics[0].partitions[0]
        if partition.index == PARTITION:
            return partition
    raise Unanswered("FetchSnapshotResponse tells of another partition")


ASKING: dict[type, Asking] = {
    raft.Fetch: Asking(fetches.FetchRequest, fetches.FetchResponse, FETCH_FIRST, fetch_request, fetch_answer),
    raft.FetchSnapshot: Asking(
        snapshots.FetchSnapshotRequest, snapshots.FetchSnapshotResponse, 0, snapshot_request, snapshot_answer
    ),
}
ANSWERING: dict[type, Answering] = {
    fetches.FetchRequest: Answering(fetch, refuse_fetch, fetch_response),
    snapshots.FetchSnapshotRequest: Answering(snapshot, refuse_snapshot, snapshot_response),
}
