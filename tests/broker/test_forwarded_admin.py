"""Administration of a cluster of several nodes: every broker takes every request, in virtual time.

Nodes 1 to 3 are controllers, 1 of them also a broker; 4 and 5 are only brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from barnabas.broker.cluster.forwarding import outcomes
from barnabas.broker.cluster.remote_controller import enveloped
from barnabas.broker.connections.requests import BROKER_ROUTER, RequestContext
from barnabas.broker.handlers import SERVED_BY_CONTROLLER
from barnabas.broker.handlers.envelope import FORWARDABLE
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.network import Address
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
    update_features,
)
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.envelope import EnvelopeResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.protocol.schema import NO_UUID, Message
from barnabas.sim.clock import SimClock
from barnabas.transport.connection import BrokerConnection, open_connection
from tests.support.clusters import (
    BROKER_PORT,
    CLUSTER_ID,
    CONTROLLER_PORT,
    VirtualCluster,
    directory_of,
    host_of,
    run_cluster,
)

M = TypeVar("M", bound=Message)
BROKERS = (1, 4, 5)
BROKER_LOGGER = 8
SET = 0


async def connect(cluster: VirtualCluster, node_id: int, port: int = BROKER_PORT) -> BrokerConnection:
    return await open_connection(
        cluster.network.host("client"),
        SimClock(asyncio.get_running_loop()),
        Address(host_of(node_id), port),
        client_id="tool",
        software_version="1",
        connect_timeout_s=5,
        request_timeout_s=90,
        scratch=memoryview(bytearray(1 << 16)),
    )


async def ask(
    cluster: VirtualCluster, node_id: int, request: Message, response: type[M], port: int = BROKER_PORT
) -> M:
    connection = await connect(cluster, node_id, port)
    try:
        return await connection.ask(request, response)
    finally:
        connection.close()


def errors_of(response: Message) -> list[str]:
    return [WIRE_ERRORS[code].name for code in outcomes(response)]


def in_cluster(
    scenario: Callable[[VirtualCluster], Awaitable[None]], settings: dict[str, str] | None = None
) -> None:
    async def started(cluster: VirtualCluster) -> None:
        await cluster.start()
        await scenario(cluster)

    roles = {2: "controller", 3: "controller"}
    run_cluster(started, VirtualCluster(nodes=5, roles=roles, settings=settings))


def leader_of(cluster: VirtualCluster) -> int:
    leader = cluster.leader()
    assert leader is not None
    return leader.node_id


def create(name: str, partitions: int = 1) -> create_topics.CreateTopicsRequest:
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def delete(name: str) -> delete_topics.DeleteTopicsRequest:
    state = delete_topics.DeleteTopicState(name=name, topic_id=NO_UUID)
    return delete_topics.DeleteTopicsRequest(topics=[state], topic_names=[], timeout_ms=30_000)


def grow(name: str, count: int) -> create_partitions.CreatePartitionsRequest:
    more = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return create_partitions.CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False)


def alter(
    kind: int, who: str, name: str, value: str
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    config = incremental_alter_configs.AlterableConfig(name=name, config_operation=SET, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=who, configs=[config]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def replace(kind: int, who: str, name: str, value: str) -> alter_configs.AlterConfigsRequest:
    config = alter_configs.AlterableConfig(name=name, value=value)
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=who, configs=[config])
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)


def quota(user: str) -> alter_client_quotas.AlterClientQuotasRequest:
    op = alter_client_quotas.OpData(key="producer_byte_rate", value=1.0, remove=False)
    entity = alter_client_quotas.EntityData(entity_type="user", entity_name=user)
    entry = alter_client_quotas.EntryData(entity=[entity], ops=[op])
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)


def elect(name: str) -> elect_leaders.ElectLeadersRequest:
    partitions = elect_leaders.TopicPartitions(topic=name, partitions=[0])
    return elect_leaders.ElectLeadersRequest(election_type=0, topic_partitions=[partitions])


def move(name: str, replicas: list[int]) -> alter_partition_reassignments.AlterPartitionReassignmentsRequest:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = alter_partition_reassignments.ReassignableTopic(name=name, partitions=[partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def finalize(name: str, level: int, kind: int = 1) -> update_features.UpdateFeaturesRequest:
    key = update_features.FeatureUpdateKey(
        feature=name, max_version_level=level, allow_downgrade=False, upgrade_type=kind
    )
    return update_features.UpdateFeaturesRequest(feature_updates=[key])


def quorum() -> describe_quorum.DescribeQuorumRequest:
    partition = describe_quorum.AskedPartition(partition_index=0)
    topic = describe_quorum.AskedTopic(topic_name="__cluster_metadata", partitions=[partition])
    return describe_quorum.DescribeQuorumRequest(topics=[topic])


def all_reassignments() -> ListPartitionReassignmentsRequest:
    return ListPartitionReassignmentsRequest(topics=None)


def add_voter(cluster_id: str) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id=cluster_id, timeout_ms=1000, voter_id=9, voter_directory_id=bytes(16), listeners=[]
    )


def remove_voter(cluster_id: str) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=9, voter_directory_id=directory_of(9).bytes)


# what only the active controller carries out, or tells
ADMINISTRATION: list[tuple[Message, type[Message]]] = [
    (create("x"), create_topics.CreateTopicsResponse),
    (delete("x"), delete_topics.DeleteTopicsResponse),
    (grow("x", 2), create_partitions.CreatePartitionsResponse),
    (
        alter(TOPIC_RESOURCE, "x", "retention.ms", "1"),
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    ),
    (replace(TOPIC_RESOURCE, "x", "retention.ms", "1"), alter_configs.AlterConfigsResponse),
    (quota("ann"), alter_client_quotas.AlterClientQuotasResponse),
    (elect("x"), elect_leaders.ElectLeadersResponse),
    (move("x", [1]), alter_partition_reassignments.AlterPartitionReassignmentsResponse),
    (finalize("metadata.version", 30), update_features.UpdateFeaturesResponse),
    (all_reassignments(), ListPartitionReassignmentsResponse),
    (UnregisterBrokerRequest(broker_id=9), UnregisterBrokerResponse),
    (AllocateProducerIdsRequest(broker_id=4, broker_epoch=1), AllocateProducerIdsResponse),
    (
        AssignReplicasToDirsRequest(broker_id=4, broker_epoch=1, directories=[]),
        AssignReplicasToDirsResponse,
    ),
]


def test_a_controller_that_does_not_lead_says_so() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        followers = [each for each in (1, 2, 3) if each != leader_of(cluster)]
        for request, response in ADMINISTRATION:
            answers = [await ask(cluster, each, request, response, CONTROLLER_PORT) for each in followers]
            for answer in answers:
                assert errors_of(answer) == ["NOT_CONTROLLER"], answer
        described = await ask(
            cluster, followers[0], quorum(), describe_quorum.DescribeQuorumResponse, CONTROLLER_PORT
        )
        assert errors_of(described) == ["NOT_LEADER_OR_FOLLOWER"]

    in_cluster(scenario)


def test_not_controller_is_the_error_of_the_envelope() -> None:
    """A broker looks there, and never hands it over to its client."""

    async def scenario(cluster: VirtualCluster) -> None:
        follower = next(each for each in (1, 2, 3) if each != leader_of(cluster))
        forwarded = [each for each, _ in ADMINISTRATION if each.__key__ in FORWARDABLE]
        assert len(forwarded) > 10
        for request in (*forwarded, quorum()):
            context = RequestContext("User:ann", "PLAINTEXT", BROKER_ROUTER, "10.1.2.3", "tool", 0)
            envelope = enveloped(request, type(request).__versions__[1], 7, context)
            answer = await ask(cluster, follower, envelope, EnvelopeResponse, CONTROLLER_PORT)
            assert (errors_of(answer), answer.response_data) == (["NOT_CONTROLLER"], None), request

    in_cluster(scenario)


def test_the_controller_that_leads_is_asked_directly() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        leader = leader_of(cluster)
        for request, response in ADMINISTRATION:
            answer = await ask(cluster, leader, request, response, CONTROLLER_PORT)
            assert "NOT_CONTROLLER" not in errors_of(answer)
        for node_id in (1, 2, 3):
            connection = await connect(cluster, node_id, CONTROLLER_PORT)
            served = {key: (api.first, api.last) for key, api in SERVED_BY_CONTROLLER.items()}
            assert connection.versions.ranges == served
            connection.close()

    in_cluster(scenario)


@pytest.mark.parametrize("through", BROKERS)
def test_every_broker_takes_every_change_and_has_it_when_it_answers(through: int) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        connection = await connect(cluster, through)
        node = cluster.nodes[through]

        async def changed(request: Message, response: type[M]) -> M:
            answer = await connection.ask(request, response)
            assert set(errors_of(answer)) == {"NONE"}, answer
            return answer

        def image() -> Any:
            return node.quorum.metadata.image

        await changed(create("t", 2), create_topics.CreateTopicsResponse)
        assert len(image().topic("t").partitions) == 2
        await changed(grow("t", 5), create_partitions.CreatePartitionsResponse)
        assert len(image().topic("t").partitions) == 5
        altered = alter(TOPIC_RESOURCE, "t", "retention.ms", "5000")
        await changed(altered, incremental_alter_configs.IncrementalAlterConfigsResponse)
        assert image().topic_config("t") == {"retention.ms": "5000"}
        await changed(replace(TOPIC_RESOURCE, "t", "segment.ms", "7000"), alter_configs.AlterConfigsResponse)
        assert image().topic_config("t") == {"segment.ms": "7000"}
        await changed(quota("ann"), alter_client_quotas.AlterClientQuotasResponse)
        await changed(
            finalize("eligible.leader.replicas.version", 0, 2), update_features.UpdateFeaturesResponse
        )
        assert image().features.get("eligible.leader.replicas.version", 0) == 0
        replicas = list(image().topic("t").partitions[0].replicas)
        await changed(move("t", replicas), alter_partition_reassignments.AlterPartitionReassignmentsResponse)
        await changed(all_reassignments(), ListPartitionReassignmentsResponse)
        elected = await connection.ask(elect("t"), elect_leaders.ElectLeadersResponse)
        assert errors_of(elected) == ["ELECTION_NOT_NEEDED"]
        await changed(delete("t"), delete_topics.DeleteTopicsResponse)
        assert image().topic("t") is None
        nobody = await connection.ask(UnregisterBrokerRequest(broker_id=9), UnregisterBrokerResponse)
        assert errors_of(nobody) == ["BROKER_ID_NOT_REGISTERED"]
        connection.close()

    in_cluster(scenario)


@pytest.mark.parametrize("through", BROKERS)
def test_the_quorum_is_described_and_changed_through_any_broker(through: int) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        leader = leader_of(cluster)
        described = await ask(cluster, through, quorum(), describe_quorum.DescribeQuorumResponse)
        (partition,) = described.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (0, leader)
        voters = {each.replica_id: bytes(each.replica_directory_id) for each in partition.current_voters}
        assert voters == {each: directory_of(each).bytes for each in (1, 2, 3)}
        added = await ask(cluster, through, add_voter("another"), AddRaftVoterResponse)
        assert errors_of(added) == ["INCONSISTENT_CLUSTER_ID"]
        removed = await ask(cluster, through, remove_voter(CLUSTER_ID), RemoveRaftVoterResponse)
        assert errors_of(removed) == ["VOTER_NOT_FOUND"]

    in_cluster(scenario)


def test_settings_of_one_broker_are_judged_by_it_and_kept_by_the_controller() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        response = incremental_alter_configs.IncrementalAlterConfigsResponse
        own = alter(BROKER_RESOURCE, "4", "log.cleaner.backoff.ms", "2000")
        assert errors_of(await ask(cluster, 4, own, response)) == ["NONE"]
        assert cluster.nodes[4].services.settings.integer("log.cleaner.backoff.ms") == 2000
        assert errors_of(await ask(cluster, 5, own, response)) == ["INVALID_REQUEST"]
        bad = alter(BROKER_RESOURCE, "4", "log.cleaner.backoff.ms", "soon")
        assert errors_of(await ask(cluster, 4, bad, response)) == ["INVALID_REQUEST"]
        # a tool may ask the controller directly, for any node that is registered
        leader = leader_of(cluster)
        direct = alter(BROKER_RESOURCE, "5", "log.cleaner.backoff.ms", "3000")
        assert errors_of(await ask(cluster, leader, direct, response, CONTROLLER_PORT)) == ["NONE"]
        five = cluster.nodes[5]
        await cluster.until(
            lambda: five.services.settings.integer("log.cleaner.backoff.ms") == 3000, "node 5 heeds it"
        )
        nobody = alter(BROKER_RESOURCE, "9", "log.cleaner.backoff.ms", "3000")
        answer = await ask(cluster, leader, nobody, response, CONTROLLER_PORT)
        assert errors_of(answer) == ["BROKER_ID_NOT_REGISTERED"]

    in_cluster(scenario)


def test_directories_are_cordoned_at_their_broker() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        response = incremental_alter_configs.IncrementalAlterConfigsResponse
        leader = leader_of(cluster)
        cordon = alter(BROKER_RESOURCE, "4", "cordoned.log.dirs", "data")
        answer = await ask(cluster, leader, cordon, response, CONTROLLER_PORT)
        assert errors_of(answer) == ["INVALID_CONFIG"]
        assert errors_of(await ask(cluster, 4, cordon, response)) == ["NONE"]
        let_go = alter(BROKER_RESOURCE, "4", "cordoned.log.dirs", "")
        assert errors_of(await ask(cluster, leader, let_go, response, CONTROLLER_PORT)) == ["NONE"]

    in_cluster(scenario)


def test_loggers_are_those_of_the_node_that_is_asked() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        logger = logging.getLogger("barnabas.of_a_test")
        response = incremental_alter_configs.IncrementalAlterConfigsResponse
        louder = alter(BROKER_LOGGER, "4", "barnabas.of_a_test", "DEBUG")
        assert errors_of(await ask(cluster, 5, louder, response)) == ["INVALID_REQUEST"]
        assert logger.level == logging.NOTSET
        offset = cluster.nodes[4].quorum.driver.end_offset
        assert errors_of(await ask(cluster, 4, louder, response)) == ["NONE"]
        assert logger.level == logging.DEBUG
        assert cluster.nodes[4].quorum.driver.end_offset - offset < 5  # nothing of it is stored
        logger.setLevel(logging.NOTSET)

    in_cluster(scenario)


# ---- who the controller is -------------------------------------------------------------------------------


def test_the_controller_that_brokers_tell_is_a_broker_that_is_alive() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        connection = await connect(cluster, 4)
        told, described = set(), set()
        for _ in range(60):
            told.add((await connection.ask(MetadataRequest(topics=[]), MetadataResponse)).controller_id)
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=False, include_fenced_brokers=False
            )
            described.add((await connection.ask(request, DescribeClusterResponse)).controller_id)
        assert told == described == set(BROKERS)
        connection.close()

    in_cluster(scenario)


def test_the_controller_that_controllers_tell_is_the_leader() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        leader = leader_of(cluster)
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=2, include_fenced_brokers=False
        )
        answer = await ask(cluster, leader, request, DescribeClusterResponse, CONTROLLER_PORT)
        assert answer.controller_id == leader
        assert leader in {(each.broker_id) for each in answer.brokers}
        assert {(each.host, each.port) for each in answer.brokers} <= {
            (host_of(each), CONTROLLER_PORT) for each in (1, 2, 3)
        }

    in_cluster(scenario)


# ---- topics that are made on the way ---------------------------------------------------------------------


@pytest.mark.parametrize("through", BROKERS)
def test_topics_are_created_where_metadata_and_coordinators_are_looked_for(through: int) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        wanted = [MetadataRequestTopic(name="automatic", topic_id=NO_UUID)]
        answer = await ask(cluster, through, MetadataRequest(topics=wanted), MetadataResponse)
        (topic,) = answer.topics
        assert (topic.error_code, topic.name) == (0, "automatic")
        assert topic.partitions[0].leader_id in BROKERS
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"])
            found = await ask(cluster, through, find, FindCoordinatorResponse)
            assert errors_of(found) == ["NONE"]
            assert found.coordinators[0].node_id in BROKERS
        ids = set()
        for _ in range(3):
            init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
            got = await ask(cluster, through, init, InitProducerIdResponse)
            assert got.error_code == 0
            ids.add(got.producer_id)
        assert len(ids) == 3

    in_cluster(
        scenario,
        {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"},
    )


def test_what_needs_a_new_topic_is_answered_although_nobody_leads() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        connection = await connect(cluster, 4)
        assert errors_of(await connection.ask(create("there"), create_topics.CreateTopicsResponse)) == [
            "NONE"
        ]
        for each in (1, 2):
            await cluster.kill(each)
        names = [MetadataRequestTopic(name=name, topic_id=NO_UUID) for name in ("there", "missing")]
        began = asyncio.get_running_loop().time()
        answer = await connection.ask(MetadataRequest(topics=names), MetadataResponse)
        assert asyncio.get_running_loop().time() - began < 6
        codes = {topic.name: WIRE_ERRORS[topic.error_code].name for topic in answer.topics}
        assert codes == {"there": "NONE", "missing": "LEADER_NOT_AVAILABLE"}
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["k"])
        found = await connection.ask(find, FindCoordinatorResponse)
        assert errors_of(found) == ["COORDINATOR_NOT_AVAILABLE"]
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        got = await connection.ask(init, InitProducerIdResponse)
        assert errors_of(got) == ["COORDINATOR_LOAD_IN_PROGRESS"]
        assert asyncio.get_running_loop().time() - began < 18
        late = await connection.ask(create("late"), create_topics.CreateTopicsResponse)
        assert errors_of(late) == ["REQUEST_TIMED_OUT"]
        connection.close()

    in_cluster(scenario)


# ---- fail-over -------------------------------------------------------------------------------------------


def test_requests_under_way_when_the_leader_dies_are_answered_by_the_next() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        connections = [await connect(cluster, each) for each in (4, 5)]
        for connection in connections:
            await connection.ask(create(f"before-{connection.peer.host}"), create_topics.CreateTopicsResponse)
        leader = leader_of(cluster)
        asked = [
            asyncio.ensure_future(
                each.ask(create(f"t-{number}-{each.peer.host}"), create_topics.CreateTopicsResponse)
            )
            for number in range(10)
            for each in connections
        ]
        await asyncio.sleep(0.0005)
        await cluster.kill(leader)
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*asked)
        assert asyncio.get_running_loop().time() - began < 2
        # what the former leader has carried out and not answered was asked for a second time
        assert {name for each in answers for name in errors_of(each)} <= {"NONE", "TOPIC_ALREADY_EXISTS"}
        image = cluster.nodes[4].quorum.metadata.image
        assert all(image.topic(each.topics[0].name) is not None for each in answers)
        for connection in connections:
            connection.close()

    in_cluster(scenario)
