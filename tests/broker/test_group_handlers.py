"""Members of groups over the wire: what a restart, a crash, or too much to be written means to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from barnabas.testing import Broker
from tests.support.raw_client import RawClient, wait_until
from tests.support.raw_groups import beating, joining, leaving, syncing
from tests.support.raw_offsets import find
from tests.support.sessions import wait_until_asked

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}


def first_member(client: RawClient, group: str = "g", *, part: bytes = b"all", **wants: Any) -> Any:
    """The only member of a stable group: the answer to its join."""
    find(client, group)
    given = client.ask(joining(group, **wants), 9, JoinGroupResponse)
    joined = client.ask(joining(group, given.member_id, **wants), 9, JoinGroupResponse)
    assert joined.error_code == 0
    synced = client.ask(syncing(group, joined, {joined.member_id: part}), 5, SyncGroupResponse)
    assert (synced.error_code, synced.assignment) == (0, part)
    return joined


def described(client: RawClient, group: str = "g") -> Any:
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    return client.ask(request, 5, DescribeGroupsResponse).groups[0]


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_a_member_goes_on_after_a_restart(
    make_broker: Callable[..., Broker], tmp_path: Path, end: Callable[[Broker], None]
) -> None:
    broker = make_broker(tmp_path, SETTINGS)
    with RawClient(broker.port) as client:
        joined = first_member(client)
        before = described(client)
    end(broker)
    broker = make_broker(tmp_path, SETTINGS)
    with RawClient(broker.port) as client:
        find(client, "g")
        beaten = client.ask(beating("g", joined.generation_id, joined.member_id), 4, HeartbeatResponse)
        synced = client.ask(syncing("g", joined), 5, SyncGroupResponse)
        assert (beaten.error_code, synced.assignment) == (0, b"all")
        assert described(client) == before
        listed = client.ask(ListGroupsRequest(), 5, ListGroupsResponse).groups
        assert [(one.group_id, one.group_state, one.group_type) for one in listed] == [
            ("g", "Stable", "classic")
        ]


def test_nobody_who_waits_for_a_rebalance_holds_up_the_end_of_a_broker(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker(None, SETTINGS)
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        first_member(client, session_ms=600_000, rebalance_ms=600_000)
        other.send(joining("g", session_ms=600_000, rebalance_ms=600_000), 3)
        wait_until_asked(broker, other)
        broker.stop()  # which fails where it takes longer than half a minute
        try:  # told so, or cut off
            _, answer = other.receive_response(JoinGroupResponse, 3, flexible=False)
            assert WIRE_ERRORS[answer.error_code].name == "NOT_COORDINATOR"
        except EOFError:
            pass


def test_parts_that_are_too_large_to_be_written_are_refused_to_all_who_wait_for_them(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker(None, SETTINGS)
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        one = first_member(client)
        other.send(joining("g"), 3)
        wait_until_asked(broker, other)
        one = client.ask(joining("g", one.member_id), 9, JoinGroupResponse)
        _, two = other.receive_response(JoinGroupResponse, 3, flexible=False)
        other.send(syncing("g", two), 3)
        wait_until_asked(broker, other)
        refused = client.ask(syncing("g", one, {one.member_id: bytes(2_000_000)}), 5, SyncGroupResponse)
        assert WIRE_ERRORS[refused.error_code].name == "UNKNOWN_SERVER_ERROR"
        _, part = other.receive_response(SyncGroupResponse, 3, flexible=False)
        assert (WIRE_ERRORS[part.error_code].name, part.assignment) == ("UNKNOWN_SERVER_ERROR", b"")
        beaten = client.ask(beating("g", one.generation_id, one.member_id), 4, HeartbeatResponse)
        assert WIRE_ERRORS[beaten.error_code].name == "REBALANCE_IN_PROGRESS"
        other.send(joining("g", two.member_id), 3)
        one = client.ask(joining("g", one.member_id), 9, JoinGroupResponse)
        _, two = other.receive_response(JoinGroupResponse, 3, flexible=False)
        parts = {one.member_id: b"small", two.member_id: b"smaller"}
        assert client.ask(syncing("g", one, parts), 5, SyncGroupResponse).assignment == b"small"
        other.send(syncing("g", two), 3)
        _, part = other.receive_response(SyncGroupResponse, 3, flexible=False)
        assert part.assignment == b"smaller"


def test_a_client_that_gives_up_while_it_waits_is_missed_like_any_other(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker(None, SETTINGS | {"group.min.session.timeout.ms": "100"})
    with RawClient(broker.port) as client:
        one = first_member(client, session_ms=60_000)
        with RawClient(broker.port) as other:
            given = other.ask(joining("g", session_ms=60_000), 9, JoinGroupResponse)
            other.send(joining("g", given.member_id, session_ms=1500), 9)
            wait_until_asked(broker, other)
        one = client.ask(joining("g", one.member_id, session_ms=60_000), 9, JoinGroupResponse)
        assert (one.error_code, len(one.members)) == (0, 2)
        synced = client.ask(syncing("g", one, {one.member_id: b"part"}), 5, SyncGroupResponse)
        assert synced.assignment == b"part"

        def is_missed() -> bool:  # it has joined without knowing, and is silent since
            beaten = client.ask(beating("g", one.generation_id, one.member_id), 4, HeartbeatResponse)
            assert WIRE_ERRORS[beaten.error_code].name in ("NONE", "REBALANCE_IN_PROGRESS")
            return beaten.error_code != 0

        wait_until(is_missed, "the rebalance without it")
        assert len(described(client).members) == 1


def test_groups_of_all_partitions_are_listed_and_deleted(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(None, SETTINGS)
    names = [f"group-{number}" for number in range(6)]
    with RawClient(broker.port) as client:
        for name in names:
            joined = first_member(client, name)
            left = client.ask(leaving(name, (joined.member_id, None)), 1, LeaveGroupResponse)
            assert left.error_code == 0
        listed = client.ask(ListGroupsRequest(states_filter=["Empty"]), 4, ListGroupsResponse)
        assert sorted(one.group_id for one in listed.groups) == names
        answer = client.ask(DeleteGroupsRequest(groups_names=[*names, "none"]), 2, DeleteGroupsResponse)
        assert [WIRE_ERRORS[one.error_code].name for one in answer.results] == [
            *["NONE"] * len(names),
            "GROUP_ID_NOT_FOUND",
        ]
        assert client.ask(ListGroupsRequest(), 5, ListGroupsResponse).groups == []
