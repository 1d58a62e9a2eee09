"""JoinGroup to a classic group: a new member, a known one, or a new member for a static instance.

A new member without an instance id first gets a member id, from version 4 on, and joins again with it: a
client that gives up before that does not become a member that all others wait for. A returning static
instance takes its old place; as long as the members would still choose the same protocol, there is no
rebalance.
"""

from __future__ import annotations

from barnabas.coordination.effects import Caller, Reply
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.random import Random
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.classic_members import Member, protocols_of
from barnabas.groups.classic_rebalance import advance, begin, expect, forget, joined, refused_join, watch
from barnabas.groups.classic_states import COMPLETING, PREPARING, STABLE
from barnabas.groups.group import EMPTY
from barnabas.groups.turn import Turn
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.sync_group import SyncGroupResponse

NEW_MEMBER_TIMEOUT_MS = 5 * 60_000

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_REQUIRED_ID = 4
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9
_NAME_BYTES = 32_767 - 37  # an id is a name, a dash and a UUID
_FENCED = wire_error("FENCED_INSTANCE_ID")


class Joiner:
    """A JoinGroup request, with the handle of its reply."""

    __slots__ = ("caller", "protocols", "rebalance_timeout_ms", "reply", "request")

    def __init__(self, request: JoinGroupRequest, caller: Caller, reply: Reply) -> None:
        self.request = request
        self.caller = caller
        self.reply = reply
        self.protocols = protocols_of(request.protocols)
        has_own = caller.api_version >= _FIRST_WITH_REBALANCE_TIMEOUT
        self.rebalance_timeout_ms = request.rebalance_timeout_ms if has_own else request.session_timeout_ms


def can_be_written(request: JoinGroupRequest, caller: Caller) -> bool:
    """Whether the names of a member fit into records; newer requests may have longer ones."""
    names = [request.group_id, request.group_instance_id or "", request.protocol_type, caller.client_id]
    names += [one.name for one in request.protocols]
    return all(len(name.encode("utf-8", "surrogatepass")) <= _NAME_BYTES for name in names)


def join(group: ClassicGroup, joiner: Joiner, turn: Turn, random: Random) -> None:
    """Let a member join, or refuse it."""
    request = joiner.request
    if not _has_room(group, request.member_id):
        _turn_away(group, joiner, turn)
    elif not group.can_speak(request.protocol_type, joiner.protocols):
        _refuse(joiner, turn, "INCONSISTENT_GROUP_PROTOCOL", request.member_id)
    elif not request.member_id:
        _join_unknown(group, joiner, turn, random)
    elif request.member_id in group.pending:
        if request.group_instance_id is not None:  # ids are assigned only to members without an instance
            _refuse(joiner, turn, "UNKNOWN_SERVER_ERROR")
        else:
            _add(group, joiner, request.member_id, turn)
    else:
        _join_again(group, joiner, turn)


def _refuse(joiner: Joiner, turn: Turn, error_name: str, member_id: str = "") -> None:
    turn.answer(joiner.reply, refused_join(wire_error(error_name), member_id))


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """Members keep their place, until a rebalance finds the group too large: then the first to join do."""
    if group.state == EMPTY:
        return True
    max_size = group.settings().max_size
    member = group.roster.by_id.get(member_id)
    if group.state == PREPARING:
        return (member is not None and member.joining is not None) or group.roster.joining_count < max_size
    return member is not None or len(group.roster) < max_size


def _turn_away(group: ClassicGroup, joiner: Joiner, turn: Turn) -> None:
    member_id = joiner.request.member_id
    member = group.roster.by_id.get(member_id)
    if member is not None:
        group.remove(member)
    forget(group, member_id)
    _refuse(joiner, turn, "GROUP_MAX_SIZE_REACHED")


# ---- members without an id


def _join_unknown(group: ClassicGroup, joiner: Joiner, turn: Turn, random: Random) -> None:
    instance_id = joiner.request.group_instance_id
    new_id = f"{joiner.caller.client_id if instance_id is None else instance_id}-{random.uuid()}"
    known_id = None if instance_id is None else group.roster.by_instance.get(instance_id)
    if known_id is not None:
        _replace(group, group.roster.by_id[known_id], new_id, joiner, turn)
    elif instance_id is None and joiner.caller.api_version >= _FIRST_WITH_REQUIRED_ID:
        expect(group, new_id, turn, joiner.request.session_timeout_ms)
        _refuse(joiner, turn, "MEMBER_ID_REQUIRED", new_id)
    else:
        _add(group, joiner, new_id, turn)


