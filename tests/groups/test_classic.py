"""The classic protocol: how members come, get their parts, are missed, and go."""

from __future__ import annotations

import pytest

from barnabas.coordination.records import KeyedRecord, encode_key, encode_value
from barnabas.core.errors import InvariantViolation
from barnabas.groups.classic_states import COMPLETING, LEGAL, PREPARING, STABLE
from barnabas.groups.group import EMPTY
from barnabas.groups.records import ClassicMember, GroupMetadataKey, GroupMetadataValue
from barnabas.groups.settings import GroupSettings
from tests.groups.members import DELAY_MS, REBALANCE_MS, SESSION_MS, Groups
from tests.groups.offset_log import Entry, records_of

ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
INVALID_REQUEST = 42
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
NEW_MEMBER_MS = 300_000


def written(groups: Groups) -> list[GroupMetadataValue | None]:
    """What was written down of groups so far."""
    return [
        record.value  # type: ignore[misc]
        for record in records_of(groups)
        if isinstance(record.key, GroupMetadataKey)
    ]


# ---- states


def test_a_group_moves_only_as_the_table_says() -> None:
    groups = Groups()
    groups.stable(b"all")
    group = groups.group()
    for state, following in LEGAL.items():
        for target in LEGAL:
            group.state = state
            if target in following:
                group.enter(target, groups.now)
                assert group.state == target
            else:
                with pytest.raises(InvariantViolation, match=f"from {state} to {target}"):
                    group.enter(target, groups.now)


def test_a_life_of_one_member_goes_through_all_states() -> None:
    groups = Groups()
    member = groups.new_id()
    assert member.startswith("client-")
    assert groups.group().state == EMPTY
    join = groups.join(member)
    assert groups.group().state == PREPARING
    groups.pass_ms(DELAY_MS)
    assert groups.group().state == COMPLETING
    assert (join.answer.generation_id, join.answer.leader, join.answer.member_id) == (1, member, member)
    assert [(one.member_id, one.metadata) for one in join.answer.members] == [(member, b"r")]
    sync = groups.sync(member, 1, {member: b"all"})
    assert groups.group().state == STABLE
    assert (sync.answer.assignment, sync.answer.protocol_type, sync.answer.protocol_name) == (
        b"all",
        "consumer",
        "range",
    )
    assert groups.heartbeat(member, 1) == 0
    assert groups.leave(member) == [0]
    assert groups.group().state == EMPTY
    first, second, third = [value for value in written(groups) if value is not None]
    assert (first.generation, first.protocol_type, list(first.members)) == (0, "", [])
    assert (second.generation, second.leader, second.protocol) == (1, member, "range")
    assert [(one.member_id, one.assignment) for one in second.members] == [(member, b"all")]
    assert (third.generation, third.protocol_type, third.protocol, list(third.members)) == (
        2,
        "consumer",
        None,
        [],
    )


# ---- the first generation


def test_the_first_generation_waits_for_others_while_they_come_but_not_for_ever() -> None:
    groups = Groups()
    joins = [groups.join(version=3, rebalance_ms=10_000)]
    for _ in range(3):  # each extends the wait, up to the rebalance timeout
        groups.pass_ms(DELAY_MS - 1)
        joins.append(groups.join(version=3, rebalance_ms=10_000))
        assert not any(join.is_answered for join in joins)
    groups.pass_ms(10_000 - 3 * (DELAY_MS - 1))
    assert [join.answer.generation_id for join in joins] == [1] * 4
    assert [len(join.answer.members) for join in joins] == [4, 0, 0, 0]


def test_an_id_that_does_not_come_back_does_not_end_the_wait_for_others() -> None:
    groups = Groups()
    groups.new_id(session_ms=6000)
    groups.pass_ms(5000)
    join = groups.join(version=3)
    groups.pass_ms(DELAY_MS - 1)  # within it the id is given up
    assert (len(groups.group().pending), join.is_answered) == (0, False)
    groups.pass_ms(1)
    assert join.error_code == 0


def test_without_others_the_first_generation_stands_after_one_delay() -> None:
    groups = Groups()
    join = groups.join(version=3)
    groups.pass_ms(DELAY_MS - 1)
    assert not join.is_answered
    groups.pass_ms(1)
    assert join.error_code == 0


