"""AlterPartition: a leader asks the controller for another ISR; from node to node only.

Version 3 names each member of the ISR with its broker epoch (KIP-903).
"""

from __future__ import annotations

from barnabas.protocol.schema import Int8, Int16, Int32, Int64, Message, Struct, Uuid, field


class BrokerState(Struct):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


class AskedPartition(Struct):
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = field(2, 2)
    new_isr_with_epochs: list[BrokerState] = field(3)
    leader_recovery_state: Int8 = field(default=0)
    partition_epoch: Int32


class AskedTopic(Struct):
    topic_id: Uuid
    partitions: list[AskedPartition]


class AlterPartitionRequest(Message, key=56, versions=(2, 3), flexible=2):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    topics: list[AskedTopic]


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = field(default=0)
    partition_epoch: Int32


class TopicData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class AlterPartitionResponse(Message, key=56, versions=(2, 3), flexible=2):
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[TopicData]