def _add(group: ClassicGroup, joiner: Joiner, member_id: str, turn: Turn) -> None:
    request, caller = joiner.request, joiner.caller
    forget(group, member_id)
    member = Member(
        member_id,
        request.group_instance_id,
        caller.client_id,
        caller.host,
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=joiner.protocols,
    )
    member.is_new = True
    member.joining = joiner.reply
    if group.initial is not None:
        group.initial.has_news = True
    group.add(member, request.protocol_type)
    watch(group, member, turn.now, NEW_MEMBER_TIMEOUT_MS)
    advance(group, turn)


# ---- known members


def _join_again(group: ClassicGroup, joiner: Joiner, turn: Turn) -> None:
    request = joiner.request
    try:
        member = group.member(request.member_id, request.group_instance_id)
    except BarnabasError as error:
        turn.answer(joiner.reply, refused_join(error.wire, request.member_id))
        return
    is_same = list(member.protocols.items()) == list(joiner.protocols.items())
    leads_stable = group.state == STABLE and member.id == group.leader
    if group.state != PREPARING and is_same and not leads_stable:
        # it may have missed the response; a leader that joins again wants a new assignment
        turn.answer(joiner.reply, joined(group, member))
    else:
        _update(group, member, joiner, turn)
        advance(group, turn)


def _update(group: ClassicGroup, member: Member, joiner: Joiner, turn: Turn) -> None:
    """The member waits for the next generation, with its present protocols."""
    group.roster.speak(member, joiner.protocols)
    member.rebalance_timeout_ms = joiner.rebalance_timeout_ms
    member.session_timeout_ms = joiner.request.session_timeout_ms
    if member.joining is not None:  # its client has given up on the earlier request
        turn.answer(member.joining, refused_join(wire_error("REBALANCE_IN_PROGRESS"), member.id))
    group.roster.wait(member, joiner.reply)


# ---- a new member for a static instance


def _replace(group: ClassicGroup, old: Member, new_id: str, joiner: Joiner, turn: Turn) -> None:
    led_before = group.leader
    member = _take_place(group, old, new_id, turn)
    watch(group, member, turn.now)
    _update(group, member, joiner, turn)
    if group.state == STABLE and group.roster.choice() == group.protocol:
        _go_on(group, member, joiner, led_before or "", turn)
    elif group.state in (STABLE, COMPLETING):
        begin(group, turn)
    else:
        advance(group, turn)


def _take_place(group: ClassicGroup, old: Member, new_id: str, turn: Turn) -> Member:
    """Replace the member of a static instance; waiting requests of the old one are fenced."""
    if old.joining is not None:
        turn.answer(old.joining, refused_join(_FENCED, old.id))
        group.roster.wait(old, None)
    if old.syncing is not None:
        turn.answer(old.syncing, SyncGroupResponse(error_code=_FENCED.code, assignment=b""))
        old.syncing = None
    new = Member(
        new_id,
        old.instance_id,
        old.client_id,
        old.client_host,
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        session_timeout_ms=old.session_timeout_ms,
        protocols=old.protocols,
        assignment=old.assignment,
    )
    leads = group.leader == old.id
    group.remove(old)
    group.roster.add(new)
    if leads:
        group.leader = new_id
    return new


def _go_on(group: ClassicGroup, member: Member, joiner: Joiner, led_before: str, turn: Turn) -> None:
    """The generation goes on with the new member, and is written before anything is answered."""
    group.roster.wait(member, None)
    assignments = {each.id: each.assignment for each in group.roster.by_id.values()}
    turn.write(group.record(assignments, group.generation, turn.now))
    is_leader = member.id == group.leader
    knows_skipping = joiner.caller.api_version >= _FIRST_WITH_SKIPPED_ASSIGNMENT
    response = joined(group, member, skip_assignment=is_leader and knows_skipping)
    if is_leader and not knows_skipping:
        # told that the earlier member leads, it sends no new assignment, and only asks for its own
        response.leader, response.members = led_before, []
    turn.answer(joiner.reply, response)
