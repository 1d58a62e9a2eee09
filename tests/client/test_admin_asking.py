"""Whom the admin asks, and when again: the controller, leaders that move, brokers of another age."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.client.admin import Admin, NewTopic, ResourceType
from barnabas.client.cluster import ClientConfig
from barnabas.client.errors import BrokerError, BrokerNotReachable, TopicExists, UnknownTopic
from barnabas.core.random import SeededRandom
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.schema import Message
from barnabas.sim.loop import LoopClock, run
from tests.client.fake_broker import Drop, FakeBroker, FakeCluster

NOT_CONTROLLER = 41
ALREADY_EXISTS = 36


def administer(
    work: Callable[[FakeCluster, Admin], Awaitable[None]], brokers: int = 2, **old: int
) -> FakeCluster:
    """Run `work` with an admin of a fake cluster, whose requests end at the versions in `old`."""

    async def main() -> FakeCluster:
        cluster = FakeCluster(brokers)
        cluster.max_versions.update({f"{name}Request": last for name, last in old.items()})
        await cluster.start()
        network = cluster.network.host("client")
        config = ClientConfig(request_timeout_ms=5000)
        async with Admin(network, LoopClock(), SeededRandom(1), cluster.bootstrap, config) as admin:
            await work(cluster, admin)
        return cluster

    return run(main())


def asked(cluster: FakeCluster, name: str) -> list[int]:
    """Which brokers were asked that, in this order."""
    return [node for node, each, _, _ in cluster.log if each == f"{name}Request"]


def refused(request: CreateTopicsRequest, error_code: int) -> CreateTopicsResponse:
    result = CreatableTopicResult(
        name=request.topics[0].name,
        topic_id=bytes(16),
        error_code=error_code,
        error_message=None,
        configs=None,
    )
    return CreateTopicsResponse(throttle_time_ms=0, topics=[result])


def test_where_a_broker_is_not_the_controller_the_controller_is_asked() -> None:
    async def not_here(broker: FakeBroker, request: Any, version: int) -> Message | None:
        if isinstance(request, MetadataRequest):
            answer: Any = broker.on_metadata(request, version)
            answer.controller_id = 2
            return answer  # type: ignore[no-any-return]
        if isinstance(request, CreateTopicsRequest) and broker.node_id != 2:
            return refused(request, NOT_CONTROLLER)
        return None

    async def work(cluster: FakeCluster, admin: Admin) -> None:
        cluster.rules.append(not_here)
        await admin.create_topics([NewTopic("orders", 1, 1)])
        assert asked(cluster, "CreateTopics") == [1, 2]
        assert "orders" in cluster.topics

    administer(work)


def test_records_are_deleted_by_the_leaders_and_again_where_those_have_moved() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        cluster.add_topic("orders", 3)  # led by 1, 2 and 1

        async def move(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if isinstance(request, DeleteRecordsRequest) and broker.node_id == 2:
                cluster.move("orders", 1, 1)
                cluster.rules.clear()
            return None

        cluster.rules.append(move)
        wanted = {("orders", number): 5 + number for number in range(3)}
        assert await admin.delete_records(wanted) == wanted
        assert sorted(asked(cluster, "DeleteRecords")[:2]) == [1, 2]
        assert asked(cluster, "DeleteRecords")[2:] == [1]
        (again,) = cluster.asked("DeleteRecords")[2].topics
        assert [partition.partition_index for partition in again.partitions] == [1]

    administer(work)


def test_a_topic_that_is_not_there_is_said_at_once() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        with pytest.raises(UnknownTopic):
            await admin.delete_records({("nothing", 0): 1})
        assert len(asked(cluster, "Metadata")) == 1

    administer(work)


def test_a_partition_without_a_leader_is_said() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        cluster.add_topic("orders")
        cluster.move("orders", 0, -1)
        with pytest.raises(BrokerNotReachable, match="orders-0 has no leader"):
            await admin.delete_records({("orders", 0): 1})

    administer(work)


def test_lost_request_is_repeated_where_that_does_no_harm() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        drops: list[type[Message]] = [DescribeClusterRequest, CreateTopicsRequest]

        async def drop(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if type(request) in drops:
                drops.remove(type(request))
                raise Drop(first=True)
            return None

        async def exists(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if isinstance(request, CreateTopicsRequest) and request.topics[0].name in cluster.topics:
                return refused(request, ALREADY_EXISTS)
            return None

        cluster.rules += [drop, exists]
        assert len((await admin.describe_cluster()).brokers) == 2
        assert len(asked(cluster, "DescribeCluster")) == 2
        # somebody else may have made it: nobody can tell
        with pytest.raises(TopicExists, match="the first attempt may have done it"):
            await admin.create_topics([NewTopic("orders", 2, 1)])
        assert len(asked(cluster, "CreateTopics")) == 2
        with pytest.raises(TopicExists) as caught:
            await admin.create_topics([NewTopic("orders", 2, 1)])
        assert "first attempt" not in str(caught.value)

    administer(work)


def test_a_broker_before_2_8_describes_its_cluster_by_metadata() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        described = await admin.describe_cluster()
        assert (described.cluster_id, described.controller_id) == ("fake", 1)
        assert [broker.node_id for broker in described.brokers] == [1, 2]

    administer(work, DescribeCluster=-1)


def test_what_a_broker_does_not_speak_is_said() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        for asking in (
            admin.describe_quorum(),
            admin.list_config_resources([ResourceType.TOPIC]),
            admin.update_features({"metadata.version": 30}),
        ):
            with pytest.raises(NotSpoken, match="the broker has no"):
                await asking

    administer(work)


def test_the_first_error_carries_the_others() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        with pytest.raises(UnknownTopic) as caught:
            await admin.describe_topics(["one", "two", "three"])
        first = caught.value
        assert "'one'" in str(first)
        assert ["'two'" in str(first.others[0]), "'three'" in str(first.others[1])] == [True, True]
        assert all(isinstance(other, BrokerError) for other in first.others)

    administer(work)
