"""Bugs of replication: in what is committed, and in how followers cut and append.

Many of them were real: KAFKA numbers name the reports. The product's own assertions are off meanwhile, so
that only checkers of histories and disks can speak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from barnabas.broker.handlers import fetch
from barnabas.broker.replicas import leader_state
from barnabas.broker.replicas import replica as replica_module
from barnabas.broker.replicas import replicas as replicas_module
from barnabas.broker.replicas.fetcher import Fetcher
from barnabas.broker.replicas.followers import Follower
from barnabas.broker.replicas.following import FollowedReplica, Place
from barnabas.broker.replicas.leader_state import LeaderState
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.roles import Leading
from barnabas.core.disk import Disk
from barnabas.log import checkpoints, following, owners, side_files, trimming
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.partition import PartitionLog
from barnabas.metadata.parts import PartitionImage
from barnabas.sim.scenario import REPLICATION, Scenario
from tests.sim.bugs_cluster import without_assertions as without_cluster_assertions
from tests.sim.bugs_switch import Patch, bug

of_replication = partial(bug, kind=REPLICATION)
# those that a script has to show (replication/directed_bugs.py)
directed = partial(bug, kind=REPLICATION, unseen="a directed simulation shows it")


def without_assertions(patch: Patch) -> None:
    without_cluster_assertions(patch)
    patch(replica_module, "require_legal", lambda before, after, name: None)


def several_in_sync(scenario: Scenario) -> bool:
    return any(topic.replicas > 1 and topic.facts.min_in_sync > 1 for topic in scenario.topics)


# ---- what is committed ------------------------------------------------------------------------------------


@of_replication(
    "min.insync.replicas counts for nothing: a leader alone commits",
    "members",
    "kept",
    "lost",
    needs=[several_in_sync],
)
def min_in_sync_ignored(patch: Patch) -> None:
    def role_of(image: PartitionImage, node_id: int, min_in_sync: int) -> Any:
        return honest(image, node_id, 1)

    honest = replicas_module.role_of
    without_assertions(patch)
    patch(replicas_module, "role_of", role_of)


@of_replication(
    "a record is committed, and acknowledged, when the leader alone has it", "members", "kept", "lost"
)
def committed_by_leader_alone(patch: Patch) -> None:
    def committed_end(
        role: Leading,
        in_sync: Collection[int],
        followers: Iterable[Follower],
        own_end: int,
        is_waited_for: Callable[[Follower], bool],
    ) -> int:
        return own_end

    without_assertions(patch)
    patch(leader_state, "committed_end", committed_end)
    patch(LeaderState, "may_commit_more", lambda state, high_watermark: True)


@directed(
    "a follower counts for the high watermark although its log parts from the leader's (KAFKA-13141)",
    "equal",
    "members",
    "kept",
)
def diverging_fetch_counts(patch: Patch) -> None:
    def check(replica: Replica, ask: Any, terms: Any) -> None:
        honest(replica, ask, terms)
        if terms.follower_id >= 0:
            fetch._note_follower(replica, ask, terms)

    honest = fetch._check
    without_assertions(patch)
    patch(fetch, "_check", check)


@directed(
    "a follower takes over the high watermark of an answer before it cuts its log (KAFKA-14704)", "equal"
)
def high_watermark_before_the_cut(patch: Patch) -> None:
    """It is cut with the next answer that says so."""
    told: set[FollowedReplica] = set()

    async def take(one: FollowedReplica, data: Any, now: float) -> int | None:
        diverging = data.diverging_epoch
        if diverging is not None and diverging.epoch >= 0 and one not in told:
            told.add(one)
            one.replica.log.advance_high_watermark(data.high_watermark)
            return None
        return await honest(one, data, now)

    honest = FollowedReplica.take
    without_assertions(patch)
    patch(FollowedReplica, "take", take)


@directed("a log that starts over keeps its high watermark (KAFKA-9491)", "equal", "kept", "members")
def high_watermark_kept(patch: Patch) -> None:
    async def start_over(log: PartitionLog, offset: int) -> None:
        before = log.high_watermark
        await honest(log, offset)
        log.high_watermark = max(before, offset)

    honest = trimming.start_over
    without_assertions(patch)
    patch(trimming, "start_over", start_over)


@of_replication(
    "a leader that asked for a smaller ISR acts on it before it has it", "members", "kept", "lost"
)
def shrink_before_committed(patch: Patch) -> None:
    def maximal(state: Any) -> tuple[int, ...]:
        leaving = () if state.change is None else state.change.leaving
        return tuple(each for each in state.role.isr if each not in leaving)

    without_assertions(patch)
    patch(LeaderState, "_maximal_isr", maximal)


@directed("a member that was asked to join the ISR does not count before it has joined", "members")
def join_not_counted(patch: Patch) -> None:
    without_assertions(patch)
    patch(LeaderState, "_maximal_isr", lambda state: state.role.isr)


@of_replication("the high watermark waits for replicas that are shutting down (KAFKA-15021)", "serving")
def stopping_replica_waited_for(patch: Patch) -> None:
    def is_eligible(follower: Follower, broker: Any) -> bool:
        return True

    without_assertions(patch)
    patch(leader_state, "is_eligible", is_eligible)


@of_replication("the high watermark does not move when the ISR has become smaller (KAFKA-13091)", "serving")
def shrink_moves_nothing(patch: Patch) -> None:
    def lead(replica: Any, role: Leading, own_end: int) -> None:
        is_shrink = replica._leader is not None and set(role.isr) < set(replica._leader.role.isr)
        if not is_shrink:
            honest(replica, role, own_end)
            return
        leader = replica._leader
        leader.appended(own_end, 0)
        leader.take_role(role, replica.log.end_offset)

    honest = Replica._lead
    without_assertions(patch)

    def check_lag(replica: Any) -> None:
        if replica._leader is not None:
            replica._leader.check_lag(replica.log)

    patch(Replica, "_lead", lead)
    patch(Replica, "check_lag", check_lag)
    patch(Replica, "brokers_changed", lambda replica: None)


# ---- how followers cut and append -------------------------------------------------------------------------


@directed(
    "a follower of a new leader cuts its log at its own high watermark (KIP-101)", "members", "kept", "lost"
)
def cut_at_high_watermark(patch: Patch) -> None:
    cut: set[FollowedReplica] = set()

    async def take(one: FollowedReplica, data: Any, now: float) -> int | None:
        if one not in cut:
            cut.add(one)
            log = one.replica.log
            async with log.turn:
                await trimming.truncate(log, log.high_watermark)
            return None
        return await honest(one, data, now)

    honest = FollowedReplica.take
    without_assertions(patch)
    patch(FollowedReplica, "take", take)


@directed("a leader does not compare the epochs of its followers", "equal", "members", "kept")
def divergence_not_told(patch: Patch) -> None:
    def divergence(replica: Replica, ask: Any) -> Any:
        return None if ask.fetch_offset <= replica.log.end_offset else honest(replica, ask)

    honest = fetch._divergence
    without_assertions(patch)
    patch(fetch, "_divergence", divergence)


@directed(
    "a follower whose leader had nothing new forgets its last epoch (KAFKA-15510)", "equal", "members", "kept"
)
def empty_answer_forgets_epoch(patch: Patch) -> None:
    forgot: set[Replica] = set()

    async def take(one: FollowedReplica, data: Any, now: float) -> int | None:
        done = await honest_take(one, data, now)
        (forgot.discard if data.records else forgot.add)(one.replica)
        return done

    def place(one: FollowedReplica) -> Place:
        stands = honest_place(one)
        return stands._replace(last_epoch=-1) if one.replica in forgot else stands

    honest_take, honest_place = FollowedReplica.take, FollowedReplica.place
    without_assertions(patch)
    patch(FollowedReplica, "take", take)
    patch(FollowedReplica, "place", place)


@directed(
    "a log keeps epochs that begin at its end or behind it (KAFKA-10706)",
    "members",
    "equal",
    "healing",
    "lookups",
)
def cut_keeps_epochs(patch: Patch) -> None:
    without_assertions(patch)
    patch(LeaderEpochs, "truncate_from_end", lambda epochs, end_offset: False)


@directed(
    "a follower cuts where the leader says, whatever its own epochs are (KAFKA-6361)",
    "equal",
    "healing",
    "kept",
    "members",
)
def leaders_end_believed(patch: Patch) -> None:
    async def truncate(log: PartitionLog, epoch: int, end_offset: int, leader_epoch: int) -> bool:
        async with log.turn:
            await trimming.truncate(log, end_offset)
        return True

    def divergence(replica: Replica, ask: Any) -> Any:
        told = honest(replica, ask)
        has_been_cut = told is not None and ask.fetch_offset <= told.diverging_epoch.end_offset
        return None if has_been_cut else told

    honest = fetch._divergence
    without_assertions(patch)
    patch(following, "truncate_to_leader", truncate)
    patch(fetch, "_divergence", divergence)


@directed(
    "an answer is taken although the partition has left the fetcher meanwhile (KAFKA-13207, 13266)",
    "equal",
    "members",
    "kept",
    "leadership",
)
def late_answer_taken(patch: Patch) -> None:
    def leave(fetcher: Any, one: FollowedReplica) -> None:
        del fetcher._followed[one.key]

    without_assertions(patch)
    patch(Fetcher, "leave", leave)
    patch(PartitionLog, "require_epoch", lambda log, epoch: None)


@directed(
    "the marks of a log that is cut are not lowered on the disk: a crash brings them back",
    "equal",
    "members",
    "kept",
    "lost",
)
def marks_not_lowered(patch: Patch) -> None:
    async def lower(log: PartitionLog, base_offset: int, offset: int) -> None:
        await asyncio.sleep(0)

    without_assertions(patch)
    patch(trimming, "_lower_marks", lower)


@directed(
    "the epochs of a log are written and not synced (KAFKA-16541)",
    "equal",
    "members",
    "healing",
    "lookups",
    "kept",
)
def epochs_not_synced(patch: Patch) -> None:
    async def write(disk: Disk, path: str, entries: Iterable[tuple[int, int]]) -> None:
        await checkpoints.prepare_leader_epochs(disk, path, entries)
        await disk.rename(path + checkpoints.TEMPORARY, path)

    without_assertions(patch)
    patch(side_files, "write_leader_epochs", write)


@directed(
    "the files of a topic that was deleted are taken for those of the new one of that name (KAFKA-14616)",
    "healing",
    "equal",
    "members",
    "readers",
    "kept",
)
def other_topics_files(patch: Patch) -> None:
    async def claim(disk: Disk, path: str, topic_id: Any, *, is_new: bool) -> Any:
        try:
            return await honest(disk, path, topic_id, is_new=is_new)
        except owners.InconsistentTopicId:
            return topic_id

    honest = owners.claim
    without_assertions(patch)
    patch(owners, "claim", claim)
