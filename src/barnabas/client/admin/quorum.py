"""The quorum of controllers: its leader, voters and observers, their log end offsets; voters removed."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.admin.engine import Engine, check, error_of, raise_first
from barnabas.core.network import Address
from barnabas.protocol.messages.describe_quorum import (
    AskedPartition,
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
)
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.schema import NO_UUID

METADATA_TOPIC = "__cluster_metadata"


class QuorumReplica(NamedTuple):
    """A node with the metadata log; unknown fields are None."""

    node_id: int
    directory_id: bytes | None
    log_end_offset: int
    last_fetch_timestamp_ms: int | None
    last_caught_up_timestamp_ms: int | None


class QuorumDescription(NamedTuple):
    """The quorum; endpoints are by node and by the listener's name."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    endpoints: dict[int, dict[str, Address]]


class Quorum(Engine):
    """The part of an admin for the quorum."""

    async def describe_quorum(self) -> QuorumDescription:
        """The quorum of controllers; NotSpoken if there is none (clusters with ZooKeeper)."""
        wanted = AskedTopic(topic_name=METADATA_TOPIC, partitions=[AskedPartition(partition_index=0)])
        response = await self._ask(
            DescribeQuorumRequest(topics=[wanted]), DescribeQuorumResponse, is_safe=True
        )
        check(response.error_code, "cannot describe the quorum", response.error_message)
        ((partition,),) = [topic.partitions for topic in response.topics]
        check(partition.error_code, "cannot describe the quorum", partition.error_message)
        return QuorumDescription(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            [_replica(each) for each in partition.current_voters],
            [_replica(each) for each in partition.observers],
            {
                node.node_id: {each.name: Address(each.host, each.port) for each in node.listeners}
                for node in response.nodes
            },
        )

    async def remove_voter(self, node_id: int, directory_id: bytes) -> None:
        """Remove a controller from the voters; it goes on as an observer. A removed leader resigns."""
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
        response, is_repeated = await self._change(
            request, RemoveRaftVoterResponse, lambda answer: [answer.error_code]
        )
        done = "VOTER_NOT_FOUND" if is_repeated else ""  # removed, whichever attempt did it
        error = error_of(response.error_code, f"cannot remove voter {node_id}", response.error_message, done)
        raise_first([error])


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        None if state.replica_directory_id == NO_UUID else state.replica_directory_id,
        state.log_end_offset,
        None if state.last_fetch_timestamp < 0 else state.last_fetch_timestamp,
        None if state.last_caught_up_timestamp < 0 else state.last_caught_up_timestamp,
    )
