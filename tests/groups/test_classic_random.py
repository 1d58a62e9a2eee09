"""Random lives of groups: what a live shard holds is what one finds who reads its log, after every record.

Members join, sync, beat, commit and leave as they like, sensibly or not; time passes; the shard crashes.
After every step the log is read, whole and as compaction would leave it, and the groups that are complete
(Stable or Empty) must be the same in all. Generations only rise, nobody is answered twice, and in the end
everybody is.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.errors import BarnabasError
from barnabas.groups import listing, offset_commands
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.classic_states import COMPLETING, PREPARING, STABLE
from barnabas.groups.group import EMPTY
from barnabas.groups.settings import GroupSettings
from barnabas.groups.shard import GroupShard
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.schema import NO_UUID
from tests.groups.members import REBALANCE_MS, Groups
from tests.groups.offset_log import CALLER, contents

GROUPS = ("g", "g", "g", "h")
INSTANCES = (None, None, "i", "j")
SPOKEN = ((("range", b"1"),), (("range", b"2"), ("sticky", b"2")), (("sticky", b"3"), ("range", b"3")))
TIMES_MS = (1, 1000, 3000, 19_999, 20_000, 60_000)
SESSION_MS = 20_000
FOREVER_MS = 2_000_000
HAPPENINGS = {  # and how often
    "join_new": 4,
    "join": 2,
    "join_all": 2,
    "sync": 2,
    "sync_all": 2,
    "settle": 5,
    "heartbeat": 2,
    "commit": 3,
    "leave": 2,
    "delete": 1,
    "pass": 3,
    "crash": 1,
}

Step = tuple[str, str, int, int]
STEP = st.tuples(
    st.sampled_from([name for name, weight in HAPPENINGS.items() for _ in range(weight)]),
    st.sampled_from(GROUPS),
    st.integers(0, 7),
    st.integers(0, 7),
)


class Life(Groups):
    """Groups to which anything happens."""

    def __init__(self) -> None:
        super().__init__(
            GroupSettings(initial_rebalance_delay_ms=3000, max_size=4, offsets_retention_ms=5000)
        )
        self.generations: dict[str, int] = {}  # a group that is deleted, or loaded, begins where it stood

    def known(self, group_id: str) -> list[str]:
        """Every id that might mean something to a group: members, and those that were given out."""
        group = self.shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return ["nobody"]
        return [*group.roster.by_id, *group.pending, "nobody"]

    def step(self, name: str, group_id: str, first: int, second: int) -> None:
        getattr(self, f"do_{name}")(group_id, first, second)
        self.check()

    # ---- what happens

    def do_join_new(self, group_id: str, which: int, spoken: int) -> None:
        self.join(
            group=group_id,
            version=3 if which < 3 else 9,
            instance=INSTANCES[which % len(INSTANCES)],
            protocols=SPOKEN[spoken % len(SPOKEN)],
            session_ms=SESSION_MS,
            rebalance_ms=0 if spoken == 7 else REBALANCE_MS,  # some have no patience at all
        )

    def do_join(self, group_id: str, which: int, spoken: int) -> None:
        ids = self.known(group_id)
        member_id = ids[which % len(ids)]
        self.join(
            member_id,
            group=group_id,
            instance=self.instance_of(group_id, member_id),
            protocols=SPOKEN[spoken % len(SPOKEN)],
            session_ms=SESSION_MS,
        )

    def do_join_all(self, group_id: str, spoken: int, _: int) -> None:
        for which in range(len(self.known(group_id)) - 1):
            self.do_join(group_id, which, spoken)

    def do_sync(self, group_id: str, which: int, wrong: int) -> None:
        ids = self.known(group_id)
        group = self.shard.groups.get(group_id)
        generation = group.generation + (wrong == 0) if isinstance(group, ClassicGroup) else 1
        member_id = ids[which % len(ids)]
        parts = {each: each.encode() for each in ids[:-1]}
        instance = self.instance_of(group_id, member_id)
        self.sync(member_id, generation, parts, group=group_id, instance=instance)

    def do_sync_all(self, group_id: str, _: int, __: int) -> None:
        for which in range(len(self.known(group_id)) - 1):
            self.do_sync(group_id, which, 1)

    def do_settle(self, group_id: str, spoken: int, last: int) -> None:
        """A rebalance as members go through it who have nothing else in mind."""
        self.do_join_all(group_id, spoken, 0)
        self.pass_ms(3000)
        self.pass_ms(3000)
        for which in reversed(range(last)):  # the leader is often the first
            self.do_sync(group_id, which, 1)

    def do_heartbeat(self, group_id: str, which: int, _: int) -> None:
        ids = self.known(group_id)
        group = self.shard.groups.get(group_id)
        generation = group.generation if isinstance(group, ClassicGroup) else 1
        self.heartbeat(ids[which % len(ids)], generation, group=group_id)

    def do_commit(self, group_id: str, which: int, offset: int) -> None:
        ids = ["", *self.known(group_id)]
        member_id = ids[which % len(ids)]
        group = self.shard.groups.get(group_id)
        generation = group.generation if isinstance(group, ClassicGroup) and member_id else -1
        one = OffsetCommitRequestPartition(
            partition_index=which % 2, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name="t", topic_id=NO_UUID, partitions=[one])],
        )
        try:
            self.ask(lambda shard, now, reply: offset_commands.commit(shard, request, CALLER, now, reply))
        except BarnabasError as error:
            assert error.wire.name != "UNKNOWN_SERVER_ERROR"  # noqa: PT017

    def do_leave(self, group_id: str, first: int, count: int) -> None:
        ids = self.known(group_id)
        going = [ids[(first + more) % len(ids)] for more in range(count % 3 + 1)]
        self.leave(
            *((member_id, self.instance_of(group_id, member_id)) for member_id in going), group=group_id
        )

    def do_delete(self, group_id: str, _: int, __: int) -> None:
        self.ask(lambda shard, now, reply: listing.delete(shard, group_id, reply))
        self.generations.pop(group_id, None)

    def do_pass(self, _: str, which: int, __: int) -> None:
        self.pass_ms(TIMES_MS[which % len(TIMES_MS)])

    def do_crash(self, _: str, __: int, ___: int) -> None:
        self.generations.clear()
        self.reload()

    def instance_of(self, group_id: str, member_id: str) -> str | None:
        group = self.shard.groups.get(group_id)
        member = group.roster.by_id.get(member_id) if isinstance(group, ClassicGroup) else None
        return None if member is None else member.instance_id

    # ---- what must be so

    def check(self) -> None:
        read = self.replayed()
        self.check_same(read)
        for keep_tombstones in (True, False):
            self.check_same(self.replayed(self.compacted(keep_tombstones=keep_tombstones)))
        for group in self.shard.groups.values():
            assert isinstance(group, ClassicGroup)
            self.check_group(group)

    def check_same(self, read: GroupShard) -> None:
        assert contents(read.offsets) == contents(self.shard.offsets)
        for group_id, group in self.shard.groups.items():
            assert isinstance(group, ClassicGroup)
            if group.state in (STABLE, EMPTY):
                found = read.groups.get(group_id)
                if found is None:  # a group that nothing is written of
                    assert (group.generation, group.protocol_type) == (0, None)
                    assert not self.shard.offsets.has_any(group_id)
                else:
                    assert held(found) == held(group)
        assert all(group_id in self.shard.groups for group_id in read.groups)

    def check_group(self, group: ClassicGroup) -> None:
        assert group.generation >= self.generations.get(group.id, 0)
        self.generations[group.id] = group.generation
        members = group.roster.by_id.values()
        assert group.roster.joining_count == sum(one.joining is not None for one in members)
        assert group.roster.by_instance == {
            one.instance_id: one.id for one in members if one.instance_id is not None
        }
        assert (group.leader in group.roster.by_id) == bool(members)
        assert len(group.roster) <= 4 or group.state == PREPARING
        assert set(group.unsynced) <= set(group.roster.by_id)
        assert not set(group.pending) & set(group.roster.by_id)
        if group.state != PREPARING:
            assert group.roster.joining_count == 0
        if group.state != COMPLETING:
            assert all(one.syncing is None for one in members)
        if members and group.state != PREPARING:
            assert all(group.protocol in one.protocols for one in members)
        for one in members:  # somebody looks after every member that does not wait
            waits = one.joining is not None or one.syncing is not None
            assert waits or (one.session is not None and one.session.due_seconds is not None)

    def end(self) -> None:  # type: ignore[override]
        """In the end everybody is answered, and nobody is left."""
        self.pass_ms(FOREVER_MS)
        unanswered = [one.what for one in self.asked if not one.is_answered]
        assert not unanswered
        assert all(group.is_empty for group in self.shard.groups.values())
        self.check()


def held(group: Any) -> tuple[Any, ...]:
    """What a group holds that stands in records."""
    return (
        group.state,
        group.state_since_ms,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        [
            (
                one.id,
                one.instance_id,
                one.client_id,
                one.client_host,
                one.rebalance_timeout_ms,
                one.session_timeout_ms,
                one.protocols.get(group.protocol),
                one.assignment,
            )
            for one in group.roster.by_id.values()
        ],
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, min_size=10, max_size=50))
def test_what_is_held_is_what_is_written(steps: list[Step]) -> None:
    life = Life()
    for step in steps:
        life.step(*step)
    life.end()
