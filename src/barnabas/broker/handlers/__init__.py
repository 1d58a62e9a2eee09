"""The APIs that this broker serves, their versions, and the modules that handle them.

Each module has `async def handle(request, context, services)`, and is imported at the first request. Produce
is advertised from version 0 although only 3 and later work, as Kafka does: librdkafka before 2.11.1 probes
single versions.
"""

from __future__ import annotations

from typing import NamedTuple


class Served(NamedTuple):
    """An API: the name and module of its messages, and the versions that are advertised; `handler` is the
    handler's module if it has another name. A pipelined API has a `begin`, which may return a LaterResponse
    once the request has had its effects and only its response has to wait."""

    name: str
    module: str
    first: int
    last: int
    handler: str = ""
    is_pipelined: bool = False


SERVED: dict[int, Served] = {
    0: Served("Produce", "produce", 0, 13, is_pipelined=True),
    1: Served("Fetch", "fetch", 4, 18),
    2: Served("ListOffsets", "list_offsets", 1, 11),
    3: Served("Metadata", "metadata", 0, 13),
    8: Served("OffsetCommit", "offset_commit", 2, 10),
    9: Served("OffsetFetch", "offset_fetch", 1, 10),
    10: Served("FindCoordinator", "find_coordinator", 0, 6),
    11: Served("JoinGroup", "join_group", 0, 9),
    12: Served("Heartbeat", "heartbeat", 0, 4),
    13: Served("LeaveGroup", "leave_group", 0, 5),
    14: Served("SyncGroup", "sync_group", 0, 5),
    15: Served("DescribeGroups", "describe_groups", 0, 6),
    16: Served("ListGroups", "list_groups", 0, 5),
    18: Served("ApiVersions", "api_versions", 0, 4),
    19: Served("CreateTopics", "create_topics", 2, 7),
    20: Served("DeleteTopics", "delete_topics", 1, 6),
    21: Served("DeleteRecords", "delete_records", 0, 2),
    22: Served("InitProducerId", "init_producer_id", 0, 5),
    23: Served("OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4),
    24: Served("AddPartitionsToTxn", "add_partitions_to_txn", 0, 5),
    25: Served("AddOffsetsToTxn", "add_offsets_to_txn", 0, 4),
    26: Served("EndTxn", "end_txn", 0, 5),
    27: Served("WriteTxnMarkers", "write_txn_markers", 1, 2),
    28: Served("TxnOffsetCommit", "txn_offset_commit", 0, 5),
    29: Served("DescribeAcls", "describe_acls", 1, 3),
    30: Served("CreateAcls", "create_acls", 1, 3),
    31: Served("DeleteAcls", "delete_acls", 1, 3),
    32: Served("DescribeConfigs", "describe_configs", 1, 4),
    33: Served("AlterConfigs", "alter_configs", 0, 2),
    34: Served("AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2),
    35: Served("DescribeLogDirs", "describe_log_dirs", 1, 5),
    37: Served("CreatePartitions", "create_partitions", 0, 3),
    42: Served("DeleteGroups", "delete_groups", 0, 2),
    43: Served("ElectLeaders", "elect_leaders", 0, 2),
    44: Served("IncrementalAlterConfigs", "incremental_alter_configs", 0, 1),
    45: Served("AlterPartitionReassignments", "alter_partition_reassignments", 0, 1),
    46: Served("ListPartitionReassignments", "list_partition_reassignments", 0, 0),
    47: Served("OffsetDelete", "offset_delete", 0, 0),
    48: Served("DescribeClientQuotas", "describe_client_quotas", 0, 1),
    49: Served("AlterClientQuotas", "alter_client_quotas", 0, 1),
    50: Served("DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0),
    51: Served("AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0),
    55: Served("DescribeQuorum", "describe_quorum", 0, 2),
    57: Served("UpdateFeatures", "update_features", 0, 2),
    60: Served("DescribeCluster", "describe_cluster", 0, 2),
    61: Served("DescribeProducers", "describe_producers", 0, 0),
    64: Served("UnregisterBroker", "unregister_broker", 0, 0),
    65: Served("DescribeTransactions", "describe_transactions", 0, 0),
    66: Served("ListTransactions", "list_transactions", 0, 2),
    74: Served("ListConfigResources", "list_config_resources", 0, 1),
    75: Served("DescribeTopicPartitions", "describe_topic_partitions", 0, 0),
    80: Served("AddRaftVoter", "add_raft_voter", 0, 1),
    81: Served("RemoveRaftVoter", "remove_raft_voter", 0, 0),
}

# The APIs at a controller's listener; ApiVersions shows a client there that it is no broker's.
SERVED_BY_CONTROLLER: dict[int, Served] = {
    key: SERVED[key]
    for key in (18, 19, 20, 29, 30, 31, 32, 33, 37, 43, 44, 45, 46, 49, 50, 51, 55, 57, 60, 64)
} | {
    56: Served("AlterPartition", "alter_partition", 2, 3),
    58: Served("Envelope", "envelope", 0, 0),
    62: Served("BrokerRegistration", "broker_registration", 0, 4),
    63: Served("BrokerHeartbeat", "broker_heartbeat", 0, 2),
    67: Served("AllocateProducerIds", "allocate_producer_ids", 0, 0),
    70: Served("ControllerRegistration", "controller_registration", 0, 0),
    73: Served("AssignReplicasToDirs", "assign_replicas_to_dirs", 0, 0),
}

# Requests between nodes of the quorum; Fetch is that of the metadata log.
_QUORUM = "quorum_requests"
SERVED_BY_CONTROLLER |= {
    1: Served("Fetch", "fetch", 4, 18, _QUORUM),
    52: Served("Vote", "vote", 0, 2, _QUORUM),
    53: Served("BeginQuorumEpoch", "begin_quorum_epoch", 0, 1, _QUORUM),
    54: Served("EndQuorumEpoch", "end_quorum_epoch", 0, 1, _QUORUM),
    59: Served("FetchSnapshot", "fetch_snapshot", 0, 1, _QUORUM),
    80: Served("AddRaftVoter", "add_raft_voter", 0, 1, _QUORUM),
    81: Served("RemoveRaftVoter", "remove_raft_voter", 0, 0, _QUORUM),
    82: Served("UpdateRaftVoter", "update_raft_voter", 0, 0, _QUORUM),
}
