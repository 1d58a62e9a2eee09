"""The admin's groups and their offsets, against real brokers."""

from __future__ import annotations

import pytest

from barnabas.client.admin import Admin, CommittedOffset, NewTopic
from barnabas.client.errors import BrokerError, GroupNotEmpty, UnknownGroup
from tests.client.coordinated import join
from tests.client.real import Clients
from tests.client.test_admin import administer, make, name_of


def test_offsets_are_set_told_and_deleted(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("ag-offsets", 3, 1))
        wanted = {("ag-offsets", 0): 5, ("ag-offsets", 1): CommittedOffset(7, 0, "half way")}
        await admin.alter_group_offsets("ag-offsets", wanted)
        assert await admin.list_group_offsets("ag-offsets") == {
            ("ag-offsets", 0): CommittedOffset(5),
            ("ag-offsets", 1): CommittedOffset(7, 0, "half way"),
        }
        some = await admin.list_group_offsets("ag-offsets", [("ag-offsets", 1), ("ag-offsets", 2)])
        assert list(some) == [("ag-offsets", 1)]
        await admin.delete_group_offsets("ag-offsets", [("ag-offsets", 1), ("ag-offsets", 2)])
        left = await admin.list_group_offsets("ag-offsets", require_stable=True)
        assert left == {("ag-offsets", 0): CommittedOffset(5)}
        assert await admin.list_group_offsets("ag-nobody") == {}

    administer(bootstrap, work)


def test_groups_are_listed_by_state_and_type(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("ag-list", 1, 1))
        await admin.alter_group_offsets("ag-empty", {("ag-list", 0): 0})
        await join(admin, "ag-stable", "ag-list", [0])

        async def listed(**filters: list[str]) -> list[tuple[str, str | None, str | None, int]]:
            found = await admin.list_groups(**filters)
            return [
                (each.group_id, each.state, each.type, each.coordinator)
                for each in found
                if each.group_id in ("ag-empty", "ag-stable")
            ]

        empty, stable = ("ag-empty", "Empty", "classic", 1), ("ag-stable", "Stable", "classic", 1)
        assert await listed() == [empty, stable]
        assert await listed(states=["Stable", "Dead"]) == [stable]
        assert await listed(states=["Empty"], types=["classic"]) == [empty]
        assert await listed(types=["consumer"]) == []

    administer(bootstrap, work)


def test_a_group_is_described_with_its_members_and_what_they_read(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("ag-members", 3, 1))
        member_id = await join(admin, "ag-members", "ag-members", [2, 0], instance_id="desk-1")
        group = (await admin.describe_groups(["ag-members"]))["ag-members"]
        assert (group.state, group.protocol_type, group.protocol) == ("Stable", "consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.instance_id, member.client_id) == (member_id, "desk-1", "barnabas")
        assert member.topics == ["ag-members"]
        assert member.assignment == [("ag-members", 0), ("ag-members", 2)]
        with pytest.raises(UnknownGroup, match="Group ag-nothing not found"):
            await admin.describe_groups(["ag-members", "ag-nothing"])

    administer(bootstrap, work)


def test_what_members_have_is_theirs_until_they_leave(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("ag-theirs", 2, 1))
        member_id = await join(admin, "ag-theirs", "ag-theirs", [0, 1])
        with pytest.raises(BrokerError) as caught:
            await admin.alter_group_offsets("ag-theirs", {("ag-theirs", 0): 5})
        assert name_of(caught) == "UNKNOWN_MEMBER_ID"
        with pytest.raises(BrokerError) as caught:
            await admin.delete_group_offsets("ag-theirs", [("ag-theirs", 0)])
        assert name_of(caught) == "GROUP_SUBSCRIBED_TO_TOPIC"
        with pytest.raises(GroupNotEmpty):
            await admin.delete_groups(["ag-theirs"])
        with pytest.raises(BrokerError, match="cannot remove 'stranger'") as caught:
            await admin.remove_group_members("ag-theirs", ["stranger"])
        assert name_of(caught) == "UNKNOWN_MEMBER_ID"
        await admin.remove_group_members("ag-theirs", [member_id], reason="a test")
        assert (await admin.describe_groups(["ag-theirs"]))["ag-theirs"].state == "Empty"
        await admin.alter_group_offsets("ag-theirs", {("ag-theirs", 0): 5})
        await admin.delete_groups(["ag-theirs"])
        with pytest.raises(UnknownGroup):
            await admin.delete_groups(["ag-theirs"])

    administer(bootstrap, work)


def test_a_static_member_is_removed_by_its_name(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("ag-static", 1, 1))
        await join(admin, "ag-static", "ag-static", [0], instance_id="desk-1")
        await admin.remove_group_members("ag-static", instance_ids=["desk-1"])
        assert (await admin.describe_groups(["ag-static"]))["ag-static"].members == []

    administer(bootstrap, work)
