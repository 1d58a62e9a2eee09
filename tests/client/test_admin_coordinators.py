"""Whom the admin asks about groups: coordinators, found once for many, and found again where they moved."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.admin import Admin, CommittedOffset, CoordinatorType
from barnabas.client.errors import BrokerError, UnknownGroup
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.protocol.schema import Message
from tests.client.fake_broker import Drop, FakeBroker, FakeCluster
from tests.client.test_admin_asking import administer, asked

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN, UNSTABLE = 14, 15, 16, 69, 88


def described(group_id: str, error_code: int = 0) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code,
        group_id=group_id,
        group_state="Empty",
        protocol_type="consumer",
        protocol_data="",
        members=[],
    )


class Answers:
    """A rule: brokers describe groups, each with the next error that is due for it, or as empty."""

    def __init__(self, **errors: list[int]) -> None:
        self.errors = errors

    async def __call__(self, broker: FakeBroker, request: Any, version: int) -> Message | None:
        if not isinstance(request, DescribeGroupsRequest):
            return None
        groups = []
        for group in request.groups:
            due = self.errors.get(group)
            is_here = broker.cluster.coordinators.get(group, 1) == broker.node_id
            code = due.pop(0) if due else 0 if is_here else NOT_COORDINATOR
            groups.append(described(group, code))
        return DescribeGroupsResponse(throttle_time_ms=0, groups=groups)


def test_coordinators_are_found_once_for_many_and_each_is_asked_for_all_it_has() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        cluster.coordinators |= {"a": 1, "b": 2, "c": 2}
        cluster.rules.append(Answers())
        assert list(await admin.describe_groups(["c", "a", "b"])) == ["c", "a", "b"]
        await admin.describe_groups(["b"])
        assert [each.coordinator_keys for each in cluster.asked("FindCoordinator")] == [["c", "a", "b"]]
        questions = [(node, each.groups) for node, name, _, each in cluster.log if "Describe" in name]
        assert sorted(questions[:2]) == [(1, ["a"]), (2, ["c", "b"])]
        assert questions[2:] == [(2, ["b"])]
        assert await admin.find_coordinators(CoordinatorType.TRANSACTION, ["b"]) == {"b": 2}
        assert cluster.asked("FindCoordinator")[-1].key_type == 1

    administer(work)


def test_where_a_coordinator_has_moved_the_new_one_is_asked() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        cluster.rules.append(Answers())
        await admin.describe_groups(["a", "b"])
        cluster.coordinators["b"] = 2
        found = await admin.describe_groups(["a", "b"])
        assert [each.coordinator for each in found.values()] == [1, 2]
        assert cluster.asked("FindCoordinator")[-1].coordinator_keys == ["b"]
        assert cluster.asked("DescribeGroups")[-1].groups == ["b"]

    administer(work)


def test_a_coordinator_that_is_loading_or_not_there_yet_is_asked_again() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        cluster.rules.append(Answers(a=[LOADING, LOADING, NOT_AVAILABLE]))
        assert (await admin.describe_groups(["a"]))["a"].state == "Empty"
        assert len(cluster.asked("DescribeGroups")) == 4
        assert len(cluster.asked("FindCoordinator")) == 2  # again only for one that may be another

    administer(work)


def test_what_is_loading_for_too_long_is_an_error() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        cluster.rules.append(Answers(a=[LOADING] * 1000))
        with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await admin.describe_groups(["a"])

    administer(work)


def test_no_coordinator_yet_is_asked_for_again() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        async def none_yet(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, FindCoordinatorRequest):
                return None
            cluster.rules.remove(none_yet)
            nobody = Coordinator(
                key="a", node_id=-1, host="", port=-1, error_code=NOT_AVAILABLE, error_message=None
            )
            return FindCoordinatorResponse(coordinators=[nobody])

        cluster.rules += [none_yet, Answers()]
        assert list(await admin.describe_groups(["a"])) == ["a"]
        assert len(cluster.asked("FindCoordinator")) == 2

    administer(work)


def test_brokers_before_3_0_are_asked_for_one_coordinator_at_a_time() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        cluster.coordinators["b"] = 2
        found = await admin.find_coordinators(CoordinatorType.GROUP, ["a", "b"])
        assert found == {"a": 1, "b": 2}
        assert [each.key for each in cluster.asked("FindCoordinator")] == ["a", "b"]

    administer(work, FindCoordinator=3)


def test_a_coordinator_that_dies_is_asked_for_anew() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        cluster.coordinators["a"] = 2
        cluster.rules.append(Answers())
        await admin.describe_groups(["a"])
        cluster.brokers[2].stop()
        cluster.coordinators["a"] = 1
        assert (await admin.describe_groups(["a"]))["a"].coordinator == 1

    administer(work)


def test_deletion_of_a_group_is_repeated_and_a_group_that_is_gone_by_then_is_deleted() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        async def drop(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if isinstance(request, (DeleteGroupsRequest, DescribeGroupsRequest)):
                cluster.rules.remove(drop)
                raise Drop
            return None

        async def gone(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, DeleteGroupsRequest):
                return None
            results = [
                DeletableGroupResult(group_id=each, error_code=UNKNOWN) for each in request.groups_names
            ]
            return DeleteGroupsResponse(throttle_time_ms=0, results=results)

        cluster.rules += [drop, gone, Answers()]
        assert list(await admin.describe_groups(["a"])) == ["a"]
        assert len(cluster.asked("DescribeGroups")) == 2
        cluster.rules.insert(0, drop)
        await admin.delete_groups(["a"])
        assert len(cluster.asked("DeleteGroups")) == 2
        with pytest.raises(UnknownGroup):
            await admin.delete_groups(["a"])

    administer(work)


def test_of_many_groups_those_that_can_go_do_and_the_errors_are_told() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        async def delete(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, DeleteGroupsRequest):
                return None
            results = [
                DeletableGroupResult(group_id=each, error_code=0 if each == "b" else UNKNOWN)
                for each in request.groups_names
            ]
            return DeleteGroupsResponse(throttle_time_ms=0, results=results)

        cluster.coordinators["c"] = 2
        cluster.rules.append(delete)
        with pytest.raises(UnknownGroup, match="'a'") as caught:
            await admin.delete_groups(["a", "b", "c"])
        assert ["'c'" in str(other) for other in caught.value.others] == [True]
        assert sorted(asked(cluster, "DeleteGroups")) == [1, 2]

    administer(work)


def test_groups_are_listed_by_every_broker_and_again_by_one_that_is_loading() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        loading = [LOADING]

        async def groups(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, ListGroupsRequest):
                return None
            if broker.node_id == 2 and loading:
                return ListGroupsResponse(throttle_time_ms=0, error_code=loading.pop(), groups=[])
            group = ListedGroup(
                group_id=f"of-{broker.node_id}", protocol_type="consumer", group_state="Empty"
            )
            return ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[group])

        cluster.rules.append(groups)
        listed = await admin.list_groups(states=["Empty"])
        assert [(each.group_id, each.state, each.type, each.coordinator) for each in listed] == [
            ("of-1", "Empty", None, 1),
            ("of-2", "Empty", None, 2),
        ]
        assert sorted(asked(cluster, "ListGroups")) == [1, 2, 2]
        # a filter that a broker would not heed
        with pytest.raises(NotSpoken, match="ListGroups 5"):
            await admin.list_groups(types=["classic"])

    administer(work, ListGroups=4)


def test_offsets_of_a_group_from_a_broker_that_knows_one_group_a_request() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        unstable = [UNSTABLE]

        async def offsets(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, OffsetFetchRequest):
                return None
            assert (request.group_id, request.require_stable) == ("g", True)
            code = unstable.pop() if unstable else 0
            partitions = [
                OffsetFetchResponsePartition(
                    partition_index=number,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    metadata=None,
                    error_code=code,
                )
                for number, offset, epoch in ((1, 7, -1), (0, 5, 2), (2, -1, -1))
            ]
            topic = OffsetFetchResponseTopic(name="orders", partitions=partitions)
            return OffsetFetchResponse(throttle_time_ms=0, topics=[topic], error_code=0)

        cluster.rules.append(offsets)
        wanted = [("orders", number) for number in range(3)]
        found = await admin.list_group_offsets("g", wanted, require_stable=True)
        assert list(found.items()) == [
            (("orders", 0), CommittedOffset(5, 2)),
            (("orders", 1), CommittedOffset(7)),
        ]
        assert len(cluster.asked("OffsetFetch")) == 2

    administer(work, OffsetFetch=7)


def test_the_first_partition_that_cannot_be_set_is_told_with_the_others() -> None:
    async def work(cluster: FakeCluster, admin: Admin) -> None:
        async def refuse(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, OffsetCommitRequest):
                return None
            (topic,) = request.topics
            codes = [
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each, code in zip(topic.partitions, (0, 3, 12), strict=True)
            ]
            answer = OffsetCommitResponseTopic(name=topic.name, partitions=codes)
            return OffsetCommitResponse(throttle_time_ms=0, topics=[answer])

        cluster.rules.append(refuse)
        with pytest.raises(BrokerError, match="orders-1 in group 'g': UNKNOWN_TOPIC_OR_PARTITION") as caught:
            await admin.alter_group_offsets("g", {("orders", number): 5 for number in range(3)})
        (other,) = caught.value.others
        assert "orders-2 in group 'g': OFFSET_METADATA_TOO_LARGE" in str(other)
        ((_, _, version, _),) = [each for each in cluster.log if each[1] == "OffsetCommitRequest"]
        assert version == 9  # the last in which topics have names

    administer(work)
