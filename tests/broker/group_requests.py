"""Requests of a group's members that mean something, for the fuzzer to damage."""

from __future__ import annotations

from random import Random

from barnabas.protocol.messages import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from barnabas.protocol.schema import Message


def of_groups(key: int, random: Random) -> Message | None:
    """A request of that API to a group that may be there; None where it is no group's."""
    group_id = random.choice(("group", "group", "other", ""))
    member_id = random.choice(("", "somebody", "group-instance-1"))
    instance_id = random.choice((None, None, "instance"))
    generation = random.choice((-1, 0, 1, 2, 2**31 - 1))
    match key:
        case 11:
            protocols = [
                join_group.JoinGroupRequestProtocol(name=name, metadata=random.randbytes(9))
                for name in random.choice((("range",), ("range", "roundrobin"), ("x", "x"), ()))
            ]
            return join_group.JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=random.choice((6000, 0, -1)),  # a join that is accepted waits
                rebalance_timeout_ms=random.choice((0, 1, -1)),
                member_id=member_id or "somebody",
                group_instance_id=instance_id,
                protocol_type=random.choice(("consumer", "connect", "")),
                protocols=protocols,
                reason=random.choice((None, "because")),
            )
        case 12:
            return heartbeat.HeartbeatRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
            )
        case 13:
            one = leave_group.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            return leave_group.LeaveGroupRequest(
                group_id=group_id, member_id=member_id, members=random.choice(([], [one], [one, one]))
            )
        case 14:
            part = sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=random.randbytes(5))
            return sync_group.SyncGroupRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                protocol_type=random.choice((None, "consumer")),
                protocol_name=random.choice((None, "range")),
                assignments=[part],
            )
        case 15:
            return describe_groups.DescribeGroupsRequest(
                groups=[group_id, "nobody"], include_authorized_operations=random.random() < 0.5
            )
        case 16:
            return list_groups.ListGroupsRequest(
                states_filter=random.choice(([], ["Stable"], ["x"])),
                types_filter=random.choice(([], ["classic"], ["x"])),
            )
        case 42:
            return delete_groups.DeleteGroupsRequest(groups_names=[group_id, group_id])
    return None
