"""The transition between generations: members join, late ones are removed, the others get their assignments.

A rebalance begins when a member joins, leaves or changes its subscription. It waits until all have joined
again, at most for the longest rebalance timeout; a group that was empty waits a little for more members, and
again while they come. Then the generation is fixed and all joins are answered. Members that never send
SyncGroup are removed later, as are members without heartbeats.

Static members are not removed for being late: they keep their place until their session ends.
"""

from __future__ import annotations

from functools import partial

from barnabas.coordination.effects import Now
from barnabas.core.errors import WireError, wire_error
from barnabas.groups.classic import ClassicGroup, InitialDelay
from barnabas.groups.classic_members import Member
from barnabas.groups.classic_states import COMPLETING, PREPARING
from barnabas.groups.group import EMPTY
from barnabas.groups.timers import Timer
from barnabas.groups.turn import Turn
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse

LEAST_AGAIN_MS = 1000  # before members that are all late are checked again, even with shorter timeouts

_REBALANCE_IN_PROGRESS = wire_error("REBALANCE_IN_PROGRESS")
_UNKNOWN_MEMBER_ID = wire_error("UNKNOWN_MEMBER_ID")


# ---- towards a generation


def advance(group: ClassicGroup, turn: Turn) -> None:
    """After a change of the members: begin a rebalance, or complete the present one if it is ready."""
    if group.state != PREPARING:
        begin(group, turn)
    elif group.initial is None and group.has_all_joined:
        complete(group, turn)


def begin(group: ClassicGroup, turn: Turn) -> None:
    """Ask the members to join again; waiting SyncGroup requests get REBALANCE_IN_PROGRESS."""
    if group.state == COMPLETING:
        for member in group.roster.by_id.values():
            member.assignment = b""
            end_sync(group, member, turn, _REBALANCE_IN_PROGRESS)
    group.unsynced.clear()
    was_empty = group.state == EMPTY
    group.enter(PREPARING, turn.now)
    if was_empty:
        delay_ms = group.settings().initial_rebalance_delay_ms
        group.initial = InitialDelay(delay_ms, max(group.roster.rebalance_timeout_ms() - delay_ms, 0))
        _wait(group, turn, delay_ms)
    elif group.has_all_joined:
        complete(group, turn)
    else:
        _wait(group, turn, group.roster.rebalance_timeout_ms())


def complete(group: ClassicGroup, turn: Turn) -> None:
    """Begin the next generation with the members that have joined; without any member the group is empty."""
    group.initial = None
    if group.phase is not None:
        group.phase.cancel()
    for member in list(group.roster.by_id.values()):
        if member.joining is None and member.instance_id is None:
            group.remove(member)
    if not group.roster.by_id:
        turn.write(group.record({}, group.generation + 1, turn.now))
    elif _elect_leader(group):
        _answer_joins(group, turn)
    else:  # only static members, and all of them late: their sessions decide
        _wait(group, turn, max(group.roster.rebalance_timeout_ms(), LEAST_AGAIN_MS))


def _elect_leader(group: ClassicGroup) -> bool:
    """Elect a leader among those that have joined, the previous one if possible; False if none has joined."""
    members = group.roster.by_id
    leader = members.get(group.leader or "")
    if leader is not None and leader.joining is not None:
        return True
    joined = next((member.id for member in members.values() if member.joining is not None), None)
    if joined is not None:
        group.leader = joined
    return joined is not None


def _answer_joins(group: ClassicGroup, turn: Turn) -> None:
    group.generation += 1
    turn.generations += 1
    group.protocol = group.roster.choice()
    group.forget_topics()
    group.enter(COMPLETING, turn.now)
    for member in group.roster.by_id.values():
        if member.joining is not None:
            turn.answer(member.joining, joined(group, member))
            group.roster.wait(member, None)
        member.is_new = False
        watch(group, member, turn.now)
        group.unsynced[member.id] = None
    _wait(group, turn, group.roster.rebalance_timeout_ms())


def joined(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """A member's JoinGroup response; only the leader's has the members."""
    is_leader = member.id == group.leader
    return JoinGroupResponse(
        error_code=0,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.id,
        members=_introduced(group) if is_leader else [],
    )


def _introduced(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    protocol = group.protocol or ""
    return [
        JoinGroupResponseMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            metadata=member.protocols.get(protocol, b""),
        )
        for member in group.roster.by_id.values()
    ]


def refused_join(error: WireError, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error.code, protocol_name=None, leader="", member_id=member_id, members=[]
    )


# ---- waits


def _wait(group: ClassicGroup, turn: Turn, wait_ms: int) -> None:
    if group.phase is None:
        group.phase = Timer(partial(_waited, group))
    group.timers.set(group.phase, turn.now.seconds + wait_ms / 1000)


def _waited(group: ClassicGroup, turn: Turn) -> None:
    if group.state == PREPARING:
        initial = group.initial
        if initial is not None and initial.has_news and initial.remaining_ms:
            _wait_again(group, initial, turn)
        else:
            complete(group, turn)
    elif group.unsynced:
        for member_id in list(group.unsynced):
            dismiss(group, group.roster.by_id[member_id], turn)
        begin(group, turn)


def _wait_again(group: ClassicGroup, initial: InitialDelay, turn: Turn) -> None:
    delay_ms = min(group.settings().initial_rebalance_delay_ms, initial.remaining_ms)
    group.initial = InitialDelay(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0))
    _wait(group, turn, delay_ms)


# ---- sessions


def watch(group: ClassicGroup, member: Member, now: Now, timeout_ms: int | None = None) -> None:
    """Start the member's session; it is removed without a heartbeat in its session, or in `timeout_ms`."""
    if member.session is None:
        member.session = Timer(partial(_session_over, group, member))
    wait_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
    group.timers.set(member.session, now.seconds + wait_ms / 1000)


def _session_over(group: ClassicGroup, member: Member, turn: Turn) -> None:
    """Remove the member. One with a waiting request cannot send heartbeats, and is watched again after the
    response; except a new one: if its client has given up, it would block every rebalance."""
    if not member.is_new and (member.joining is not None or member.syncing is not None):
        return
    dismiss(group, member, turn)
    advance(group, turn)


def expect(group: ClassicGroup, member_id: str, turn: Turn, timeout_ms: int) -> None:
    """Wait for the join of an assigned member id."""
    timer = group.pending[member_id] = Timer(partial(_never_came, group, member_id))
    group.timers.set(timer, turn.now.seconds + timeout_ms / 1000)


def _never_came(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    forget(group, member_id)
    if group.state == PREPARING:
        advance(group, turn)


def forget(group: ClassicGroup, member_id: str) -> None:
    """Stop waiting for the join of an assigned member id."""
    timer = group.pending.pop(member_id, None)
    if timer is not None:
        timer.cancel()


def dismiss(group: ClassicGroup, member: Member, turn: Turn) -> None:
    """Remove a member; its waiting requests get UNKNOWN_MEMBER_ID."""
    if member.joining is not None:
        turn.answer(member.joining, refused_join(_UNKNOWN_MEMBER_ID))
        group.roster.wait(member, None)
    end_sync(group, member, turn, _UNKNOWN_MEMBER_ID)
    group.remove(member)


def end_sync(group: ClassicGroup, member: Member, turn: Turn, error: WireError) -> None:
    """Answer a waiting SyncGroup with an error."""
    if member.syncing is not None:
        turn.answer(member.syncing, SyncGroupResponse(error_code=error.code, assignment=b""))
        member.syncing = None
        watch(group, member, turn.now)