def test_a_group_that_was_there_does_not_wait() -> None:
    groups = Groups()
    (one,) = groups.stable(b"all")
    other = groups.join(groups.new_id())
    again = groups.join(one)
    assert (again.answer.generation_id, other.answer.generation_id) == (2, 2)
    assert again.answer.leader == one


# ---- a rebalance


def test_members_learn_of_a_rebalance_by_their_heartbeats_and_join_again() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2")
    three = groups.new_id()
    assert groups.heartbeat(one, 1) == 0  # an id that was given out does not rebalance
    join = groups.join(three)
    assert groups.heartbeat(one, 1) == REBALANCE_IN_PROGRESS
    assert groups.sync(one, 1).error_code == REBALANCE_IN_PROGRESS
    groups.join(one)
    assert not join.is_answered
    groups.join(two)
    assert join.answer.generation_id == 2
    assert groups.heartbeat(two, 1) == ILLEGAL_GENERATION
    waiting = groups.sync(three, 2)
    assert groups.heartbeat(three, 2) == 0
    assert not waiting.is_answered
    groups.sync(one, 2, {one: b"a", two: b"b", three: b"c"})
    assert waiting.answer.assignment == b"c"
    assert groups.sync(two, 2).answer.assignment == b"b"
    assert len(written(groups)) == 3  # of a rebalance one record, at its end


def test_who_does_not_join_again_in_time_is_out_and_another_leads() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2", session_ms=REBALANCE_MS * 2)
    join = groups.join(two, protocols=(("range", b"changed"),), session_ms=REBALANCE_MS * 2)
    groups.pass_ms(REBALANCE_MS - 1)
    assert not join.is_answered
    groups.pass_ms(1)
    assert (join.answer.generation_id, join.answer.leader) == (2, two)
    assert [member.member_id for member in join.answer.members] == [two]
    assert groups.heartbeat(one, 1) == UNKNOWN_MEMBER_ID


def test_the_most_patient_member_decides_how_long_a_rebalance_waits() -> None:
    groups = Groups()
    one = groups.new_id()
    groups.join(one, rebalance_ms=20_000, session_ms=100_000)
    groups.pass_ms(DELAY_MS)
    groups.sync(one, 1, {})
    join = groups.join(groups.new_id(), rebalance_ms=30_000)
    groups.pass_ms(29_999)
    assert not join.is_answered
    groups.pass_ms(1)
    assert join.answer.generation_id == 2


def test_a_leader_that_dies_in_mid_sync_is_missed_and_another_decides() -> None:
    groups = Groups()
    one, two = groups.new_id(), groups.new_id()
    first, second = groups.join(one), groups.join(two)
    groups.pass_ms(2 * DELAY_MS)
    waiting = groups.sync(two, 1)
    groups.pass_ms(SESSION_MS)
    assert (first.answer.leader, second.answer.leader) == (one, one)
    assert waiting.error_code == REBALANCE_IN_PROGRESS
    again = groups.join(two)
    assert (again.answer.generation_id, again.answer.leader) == (2, two)
    assert groups.sync(two, 2, {two: b"all"}).answer.assignment == b"all"


