"""Requests of administrators that mean something, for the fuzzer to damage."""

from __future__ import annotations

from random import Random

from barnabas.protocol.messages import (
    add_raft_voter,
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    delete_acls,
    delete_records,
    describe_acls,
    describe_client_quotas,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    list_partition_reassignments,
    remove_raft_voter,
    unregister_broker,
    write_txn_markers,
)
from barnabas.protocol.schema import Message


def administrative(key: int, name: str, partition: int, offset: int, random: Random) -> Message | None:
    """A request of that API about a topic that may be there; None where it is no administrator's."""
    match key:
        case 21:
            upto = delete_records.DeleteRecordsPartition(partition_index=partition, offset=min(offset, 1))
            of_topic = delete_records.DeleteRecordsTopic(name=name, partitions=[upto])
            return delete_records.DeleteRecordsRequest(topics=[of_topic], timeout_ms=1000)
        case 27:
            ended = write_txn_markers.WritableTxnMarkerTopic(name=name, partition_indexes=[partition])
            marker = write_txn_markers.WritableTxnMarker(
                producer_id=random.choice((-1, 0, 1, 2**62)),
                producer_epoch=random.choice((-1, 0, 1, 0x7FFF)),
                transaction_result=random.random() < 0.5,
                topics=[ended],
                coordinator_epoch=random.choice((-1, 0, 1)),
                transaction_version=random.choice((0, 2, 127)),
            )
            return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
        case 34:
            moved = alter_replica_log_dirs.AlterReplicaLogDirTopic(name=name, partitions=[partition])
            to = alter_replica_log_dirs.AlterReplicaLogDir(path="memory:", topics=[moved])
            return alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[to])
        case 35:
            asked = describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=[partition])
            return describe_log_dirs.DescribeLogDirsRequest(topics=random.choice((None, [], [asked])))
        case 37:
            count = random.choice((-1, 0, 1, 2, 3, 2**31 - 1))
            placed = random.choice((None, [create_partitions.CreatePartitionsAssignment(broker_ids=[1])]))
            more = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=placed)
            only = random.random() < 0.8  # a topic of many partitions would slow the rest down
            return create_partitions.CreatePartitionsRequest(topics=[more], timeout_ms=1, validate_only=only)
        case 43:
            led = elect_leaders.TopicPartitions(topic=name, partitions=[partition])
            kind = random.choice((0, 1, 2, -1))
            return elect_leaders.ElectLeadersRequest(
                election_type=kind, topic_partitions=random.choice((None, [led]))
            )
    return _placement(key, name, partition, random) or _people(key, random) or _security(key, name, random)


def _placement(key: int, name: str, partition: int, random: Random) -> Message | None:
    match key:
        case 45:
            replicas = random.choice((None, [], [1], [1, 1], [2], [1, -5]))
            one = alter_partition_reassignments.ReassignablePartition(
                partition_index=partition, replicas=replicas
            )
            moved = alter_partition_reassignments.ReassignableTopic(name=name, partitions=[one])
            return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[moved])
        case 46:
            asked = list_partition_reassignments.ListPartitionReassignmentsTopics(
                name=name, partition_indexes=[partition]
            )
            return list_partition_reassignments.ListPartitionReassignmentsRequest(
                topics=random.choice((None, [asked]))
            )
        case 61:
            written = describe_producers.TopicRequest(name=name, partition_indexes=[partition])
            return describe_producers.DescribeProducersRequest(topics=[written])
        case 64:
            return unregister_broker.UnregisterBrokerRequest(broker_id=random.choice((0, 2, -1)))
        case 80:
            return add_raft_voter.AddRaftVoterRequest(
                cluster_id=random.choice((None, "other")),
                timeout_ms=1,
                voter_id=random.choice((1, 2, -1)),
                voter_directory_id=random.randbytes(16),
                listeners=[],
            )
        case 81:
            return remove_raft_voter.RemoveRaftVoterRequest(
                cluster_id=random.choice((None, "other")),
                voter_id=random.choice((1, 2, -1)),
                voter_directory_id=random.randbytes(16),
            )
        case 75:
            cursor = describe_topic_partitions.Cursor(topic_name=name, partition_index=partition)
            return describe_topic_partitions.DescribeTopicPartitionsRequest(
                topics=random.choice(([], [describe_topic_partitions.TopicRequest(name=name)])),
                response_partition_limit=random.choice((0, 1, 2000, -1)),
                cursor=random.choice((None, cursor)),
            )
    return None


def _people(key: int, random: Random) -> Message | None:
    who = random.choice(("ann", "", None))
    match key:
        case 48:
            asked = describe_client_quotas.ComponentData(
                entity_type=random.choice(("user", "client-id", "ip", "x")),
                match_type=random.choice((0, 1, 2, 3)),
                match=who,
            )
            return describe_client_quotas.DescribeClientQuotasRequest(components=[asked], strict=True)
        case 49:
            quota = alter_client_quotas.OpData(
                key=random.choice(("producer_byte_rate", "x")), value=random.choice((1.0, -1.0)), remove=False
            )
            entity = alter_client_quotas.EntityData(entity_type="user", entity_name=who)
            entry = alter_client_quotas.EntryData(entity=[entity], ops=[quota])
            return alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)
        case 50:
            user = describe_user_scram_credentials.UserName(name=who or "")
            return describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
                users=random.choice((None, [], [user], [user, user]))
            )
    return None


def _security(key: int, name: str, random: Random) -> Message | None:
    kind, operation = random.choice((1, 2, 4, 99)), random.choice((1, 2, 3, -1))
    match key:
        case 29:
            return describe_acls.DescribeAclsRequest(
                resource_type_filter=kind,
                resource_name_filter=random.choice((name, None)),
                principal_filter=None,
                host_filter=None,
                operation=operation,
                permission_type=1,
            )
        case 30:
            rule = create_acls.AclCreation(
                resource_type=kind,
                resource_name=name,
                principal="User:ann",
                host="*",
                operation=operation,
                permission_type=3,
            )
            return create_acls.CreateAclsRequest(creations=random.choice(([], [rule], [rule, rule])))
        case 31:
            matching = delete_acls.DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter=random.choice((name, None)),
                principal_filter=None,
                host_filter=None,
                operation=operation,
                permission_type=1,
            )
            return delete_acls.DeleteAclsRequest(filters=random.choice(([], [matching])))
        case 51:
            gone = alter_user_scram_credentials.ScramCredentialDeletion(name="ann", mechanism=1)
            new = alter_user_scram_credentials.ScramCredentialUpsertion(
                name="ben", mechanism=2, iterations=4096, salt=b"salt", salted_password=b"password"
            )
            return alter_user_scram_credentials.AlterUserScramCredentialsRequest(
                deletions=random.choice(([], [gone])), upsertions=random.choice(([], [new]))
            )
    return None
