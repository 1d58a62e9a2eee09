"""Messages between nodes of the quorum, and the bytes that Apache Kafka's own classes write of them.

One example a message, with every field of every version; `golden.txt` has a line for each version, made by

    python -m tests.protocol.golden

which needs Java and Maven; the tests that compare with it do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from barnabas.protocol.messages import alter_partition, begin_quorum_epoch, end_quorum_epoch
from barnabas.protocol.messages import fetch_snapshot as snapshots
from barnabas.protocol.messages import vote as votes
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.default_principal_data import DefaultPrincipalData
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.quorum_nodes import LeaderNode, Listener
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.messages.update_raft_voter import (
    CurrentLeader,
    KRaftVersionFeature,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from barnabas.protocol.schema import Message
from tests.support.kafka_messages import KafkaMessages

GOLDEN = Path(__file__).with_name("golden.txt")

TOPIC = "__cluster_metadata"
CLUSTER = "Ru2xhzV4TZ2ZIzHLVGHXXw"
HERE, THERE = bytes(range(16)), bytes(range(100, 116))
LISTENERS = [
    Listener(name="CONTROLLER", host="one.example", port=9093),
    Listener(name="B", host="::1", port=0),
]
LEADER = [LeaderNode(node_id=3, host="three.example", port=65535)]


def _vote() -> list[Message]:
    asked = votes.AskedPartition(
        partition_index=0,
        replica_epoch=7,
        replica_id=1,
        replica_directory_id=HERE,
        voter_directory_id=THERE,
        last_offset_epoch=6,
        last_offset=1 << 40,
        pre_vote=True,
    )
    told = votes.PartitionData(
        partition_index=0, error_code=74, leader_id=3, leader_epoch=8, vote_granted=True
    )
    return [
        votes.VoteRequest(
            cluster_id=CLUSTER, voter_id=2, topics=[votes.AskedTopic(topic_name=TOPIC, partitions=[asked])]
        ),
        votes.VoteResponse(
            error_code=0,
            topics=[votes.TopicData(topic_name=TOPIC, partitions=[told])],
            node_endpoints=LEADER,
        ),
    ]


def _begin() -> list[Message]:
    told = begin_quorum_epoch.ToldPartition(
        partition_index=0, voter_directory_id=THERE, leader_id=1, leader_epoch=7
    )
    answer = begin_quorum_epoch.PartitionData(partition_index=0, error_code=125, leader_id=3, leader_epoch=8)
    return [
        begin_quorum_epoch.BeginQuorumEpochRequest(
            cluster_id=None,
            voter_id=2,
            topics=[begin_quorum_epoch.ToldTopic(topic_name=TOPIC, partitions=[told])],
            leader_endpoints=LISTENERS,
        ),
        begin_quorum_epoch.BeginQuorumEpochResponse(
            error_code=0,
            topics=[begin_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[answer])],
            node_endpoints=LEADER,
        ),
    ]


def _end() -> list[Message]:
    successors = [
        end_quorum_epoch.ReplicaInfo(candidate_id=2, candidate_directory_id=THERE),
        end_quorum_epoch.ReplicaInfo(candidate_id=3, candidate_directory_id=HERE),
    ]
    told = end_quorum_epoch.ToldPartition(
        partition_index=0,
        leader_id=1,
        leader_epoch=7,
        preferred_successors=[2, 3],
        preferred_candidates=successors,
    )
    answer = end_quorum_epoch.PartitionData(partition_index=0, error_code=0, leader_id=-1, leader_epoch=8)
    return [
        end_quorum_epoch.EndQuorumEpochRequest(
            cluster_id=CLUSTER,
            topics=[end_quorum_epoch.ToldTopic(topic_name=TOPIC, partitions=[told])],
            leader_endpoints=LISTENERS,
        ),
        end_quorum_epoch.EndQuorumEpochResponse(
            error_code=104,
            topics=[end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[answer])],
            node_endpoints=LEADER,
        ),
    ]


def _alter_partition() -> list[Message]:
    isr = [
        alter_partition.BrokerState(broker_id=2, broker_epoch=41),
        alter_partition.BrokerState(broker_id=5),
    ]
    asked = alter_partition.AskedPartition(
        partition_index=12,
        leader_epoch=4,
        new_isr=[2, 5],
        new_isr_with_epochs=isr,
        leader_recovery_state=1,
        partition_epoch=9,
    )
    told = alter_partition.PartitionData(
        partition_index=12,
        error_code=107,
        leader_id=2,
        leader_epoch=4,
        isr=[2, 5],
        leader_recovery_state=0,
        partition_epoch=10,
    )
    return [
        alter_partition.AlterPartitionRequest(
            broker_id=2,
            broker_epoch=41,
            topics=[alter_partition.AskedTopic(topic_id=HERE, partitions=[asked])],
        ),
        alter_partition.AlterPartitionResponse(
            throttle_time_ms=5,
            error_code=0,
            topics=[alter_partition.TopicData(topic_id=HERE, partitions=[told])],
        ),
    ]


def _envelope() -> list[Message]:
    return [
        EnvelopeRequest(
            request_data=bytes(200), request_principal=b"\0\0\5User\2a\0\0", client_host_address=b"\x7f\0\0\1"
        ),
        EnvelopeResponse(response_data=bytes(range(40)), error_code=0),
        EnvelopeResponse(response_data=None, error_code=97),
        DefaultPrincipalData(type="User", name="ANONYMOUS", token_authenticated=True),
    ]


def _fetch_snapshot() -> list[Message]:
    snapshot_id = snapshots.SnapshotId(end_offset=1 << 33, epoch=6)
    asked = snapshots.AskedPartition(
        partition=0,
        current_leader_epoch=7,
        snapshot_id=snapshot_id,
        position=1 << 20,
        replica_directory_id=HERE,
    )
    told = snapshots.PartitionSnapshot(
        index=0,
        error_code=98,
        snapshot_id=snapshot_id,
        current_leader=snapshots.LeaderIdAndEpoch(leader_id=3, leader_epoch=7),
        size=3 << 20,
        position=1 << 20,
        unaligned_records=b"",  # Kafka's JSON has no records
    )
    return [
        snapshots.FetchSnapshotRequest(
            cluster_id=CLUSTER,
            replica_id=1,
            max_bytes=1 << 20,
            topics=[snapshots.AskedTopic(name=TOPIC, partitions=[asked])],
        ),
        snapshots.FetchSnapshotResponse(
            throttle_time_ms=0,
            error_code=0,
            topics=[snapshots.TopicSnapshot(name=TOPIC, partitions=[told])],
            node_endpoints=LEADER,
        ),
    ]


def _voters() -> list[Message]:
    leader = CurrentLeader(leader_id=3, leader_epoch=8, host="three.example", port=9093)
    return [
        AddRaftVoterRequest(
            cluster_id=CLUSTER,
            timeout_ms=30_000,
            voter_id=4,
            voter_directory_id=THERE,
            listeners=LISTENERS,
            ack_when_committed=True,  # False cannot be said in version 0
        ),
        AddRaftVoterResponse(throttle_time_ms=1, error_code=126, error_message="a voter already"),
        RemoveRaftVoterRequest(cluster_id=None, voter_id=4, voter_directory_id=THERE),
        RemoveRaftVoterResponse(throttle_time_ms=1, error_code=0, error_message=None),
        UpdateRaftVoterRequest(
            cluster_id=CLUSTER,
            current_leader_epoch=8,
            voter_id=4,
            voter_directory_id=THERE,
            listeners=LISTENERS,
            k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        ),
        UpdateRaftVoterResponse(throttle_time_ms=1, error_code=6, current_leader=leader),
    ]


class Example(NamedTuple):
    name: str
    message: Message
    version: int


def examples() -> list[Example]:
    """Every example at every version of its message."""
    made = [
        *_vote(),
        *_begin(),
        *_end(),
        *_alter_partition(),
        *_envelope(),
        *_fetch_snapshot(),
        *_voters(),
    ]
    return [
        Example(f"{position}.{type(message).__name__}.v{version}", message, version)
        for position, message in enumerate(made)
        for version in range(message.__versions__[0], message.__versions__[1] + 1)
    ]


def golden() -> dict[str, bytes]:
    lines = GOLDEN.read_text().splitlines()
    return {name: bytes.fromhex(data) for name, data in (line.split() for line in lines)}


def main() -> None:
    with KafkaMessages() as kafka:
        lines = [f"{each.name} {kafka.write(each.message, each.version).hex()}\n" for each in examples()]
    GOLDEN.write_text("".join(lines))


if __name__ == "__main__":
    main()
