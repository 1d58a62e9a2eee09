"""Groups that are not of consumers: workers like those of Kafka Connect and Schema Registry, by raw requests.

The broker knows nothing of their protocols: what members say of themselves reaches the leader as it is, and
what the leader hands in reaches the members as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.support.group_members import SETTINGS
from tests.support.raw_client import RawClient, wait_until
from tests.support.targets import Target

NONE, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 0, 23, 27, 79
NOT_YET = {14, 15, 16}  # the coordinator is being loaded, made, or elsewhere
JOIN, SYNC = 9, 5
SESSION_MS, LONG_MS = 600, 30_000


class Worker:
    """A connection that is a member of a group."""

    def __init__(self, port: int, group: str, kind: str, protocols: Mapping[str, bytes]) -> None:
        self.client = RawClient(port)
        self.group = group
        self.kind = kind
        self.protocols = protocols
        self.member_id = ""
        self.generation = -1
        self.protocol: str | None = None

    def ask_to_join(self, session_ms: int = LONG_MS) -> None:
        protocols = [
            JoinGroupRequestProtocol(name=name, metadata=said) for name, said in self.protocols.items()
        ]
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=LONG_MS,
            member_id=self.member_id,
            protocol_type=self.kind,
            protocols=protocols,
        )
        self.client.send(request, JOIN)

    def joined(self) -> JoinGroupResponse:
        _, answer = self.client.receive_response(JoinGroupResponse, JOIN, flexible=True)
        if answer.error_code in (NONE, MEMBER_ID_REQUIRED):
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.protocol = answer.protocol_name
        return answer

    def enter(self, session_ms: int = LONG_MS) -> None:
        """Get an id, and ask to join with it."""
        self.ask_to_join(session_ms)
        assert self.joined().error_code == MEMBER_ID_REQUIRED
        self.ask_to_join(session_ms)

    def ask_to_sync(self, assignments: Mapping[str, bytes] | None = None) -> None:
        handed_in = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=part)
            for member_id, part in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=self.kind,
            protocol_name=self.protocol,
            assignments=handed_in,
        )
        self.client.send(request, SYNC)

    def synced(self) -> SyncGroupResponse:
        return self.client.receive_response(SyncGroupResponse, SYNC, flexible=True)[1]

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        return self.client.ask(request, 4, HeartbeatResponse).error_code

    def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        answer = self.client.ask(request, 5, LeaveGroupResponse)
        assert (answer.error_code, answer.members[0].error_code) == (NONE, NONE)


Start = Callable[[str, str, Mapping[str, bytes]], Worker]


@pytest.fixture
def target(new_target: Callable[[Mapping[str, str]], Target]) -> Target:
    target = new_target(SETTINGS)
    with RawClient(target.port) as client:

        def is_found() -> bool:
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["anybody"])
            (found,) = client.ask(asked, 6, FindCoordinatorResponse).coordinators
            assert found.error_code in (NONE, *NOT_YET), found
            return found.error_code == NONE

        wait_until(is_found, "coordinator")
    return target


@pytest.fixture
def start(target: Target) -> Iterator[Start]:
    workers: list[Worker] = []

    def start(group: str, kind: str, protocols: Mapping[str, bytes]) -> Worker:
        workers.append(Worker(target.port, group, kind, protocols))
        return workers[-1]

    yield start
    for worker in workers:
        worker.client.close()


def enter_first(worker: Worker, session_ms: int = LONG_MS) -> JoinGroupResponse:
    """As the first request of a group, for which its coordinator may not be ready."""

    def has_id() -> bool:
        worker.ask_to_join(session_ms)
        answer = worker.joined()
        assert answer.error_code in (MEMBER_ID_REQUIRED, *NOT_YET), answer
        return answer.error_code == MEMBER_ID_REQUIRED

    wait_until(has_id, "coordinator that is loaded")
    worker.ask_to_join(session_ms)
    return worker.joined()


def test_workers_of_any_kind_share_their_work(target: Target, start: Start) -> None:
    first = start("connect-cluster", "connect", {"sessioned": b"\x00s1", "compatible": b"\xffc1"})
    joined = enter_first(first)
    assert (joined.error_code, joined.generation_id, joined.protocol_type) == (NONE, 1, "connect")
    assert (joined.leader, joined.protocol_name, joined.skip_assignment) == (
        first.member_id,
        "sessioned",
        False,
    )
    assert [(each.member_id, each.metadata) for each in joined.members] == [(first.member_id, b"\x00s1")]
    first.ask_to_sync({first.member_id: b"all connectors"})
    synced = first.synced()
    assert (synced.assignment, synced.protocol_type, synced.protocol_name) == (
        b"all connectors",
        "connect",
        "sessioned",
    )

    # one that speaks an older protocol: both must
    second = start("connect-cluster", "connect", {"compatible": b"\xffc2", "eager": b"e2"})
    second.enter()
    wait_until(lambda: first.heartbeat() == REBALANCE_IN_PROGRESS, "rebalance")
    first.ask_to_join()
    joined, of_second = first.joined(), second.joined()
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 2, "compatible")
    assert {each.member_id: each.metadata for each in joined.members} == {
        first.member_id: b"\xffc1",
        second.member_id: b"\xffc2",
    }
    assert (of_second.leader, of_second.members) == (first.member_id, [])
    second.ask_to_sync()
    first.ask_to_sync({first.member_id: b"", second.member_id: b"\x01tasks\x00"})
    assert (first.synced().assignment, second.synced().assignment) == (b"", b"\x01tasks\x00")
    assert (first.heartbeat(), second.heartbeat()) == (NONE, NONE)

    listed = second.client.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5, ListGroupsResponse)
    assert [
        (each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed.groups
    ] == [("connect-cluster", "connect", "Stable", "classic")]
    asked = DescribeGroupsRequest(groups=["connect-cluster"], include_authorized_operations=False)
    (described,) = second.client.ask(asked, 6, DescribeGroupsResponse).groups
    assert (described.protocol_type, described.protocol_data) == ("connect", "compatible")
    assert {each.member_id: (each.member_metadata, each.member_assignment) for each in described.members} == {
        first.member_id: (b"\xffc1", b""),
        second.member_id: (b"\xffc2", b"\x01tasks\x00"),
    }

    # the leader leaves: the other one leads, by the protocol that it likes best
    first.leave()
    wait_until(lambda: second.heartbeat() == REBALANCE_IN_PROGRESS, "rebalance")
    second.ask_to_join()
    joined = second.joined()
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (3, second.member_id, "compatible")


def test_others_do_not_get_into_a_group_of_workers(target: Target, start: Start) -> None:
    worker = start("schema-registry", "sr", {"v0": b'{"host":"a"}'})
    assert enter_first(worker).error_code == NONE
    worker.ask_to_sync({worker.member_id: b'{"master":"a"}'})
    assert worker.synced().assignment == b'{"master":"a"}'
    for kind, protocols in (("consumer", {"v0": b""}), ("sr", {"v1": b""}), ("sr", {}), ("", {"v0": b""})):
        other = start("schema-registry", kind, protocols)
        other.ask_to_join()
        assert other.joined().error_code == INCONSISTENT_GROUP_PROTOCOL, (kind, protocols)
    assert worker.heartbeat() == NONE


def test_a_leader_that_dies_before_it_hands_in_the_work_is_replaced(target: Target, start: Start) -> None:
    leader = start("cluster", "connect", {"eager": b"1"})
    assert enter_first(leader, SESSION_MS).error_code == NONE
    follower = start("cluster", "connect", {"eager": b"2"})
    follower.enter()
    wait_until(lambda: leader.heartbeat() == REBALANCE_IN_PROGRESS, "rebalance")
    leader.ask_to_join(SESSION_MS)
    assert leader.joined().leader == follower.joined().leader == leader.member_id
    follower.ask_to_sync()
    leader.client.reset()
    # it waits for the leader's work until the leader's session is over
    assert follower.synced().error_code == REBALANCE_IN_PROGRESS
    follower.ask_to_join()
    joined = follower.joined()
    assert (joined.error_code, joined.generation_id, joined.leader) == (NONE, 3, follower.member_id)
    assert [each.member_id for each in joined.members] == [follower.member_id]
    follower.ask_to_sync({follower.member_id: b"all"})
    assert follower.synced().assignment == b"all"
