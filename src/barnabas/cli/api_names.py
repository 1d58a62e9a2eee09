"""The names of Kafka's APIs, in the order of their keys."""

from __future__ import annotations

_NAMES = """
    Produce Fetch ListOffsets Metadata LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown
    OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups
    ListGroups SaslHandshake ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId
    OffsetForLeaderEpoch AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers TxnOffsetCommit
    DescribeAcls CreateAcls DeleteAcls DescribeConfigs AlterConfigs AlterReplicaLogDirs DescribeLogDirs
    SaslAuthenticate CreatePartitions CreateDelegationToken RenewDelegationToken ExpireDelegationToken
    DescribeDelegationToken DeleteGroups ElectLeaders IncrementalAlterConfigs
    AlterPartitionReassignments ListPartitionReassignments OffsetDelete DescribeClientQuotas
    AlterClientQuotas DescribeUserScramCredentials AlterUserScramCredentials Vote BeginQuorumEpoch
    EndQuorumEpoch DescribeQuorum AlterPartition UpdateFeatures Envelope FetchSnapshot DescribeCluster
    DescribeProducers BrokerRegistration BrokerHeartbeat UnregisterBroker DescribeTransactions
    ListTransactions AllocateProducerIds ConsumerGroupHeartbeat ConsumerGroupDescribe
    ControllerRegistration GetTelemetrySubscriptions PushTelemetry AssignReplicasToDirs
    ListConfigResources DescribeTopicPartitions ShareGroupHeartbeat ShareGroupDescribe ShareFetch
    ShareAcknowledge AddRaftVoter RemoveRaftVoter UpdateRaftVoter InitializeShareGroupState
    ReadShareGroupState WriteShareGroupState DeleteShareGroupState ReadShareGroupStateSummary
    StreamsGroupHeartbeat StreamsGroupDescribe DescribeShareGroupOffsets AlterShareGroupOffsets
    DeleteShareGroupOffsets
"""

API_NAMES = dict(enumerate(_NAMES.split()))
