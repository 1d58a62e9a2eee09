"""Groups: listed, described and deleted, and members removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from barnabas.client.admin.coordinators import Coordinators, answers_of
from barnabas.client.admin.engine import error_of, raise_first
from barnabas.client.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_part,
    partitions_of,
)
from barnabas.client.coordinator_finder import CoordinatorType
from barnabas.client.errors import BrokerError, TimedOut
from barnabas.client.metadata import TopicPartition
from barnabas.core.network import CannotConnect, ConnectionLost
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

_STATES_FROM, _TYPES_FROM = 4, 5  # versions of ListGroups
_MEMBERS_FROM = 3  # of LeaveGroup


class GroupListing(NamedTuple):
    """A group as its coordinator lists it; fields that an older broker does not send are None."""

    group_id: str
    protocol_type: str
    state: str | None
    type: str | None
    coordinator: int


class GroupMember(NamedTuple):
    """A member; topics and partitions are None if it is no consumer, or has no assignment yet."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: list[str] | None
    assignment: list[TopicPartition] | None
    metadata: bytes
    assignment_bytes: bytes


class GroupDescription(NamedTuple):
    """A group of the classic protocol; `protocol` is the one that its members agreed on: for consumers, the
    assignor."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: list[GroupMember]


class Groups(Coordinators):
    """The part of an admin for groups."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """All groups, or those in one of these states and of one of these types."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        needed = _TYPES_FROM if request.types_filter else _STATES_FROM if request.states_filter else 0
        answers = await self._ask_brokers(
            request,
            ListGroupsResponse,
            lambda answer: error_of(answer.error_code, "cannot list groups"),
            from_version=needed,
        )
        listed = [
            GroupListing(
                each.group_id, each.protocol_type, each.group_state or None, each.group_type or None, node_id
            )
            for node_id, answer in answers.items()
            for each in answer.groups
        ]
        return sorted(listed)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Groups of the classic protocol and their members; UnknownGroup if one does not exist (brokers
        before 3.9 call it Dead instead)."""

        async def ask(node_id: int, asked: list[str]) -> dict[str, GroupDescription | BrokerError]:
            request = DescribeGroupsRequest(groups=asked, include_authorized_operations=False)
            response = await self.cluster.ask(request, DescribeGroupsResponse, node_id=node_id)
            return {
                each.group_id: error_of(
                    each.error_code, f"cannot describe group {each.group_id!r}", each.error_message
                )
                or _group(each, node_id)
                for each in response.groups
            }

        return answers_of(await self._ask_coordinators(CoordinatorType.GROUP, group_ids, ask))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, with their committed offsets."""
        unanswered = _Unanswered()

        async def ask(node_id: int, asked: list[str]) -> dict[str, bool | BrokerError]:
            request = DeleteGroupsRequest(groups_names=asked)
            with unanswered.noted(asked):
                response = await self.cluster.ask(request, DeleteGroupsResponse, node_id=node_id)
            return {
                each.group_id: error_of(
                    each.error_code,
                    f"cannot delete group {each.group_id!r}",
                    done="GROUP_ID_NOT_FOUND" if each.group_id in unanswered else "",
                )
                or True
                for each in response.results
            }

        answers_of(await self._ask_coordinators(CoordinatorType.GROUP, group_ids, ask))

    async def remove_group_members(
        self,
        group_id: str,
        member_ids: Iterable[str] = (),
        *,
        instance_ids: Iterable[str] = (),
        reason: str | None = None,
    ) -> None:
        """Remove members, static ones by their instance ids; members that are still running will rejoin."""
        members = [MemberIdentity(member_id=each, reason=reason) for each in member_ids]
        members += [
            MemberIdentity(member_id="", group_instance_id=each, reason=reason) for each in instance_ids
        ]

        unanswered = _Unanswered()

        async def ask(node_id: int, _: list[str]) -> Mapping[str, LeaveGroupResponse | BrokerError]:
            await self._check_version(node_id, LeaveGroupRequest, _MEMBERS_FROM)
            request = LeaveGroupRequest(group_id=group_id, members=members)
            with unanswered.noted([group_id]):
                response = await self.cluster.ask(request, LeaveGroupResponse, node_id=node_id)
            what = f"cannot remove members of group {group_id!r}"
            return {group_id: error_of(response.error_code, what) or response}

        answers = await self._ask_coordinators(CoordinatorType.GROUP, [group_id], ask)
        raise_first(
            error_of(
                each.error_code,
                f"cannot remove {each.group_instance_id or each.member_id!r} of group {group_id!r}",
                done="UNKNOWN_MEMBER_ID" if group_id in unanswered else "",
            )
            for each in answers_of(answers)[group_id].members
        )


class _Unanswered(set[str]):
    """Groups with a change that was not answered, and may have been carried out."""

    @contextmanager
    def noted(self, groups: Iterable[str]) -> Iterator[None]:
        try:
            yield
        except (ConnectionLost, TimedOut) as error:
            if not isinstance(error, CannotConnect):
                self.update(groups)
            raise


def _group(answer: DescribedGroup, node_id: int) -> GroupDescription:
    is_of_consumers = answer.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        answer.group_id,
        answer.group_state,
        answer.protocol_type,
        answer.protocol_data,
        node_id,
        sorted(_member(each, is_consumer=is_of_consumers) for each in answer.members),
    )


def _member(answer: DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
    metadata, assigned = bytes(answer.member_metadata), bytes(answer.member_assignment)
    subscription = decode_part(Subscription, metadata) if is_consumer else None
    assignment = decode_part(Assignment, assigned) if is_consumer else None
    return GroupMember(
        answer.member_id,
        answer.group_instance_id,
        answer.client_id,
        answer.client_host,
        None if subscription is None else sorted(subscription.topics),
        None if assignment is None else partitions_of(assignment),
        metadata,
        assigned,
    )
