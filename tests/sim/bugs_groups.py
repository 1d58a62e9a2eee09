"""Bugs in groups: in who is a member, in what members may do, and in what is kept of their commits."""

from __future__ import annotations

from typing import Any

from barnabas.broker.coordinators import coordinator
from barnabas.broker.coordinators.host import Host
from barnabas.broker.coordinators.loading import load
from barnabas.coordination.effects import NOTHING, Effects, Now, Producer
from barnabas.coordination.records import KeyedRecord
from barnabas.groups import classic_rebalance, classic_sync
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.classic_members import Member
from barnabas.groups.errors import RebalanceInProgress
from barnabas.groups.records import GroupMetadataKey, OffsetCommitKey
from barnabas.groups.turn import Turn
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.sim.scenario import GROUPS
from tests.sim.bugs_switch import Patch, bug, crashes, full_disks, starts


class Forgetful:
    """A shard to be loaded that does not hear of records with such keys."""

    def __init__(self, shard: Any, *keys: type) -> None:
        self._shard, self._keys = shard, keys

    def replay(self, record: KeyedRecord, producer: Producer | None) -> None:
        if not isinstance(record.key, self._keys):
            self._shard.replay(record, producer)

    def replay_end(self, producer: Producer, is_commit: bool) -> None:
        self._shard.replay_end(producer, is_commit)


def forget_at_load(patch: Patch, *keys: type) -> None:
    """Loads leave out records with such keys."""

    async def forget(replica: Any, kinds: Any, shard: Any, turn: Any) -> float:
        return await load(replica, kinds, Forgetful(shard, *keys), turn)  # type: ignore[arg-type]

    patch(coordinator, "load", forget)


# ---- members ---------------------------------------------------------------------------------------------


@bug("a session that is over removes nobody", "settling", kind=GROUPS)
def session_never_over(patch: Patch) -> None:
    patch(classic_rebalance, "_session_over", lambda group, member, turn: None)


@bug("a session is over after a fifth of its time", "ownership", kind=GROUPS)
def session_over_early(patch: Patch) -> None:
    def watch(group: ClassicGroup, member: Member, now: Now, timeout_ms: int | None = None) -> None:
        honest(group, member, now, member.session_timeout_ms // 5 if timeout_ms is None else timeout_ms)

    honest = classic_rebalance.watch
    patch(classic_rebalance, "watch", watch)
    patch(classic_sync, "watch", watch)
    touch = ClassicGroup.touch

    def touch_little(self: ClassicGroup, member: Member, now: Now) -> None:
        touch(self, member, now._replace(seconds=now.seconds - member.session_timeout_ms * 0.8 / 1000))

    patch(ClassicGroup, "touch", touch_little)


@bug("a rebalance waits for nobody: the next generation is of those who ask for it", "ownership", kind=GROUPS)
def rebalance_without_waiting(patch: Patch) -> None:
    patch(ClassicGroup, "has_all_joined", property(lambda self: self.roster.joining_count > 0))


@bug("heartbeats and commits of any generation are good", "ownership", kind=GROUPS)
def generation_not_checked(patch: Patch) -> None:
    def member_of(self: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
        return self.member(member_id, instance_id)

    patch(ClassicGroup, "member_of", member_of)


@bug("a commit of an old generation is accepted", "ownership", kind=GROUPS)
def old_commit_accepted(patch: Patch) -> None:
    def check_commit(
        self: ClassicGroup, member_id: str, instance: str | None, generation: int, now: Now, **_: Any
    ) -> None:
        if self.state == "CompletingRebalance":
            raise RebalanceInProgress("not now")

    patch(ClassicGroup, "check_commit", check_commit)


@bug("every member is given what the leader gets", "ownership", kind=GROUPS)
def assignments_mixed_up(patch: Patch) -> None:
    hand_out = classic_sync._hand_out

    def hand_out_one(group: ClassicGroup, request: SyncGroupRequest, *args: Any) -> None:
        for one in request.assignments:
            one.assignment = request.assignments[0].assignment
        hand_out(group, request, *args)

    patch(classic_sync, "_hand_out", hand_out_one)


@bug(
    "groups are forgotten at a start, and their generations begin anew",
    "ownership",
    kind=GROUPS,
    needs=(starts,),
)
def groups_not_replayed(patch: Patch) -> None:
    forget_at_load(patch, GroupMetadataKey)


@bug("a rebalance does not raise the generation", "ownership", kind=GROUPS)
def generation_stays(patch: Patch) -> None:
    answer_joins = classic_rebalance._answer_joins

    def stay(group: ClassicGroup, turn: Turn) -> None:
        group.generation -= group.generation > 0
        answer_joins(group, turn)

    patch(classic_rebalance, "_answer_joins", stay)


# ---- commits ---------------------------------------------------------------------------------------------


@bug("commits are not replayed at a start", "commits", kind=GROUPS, needs=(starts,))
def commits_not_replayed(patch: Patch) -> None:
    forget_at_load(patch, OffsetCommitKey)


@bug(
    "coordinators answer before what they say is written",
    "commits",
    "ownership",
    kind=GROUPS,
    needs=(crashes,),
)
def answered_before_written(patch: Patch) -> None:
    carry_out = Host._carry_out

    def answer_first(self: Host[Any], effects: Effects) -> None:
        if effects is not NOTHING:
            self._deliver(effects)
            effects = effects._replace(replies=(), markers=())
        carry_out(self, effects)

    patch(Host, "_carry_out", answer_first)


@bug(
    "a shard whose records could not be written goes on as if they were",
    "commits",
    "ownership",
    kind=GROUPS,
    needs=(full_disks,),
    unseen=(
        "takes a full disk, somebody who reads what was not written, and a crash before the next commit "
        "that is"
    ),
)
def failed_write_kept(patch: Patch) -> None:
    lose = Host._lose

    def answer_all_the_same(self: Host[Any], error: Any) -> None:
        if "stopping" in str(error):
            lose(self, error)
            return
        for reply in self._waiting:
            if not reply.done():
                reply.set_exception(error)

    patch(Host, "_lose", answer_all_the_same)