def test_who_never_asks_for_its_part_is_out_after_the_rebalance_timeout() -> None:
    groups = Groups()
    one, two = groups.new_id(), groups.new_id()
    groups.join(one), groups.join(two)
    groups.pass_ms(2 * DELAY_MS)
    groups.sync(one, 1, {one: b"1", two: b"2"})
    assert groups.group().state == STABLE
    for _ in range(REBALANCE_MS // 5000):
        assert groups.heartbeat(one, 1) == groups.heartbeat(two, 1) == 0
        groups.pass_ms(5000)
    assert groups.heartbeat(two, 1) == UNKNOWN_MEMBER_ID
    assert groups.heartbeat(one, 1) == REBALANCE_IN_PROGRESS


def test_a_join_in_mid_sync_calls_those_back_who_wait() -> None:
    groups = Groups()
    one, two = groups.new_id(), groups.new_id()
    groups.join(one), groups.join(two)
    groups.pass_ms(2 * DELAY_MS)
    waiting = groups.sync(two, 1)
    groups.join(groups.new_id())
    assert waiting.error_code == REBALANCE_IN_PROGRESS
    assert groups.sync(one, 1, {one: b"all"}).error_code == REBALANCE_IN_PROGRESS
    assert len(written(groups)) == 1


def test_members_choose_the_protocol_that_all_speak_and_most_prefer() -> None:
    groups = Groups()
    spoken = (
        (("a", b""), ("b", b"1"), ("c", b"")),
        (("c", b""), ("b", b"2")),
        (("b", b"3"), ("c", b""), ("d", b"")),
    )
    joins = [groups.join(version=3, protocols=protocols) for protocols in spoken]
    groups.pass_ms(2 * DELAY_MS)
    assert [join.answer.protocol_name for join in joins] == ["b", "b", "b"]
    assert [member.metadata for member in joins[0].answer.members] == [b"1", b"2", b"3"]


def test_a_member_that_missed_its_answer_gets_it_again() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2")
    for member in (one, two):
        groups.join(member, protocols=(("range", b"new"),))
    again = groups.join(one, protocols=(("range", b"new"),))
    assert (again.answer.generation_id, len(again.answer.members)) == (2, 2)
    groups.sync(one, 2, {one: b"1", two: b"2"})
    assert groups.join(two, protocols=(("range", b"new"),)).answer.generation_id == 2  # a follower
    assert groups.group().state == STABLE
    groups.join(one, protocols=(("range", b"new"),))  # a leader wants to decide anew
    assert groups.group().state == PREPARING


def test_who_joins_twice_is_answered_by_the_second_and_the_first_may_try_again() -> None:
    groups = Groups()
    one, _ = groups.stable(b"1", b"2")
    first = groups.join(one)
    second = groups.join(one)
    assert first.error_code == REBALANCE_IN_PROGRESS
    assert not second.is_answered


# ---- who is missed


def test_a_member_is_missed_after_its_session_and_heartbeats_and_commits_put_that_off() -> None:
    groups = Groups()
    (one,) = groups.stable(b"all")
    groups.pass_ms(SESSION_MS - 1)
    assert groups.heartbeat(one, 1) == 0
    groups.pass_ms(SESSION_MS - 1)
    groups.group().check_commit(one, None, 1, groups.now, is_transactional=False)
    groups.pass_ms(SESSION_MS - 1)
    assert groups.group().state == STABLE
    groups.pass_ms(1)
    assert groups.group().state == EMPTY
    assert groups.heartbeat(one, 1) == UNKNOWN_MEMBER_ID


def test_sync_in_a_stable_group_renews_the_session() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2")
    groups.pass_ms(SESSION_MS - 1)
    assert groups.heartbeat(one, 1) == 0
    assert groups.join(two).answer.generation_id == 1
    assert groups.sync(two, 1).answer.assignment == b"2"
    groups.pass_ms(SESSION_MS - 1)
    assert groups.group().state == STABLE
    groups.pass_ms(1)
    assert groups.group().state == EMPTY


def test_join_answered_in_a_stable_group_does_not_renew_the_session() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2")
    groups.pass_ms(SESSION_MS - 1)
    assert groups.heartbeat(one, 1) == 0
    assert groups.join(two).answer.generation_id == 1
    groups.pass_ms(1)
    assert groups.sync(two, 1).error_code == UNKNOWN_MEMBER_ID


def test_members_that_wait_for_an_answer_are_not_missed() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2", session_ms=6000)
    groups.join(two, protocols=(("range", b"new"),), session_ms=6000)
    for _ in range(5):
        assert groups.heartbeat(one, 1) == REBALANCE_IN_PROGRESS
        groups.pass_ms(5000)
    again = groups.join(one, session_ms=6000)
    assert len(again.answer.members) == 2
    groups.pass_ms(6000)
    assert groups.group().state == EMPTY  # answered, and silent since


def test_an_id_that_never_comes_back_is_forgotten_and_holds_up_a_rebalance_only_so_long() -> None:
    groups = Groups()
    (one,) = groups.stable(b"all")
    given = groups.new_id()
    groups.pass_ms(1)
    join = groups.join(one)
    assert not join.is_answered
    groups.pass_ms(SESSION_MS - 1)
    assert join.answer.generation_id == 2
    assert groups.join(given).error_code == UNKNOWN_MEMBER_ID


def test_a_new_member_that_was_given_up_goes_in_the_end() -> None:
    groups = Groups()
    one, *_ = groups.stable(b"1", rebalance_ms=2 * NEW_MEMBER_MS, session_ms=3 * NEW_MEMBER_MS)
    lost = groups.join(version=3)
    groups.pass_ms(NEW_MEMBER_MS - 1)
    assert not lost.is_answered
    groups.pass_ms(1)
    assert lost.error_code == UNKNOWN_MEMBER_ID
    assert groups.join(one).answer.generation_id == 2


# ---- who leaves


def test_members_leave_together_and_cause_one_rebalance() -> None:
    groups = Groups()
    one, two, three = groups.stable(b"1", b"2", b"3")
    given = groups.new_id()
    assert groups.leave(one, given, "nobody", two) == [0, 0, UNKNOWN_MEMBER_ID, 0]
    again = groups.join(three)
    assert (again.answer.generation_id, again.answer.leader) == (2, three)


def test_who_leaves_while_it_waits_is_told_so() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2")
    join = groups.join(two, protocols=(("range", b"new"),))
    assert groups.leave(two) == [0]
    assert join.error_code == UNKNOWN_MEMBER_ID
    groups.join(one)
    assert groups.group().generation == 2
    three = groups.new_id()
    groups.join(three)
    groups.join(one)
    waiting = groups.sync(three, 3)
    assert groups.leave(three) == [0]
    assert waiting.error_code == UNKNOWN_MEMBER_ID


# ---- static members


def test_an_instance_that_comes_back_takes_its_place_without_a_rebalance() -> None:
    groups = Groups()
    groups.join(instance="i", version=5)
    groups.pass_ms(DELAY_MS)
    old = next(iter(groups.group().roster.by_id))
    assert old.startswith("i-")
    groups.sync(old, 1, {old: b"part"}, instance="i")
    back = groups.join(instance="i", protocols=(("range", b"new"),))
    new = back.answer.member_id
    assert (back.answer.generation_id, back.answer.leader, back.answer.skip_assignment) == (1, new, True)
    assert groups.group().state == STABLE
    assert groups.sync(new, 1, instance="i").answer.assignment == b"part"
    assert groups.heartbeat(old, 1, instance="i") == FENCED_INSTANCE_ID
    assert groups.heartbeat(old, 1) == UNKNOWN_MEMBER_ID
    assert groups.sync(old, 1, instance="i").error_code == FENCED_INSTANCE_ID
    assert groups.join(old, instance="i").error_code == FENCED_INSTANCE_ID
    assert groups.leave((old, "i")) == [FENCED_INSTANCE_ID]
    last = written(groups)[-1]
    assert last is not None
    assert [(one.member_id, one.subscription, one.assignment) for one in last.members] == [
        (new, b"new", b"part")
    ]
    assert groups.leave(("", "i"), ("", "j")) == [0, UNKNOWN_MEMBER_ID]
    assert groups.group().state == EMPTY


def test_an_instance_that_speaks_otherwise_rebalances() -> None:
    groups = Groups()
    both = (("range", b""), ("sticky", b""))
    groups.join(instance="i", protocols=both)
    groups.pass_ms(DELAY_MS)
    groups.sync(next(iter(groups.group().roster.by_id)), 1, {}, instance="i")
    back = groups.join(instance="i", protocols=(("sticky", b""), ("range", b"")))
    assert (back.answer.generation_id, back.answer.protocol_name) == (2, "sticky")


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    groups = Groups()
    one = groups.join(instance="i", session_ms=2 * REBALANCE_MS)
    groups.pass_ms(DELAY_MS)
    groups.sync(one.answer.member_id, 1, {}, instance="i")
    other = groups.join(version=3)
    groups.pass_ms(REBALANCE_MS)
    assert (other.answer.generation_id, len(other.answer.members)) == (2, 2)  # it leads, since it is there
    other_id = other.answer.member_id
    groups.sync(other_id, 2, {})
    groups.pass_ms(SESSION_MS)  # the only one who could join is gone as well
    assert list(groups.group().roster.by_id) == [one.answer.member_id]
    groups.pass_ms(3 * REBALANCE_MS)
    assert groups.group().state == EMPTY


def test_static_members_without_patience_are_waited_for_without_haste() -> None:
    groups = Groups()
    static, other = groups.join(instance="i", rebalance_ms=0), groups.join(version=3)
    groups.pass_ms(DELAY_MS)
    groups.pass_ms(DELAY_MS)
    groups.sync(other.answer.member_id, 1)
    groups.sync(static.answer.member_id, 1, instance="i")
    assert groups.group().state == STABLE
    groups.leave(other.answer.member_id)
    groups.pass_ms(0)  # nobody is left to join, and nobody wants to be waited for
    assert groups.group().state == PREPARING
    groups.pass_ms(SESSION_MS)
    assert groups.group().state == EMPTY


def test_an_instance_is_replaced_while_it_waits() -> None:
    groups = Groups()
    one = groups.join(instance="i")
    other = groups.join(instance="i")
    assert one.error_code == FENCED_INSTANCE_ID
    groups.pass_ms(DELAY_MS)
    assert len(other.answer.members) == 1
    two = groups.join(instance="j")
    groups.join(other.answer.member_id, instance="i")
    waiting = groups.sync(two.answer.member_id, 2, instance="j")
    groups.join(instance="j")
    assert waiting.error_code == FENCED_INSTANCE_ID
    assert groups.group().state == PREPARING


# ---- how many


def test_a_group_that_is_full_turns_away_whoever_comes() -> None:
    groups = Groups(GroupSettings(initial_rebalance_delay_ms=DELAY_MS, max_size=2))
    one, two = groups.stable(b"1", b"2")
    assert groups.join().error_code == GROUP_MAX_SIZE_REACHED
    groups.join(two, protocols=(("range", b"new"),))
    assert groups.join(version=3, instance="i").is_answered is False  # whoever joins first has the place
    assert groups.join(one).error_code == GROUP_MAX_SIZE_REACHED
    assert groups.heartbeat(one, 1) == UNKNOWN_MEMBER_ID


def test_a_group_that_is_loaded_beyond_the_limit_rebalances() -> None:
    groups = Groups()
    ids = groups.stable(b"1", b"2", b"3")
    groups.settings = GroupSettings(max_size=2)
    groups.reload()
    assert [groups.heartbeat(member, 1) for member in ids] == [REBALANCE_IN_PROGRESS] * 3
    joins = [groups.join(member) for member in ids]
    assert joins[2].error_code == GROUP_MAX_SIZE_REACHED
    groups.pass_ms(REBALANCE_MS)
    assert [join.error_code for join in joins[:2]] == [0, 0]


# ---- loading


def test_members_go_on_after_a_load_as_if_nothing_had_happened() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2")
    groups.reload()
    assert groups.group().state == STABLE
    assert groups.heartbeat(one, 1) == groups.heartbeat(two, 1) == 0
    assert groups.sync(two, 1).answer.assignment == b"2"
    assert groups.join(two).answer.generation_id == 1
    groups.pass_ms(SESSION_MS - 1)
    assert groups.heartbeat(one, 1) == 0
    groups.pass_ms(1)
    assert groups.heartbeat(two, 1) == UNKNOWN_MEMBER_ID  # silent since the load
    assert groups.heartbeat(one, 1) == REBALANCE_IN_PROGRESS


def test_a_rebalance_that_a_crash_interrupts_begins_again() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2")
    groups.join(one)
    groups.reload()
    assert groups.group().state == STABLE
    assert groups.sync(one, 1).answer.assignment == b"1"
    groups.join(one), groups.join(two)
    groups.reload()  # generation 2 stood, but was not complete
    assert groups.heartbeat(one, 2) == ILLEGAL_GENERATION
    groups.join(one)
    assert groups.join(two).answer.generation_id == 2


@pytest.mark.parametrize("version", range(5))
def test_a_generation_is_read_in_every_version_of_its_record(version: int) -> None:
    groups = Groups()
    member = ClassicMember(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=20_000,
        session_timeout=10_000,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        current_state_timestamp=5,
        members=[member],
    )
    record = KeyedRecord(GroupMetadataKey(group="g"), value, version)
    groups.log.append(Entry(encode_key(record.key), encode_value(record), None))
    groups.reload()
    group, read = groups.group(), groups.group().roster.by_id["m"]
    assert (group.state, group.generation, group.protocol, group.leader) == (STABLE, 7, "range", "m")
    assert group.state_since_ms == (5 if version >= 2 else None)
    assert read.rebalance_timeout_ms == (20_000 if version >= 1 else 10_000)
    assert read.instance_id == ("i" if version >= 3 else None)
    assert (read.protocols, read.assignment) == ({"range": b"s"}, b"a")
    assert groups.heartbeat("m", 7) == 0


# ---- mistakes


def durable(groups: Groups) -> tuple[int, str, int, list[str]]:
    group = groups.group()
    return len(groups.log), group.state, group.generation, list(group.roster.by_id)


def test_mistakes_are_refused_by_name_and_change_nothing() -> None:
    groups = Groups()
    one, two = groups.stable(b"1", b"2", protocols=(("range", b"r"), ("sticky", b"s")))
    static = groups.join(instance="i", group="other")
    groups.pass_ms(DELAY_MS)
    before = durable(groups)
    mistakes = [
        (groups.join(group="").error_code, INVALID_GROUP_ID),
        (groups.join(session_ms=5999).error_code, INVALID_SESSION_TIMEOUT),
        (groups.join(session_ms=1_800_001).error_code, INVALID_SESSION_TIMEOUT),
        (groups.join(group="g" * 32_767).error_code, INVALID_REQUEST),
        (groups.join(instance="ü" * 17_000).error_code, INVALID_REQUEST),
        (groups.join("nobody").error_code, UNKNOWN_MEMBER_ID),
        (groups.join("nobody", group="none").error_code, UNKNOWN_MEMBER_ID),
        (groups.join(kind="connect").error_code, INCONSISTENT_GROUP_PROTOCOL),
        (groups.join(protocols=(("other", b""),)).error_code, INCONSISTENT_GROUP_PROTOCOL),
        (groups.join(one, protocols=()).error_code, INCONSISTENT_GROUP_PROTOCOL),
        (groups.join(group="none", protocols=()).error_code, INCONSISTENT_GROUP_PROTOCOL),
        (groups.join(group="none", kind="").error_code, INCONSISTENT_GROUP_PROTOCOL),
        (groups.join(one, instance="i").error_code, UNKNOWN_MEMBER_ID),
        (groups.join(one, group="other", instance="i").error_code, FENCED_INSTANCE_ID),
        (groups.sync(one, 1, group="").error_code, INVALID_GROUP_ID),
        (groups.sync(one, 1, group="none").error_code, UNKNOWN_MEMBER_ID),
        (groups.sync("nobody", 1).error_code, UNKNOWN_MEMBER_ID),
        (groups.sync(one, 0).error_code, ILLEGAL_GENERATION),
        (groups.sync(one, 2).error_code, ILLEGAL_GENERATION),
        (groups.sync(one, 1, kind="connect").error_code, INCONSISTENT_GROUP_PROTOCOL),
        (groups.sync(one, 1, protocol="sticky").error_code, INCONSISTENT_GROUP_PROTOCOL),
        (groups.sync(one, 1, {one: b"all"}).error_code, 0),  # stable: only an answer
        (groups.heartbeat(one, 1, group=""), INVALID_GROUP_ID),
        (groups.heartbeat(one, 1, group="none"), UNKNOWN_MEMBER_ID),
        (groups.heartbeat("nobody", 1), UNKNOWN_MEMBER_ID),
        (groups.heartbeat(one, 2), ILLEGAL_GENERATION),
        (groups.heartbeat(one, 1, instance="i"), UNKNOWN_MEMBER_ID),
        (groups.heartbeat(one, 1, group="other", instance="i"), FENCED_INSTANCE_ID),
        (groups.leave("nobody")[0], UNKNOWN_MEMBER_ID),
        (groups.leave((two, "i"))[0], UNKNOWN_MEMBER_ID),
        (groups.leave(("", None))[0], UNKNOWN_MEMBER_ID),
        (groups.leave("", group="none")[0], UNKNOWN_MEMBER_ID),
    ]
    assert [got for got, _ in mistakes] == [expected for _, expected in mistakes]
    assert durable(groups) == before
    assert "none" not in groups.shard.groups
    assert groups.heartbeat(one, 1) == groups.heartbeat(two, 1) == 0
    assert groups.heartbeat(static.answer.member_id, 1, group="other", instance="i") == 0


def test_a_thousand_members_cost_little_each() -> None:
    groups = Groups()
    ids = groups.stable(*[b"part" for _ in range(1000)])
    assert len(groups.shard.timers) < 5000
    queued = len(groups.shard.timers)
    for _ in range(3):
        for member in ids:
            assert groups.heartbeat(member, 1) == 0
    assert len(groups.shard.timers) == queued  # a heartbeat adds nothing
    groups.pass_ms(SESSION_MS)
    assert groups.group().state == EMPTY
    assert groups.shard.timers.next_due_seconds() is None
