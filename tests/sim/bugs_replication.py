"""Bugs of replication: in what is committed, in how followers cut and append, in who may join and who leads.

Many of them were real: KAFKA numbers name the reports. The product's own assertions are off meanwhile, so
that only checkers of histories and disks can speak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

from barnabas.broker.handlers import fetch
from barnabas.broker.replicas import in_sync as rules
from barnabas.broker.replicas import leader_state
from barnabas.broker.replicas import replica as replica_module
from barnabas.broker.replicas import replicas as replicas_module
from barnabas.broker.replicas.fetcher import Fetcher
from barnabas.broker.replicas.followers import Follower
from barnabas.broker.replicas.following import FollowedReplica, Place
from barnabas.broker.replicas.leader_state import LeaderState
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.roles import Leading
from barnabas.controller import brokers, elections, reassignments
from barnabas.controller import in_sync as controller_rules
from barnabas.core.disk import Disk
from barnabas.log import checkpoints, following, owners, side_files, trimming
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.partition import PartitionLog
from barnabas.metadata.parts import PartitionImage
from barnabas.sim.scenario import REPLICATION, Scenario
from tests.sim.bugs_cluster import without_assertions as without_cluster_assertions
from tests.sim.bugs_switch import Patch, bug, power_losses

DIRECTED = "a directed simulation shows it"  # tests/sim/replication/directed_bugs.py


def without_assertions(patch: Patch) -> None:
    without_cluster_assertions(patch)
    patch(replica_module, "require_legal", lambda before, after, name: None)


def several_in_sync(scenario: Scenario) -> bool:
    return any(topic.replicas > 1 and topic.facts.min_in_sync > 1 for topic in scenario.topics)


# ---- what is committed ------------------------------------------------------------------------------------


@bug(
    "min.insync.replicas counts for nothing: a leader alone commits",
    "members",
    "kept",
    "lost",
    needs=[several_in_sync],
    kind=REPLICATION,
)
def min_in_sync_ignored(patch: Patch) -> None:
    def role_of(image: PartitionImage, node_id: int, min_in_sync: int) -> Any:
        return honest(image, node_id, 1)

    honest = replicas_module.role_of
    without_assertions(patch)
    patch(replicas_module, "role_of", role_of)


@bug(
    "a record is committed, and acknowledged, when the leader alone has it",
    "members",
    "kept",
    "lost",
    kind=REPLICATION,
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


@bug(
    "a follower counts for the high watermark although its log parts from the leader's (KAFKA-13141)",
    "equal",
    "members",
    "kept",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def diverging_fetch_counts(patch: Patch) -> None:
    def check(replica: Replica, ask: Any, terms: Any) -> None:
        honest(replica, ask, terms)
        if terms.follower_id >= 0:
            fetch._note_follower(replica, ask, terms)

    honest = fetch._check
    without_assertions(patch)
    patch(fetch, "_check", check)


@bug(
    "a follower takes over the high watermark of an answer before it cuts its log (KAFKA-14704)",
    "equal",
    unseen=DIRECTED,
    kind=REPLICATION,
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


@bug(
    "a log that starts over keeps its high watermark (KAFKA-9491)",
    "equal",
    "kept",
    "members",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def high_watermark_kept(patch: Patch) -> None:
    async def start_over(log: PartitionLog, offset: int) -> None:
        before = log.high_watermark
        await honest(log, offset)
        log.high_watermark = max(before, offset)

    honest = trimming.start_over
    without_assertions(patch)
    patch(trimming, "start_over", start_over)


@bug(
    "a leader that asked for a smaller ISR acts on it before it has it",
    "members",
    "kept",
    "lost",
    kind=REPLICATION,
)
def shrink_before_committed(patch: Patch) -> None:
    def maximal(state: Any) -> tuple[int, ...]:
        leaving = () if state.change is None else state.change.leaving
        return tuple(each for each in state.role.isr if each not in leaving)

    without_assertions(patch)
    patch(LeaderState, "_maximal_isr", maximal)


@bug(
    "a member that was asked to join the ISR does not count before it has joined",
    "members",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def join_not_counted(patch: Patch) -> None:
    without_assertions(patch)
    patch(LeaderState, "_maximal_isr", lambda state: state.role.isr)


@bug(
    "the high watermark waits for replicas that are shutting down (KAFKA-15021)",
    "serving",
    kind=REPLICATION,
)
def stopping_replica_waited_for(patch: Patch) -> None:
    def is_eligible(follower: Follower, broker: Any) -> bool:
        return True

    without_assertions(patch)
    patch(leader_state, "is_eligible", is_eligible)


@bug(
    "the high watermark does not move when the ISR has become smaller (KAFKA-13091)",
    "serving",
    kind=REPLICATION,
)
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


@bug(
    "a follower of a new leader cuts its log at its own high watermark (KIP-101)",
    "members",
    "kept",
    "lost",
    unseen=DIRECTED,
    kind=REPLICATION,
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


@bug(
    "a leader does not compare the epochs of its followers",
    "equal",
    "members",
    "kept",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def divergence_not_told(patch: Patch) -> None:
    def divergence(replica: Replica, ask: Any) -> Any:
        return None if ask.fetch_offset <= replica.log.end_offset else honest(replica, ask)

    honest = fetch._divergence
    without_assertions(patch)
    patch(fetch, "_divergence", divergence)


@bug(
    "a follower whose leader had nothing new forgets its last epoch (KAFKA-15510)",
    "equal",
    "members",
    "kept",
    unseen=DIRECTED,
    kind=REPLICATION,
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


@bug(
    "a log keeps epochs that begin at its end or behind it (KAFKA-10706)",
    "members",
    "equal",
    "healing",
    "lookups",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def cut_keeps_epochs(patch: Patch) -> None:
    without_assertions(patch)
    patch(LeaderEpochs, "truncate_from_end", lambda epochs, end_offset: False)


@bug(
    "a follower cuts where the leader says, whatever its own epochs are (KAFKA-6361)",
    "equal",
    "healing",
    "kept",
    "members",
    unseen=DIRECTED,
    kind=REPLICATION,
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


@bug(
    "an answer is taken although the partition has left the fetcher meanwhile (KAFKA-13207, 13266)",
    "equal",
    "members",
    "kept",
    "leadership",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def late_answer_taken(patch: Patch) -> None:
    def leave(fetcher: Any, one: FollowedReplica) -> None:
        del fetcher._followed[one.key]

    without_assertions(patch)
    patch(Fetcher, "leave", leave)
    patch(PartitionLog, "require_epoch", lambda log, epoch: None)


@bug(
    "the marks of a log that is cut are not lowered on the disk: a crash brings them back",
    "equal",
    "members",
    "kept",
    "lost",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def marks_not_lowered(patch: Patch) -> None:
    async def lower(log: PartitionLog, base_offset: int, offset: int) -> None:
        await asyncio.sleep(0)

    without_assertions(patch)
    patch(trimming, "_lower_marks", lower)


@bug(
    "the epochs of a log are written and not synced (KAFKA-16541)",
    "equal",
    "members",
    "healing",
    "lookups",
    "kept",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def epochs_not_synced(patch: Patch) -> None:
    async def write(disk: Disk, path: str, entries: Iterable[tuple[int, int]]) -> None:
        await checkpoints.prepare_leader_epochs(disk, path, entries)
        await disk.rename(path + checkpoints.TEMPORARY, path)

    without_assertions(patch)
    patch(side_files, "write_leader_epochs", write)


@bug(
    "the files of a topic that was deleted are taken for those of the new one of that name (KAFKA-14616)",
    "healing",
    "equal",
    "members",
    "readers",
    "kept",
    unseen=DIRECTED,
    kind=REPLICATION,
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


# ---- who joins the ISR ------------------------------------------------------------------------------------


@bug("a follower joins the ISR wherever its log ends", "members", "kept", "lost", kind=REPLICATION)
def laggard_joins(patch: Patch) -> None:
    def may_join(role: Leading, follower: Follower, broker: Any, **more: Any) -> bool:
        return honest(role, follower, broker, **(more | {"high_watermark": -1, "epoch_start": -1}))

    honest = rules.may_join
    without_assertions(patch)
    patch(leader_state, "may_join", may_join)


@bug(
    "what a broker held before its restart lets it into the ISR (KAFKA-15221)",
    "members",
    "kept",
    "lost",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def rebooted_follower_joins(patch: Patch) -> None:
    def is_eligible(follower: Follower, broker: Any) -> bool:
        return broker is not None and broker.is_active

    def may_be_member(image: Any, member: Any) -> bool:
        broker = image.brokers.get(member.broker_id)
        return broker is not None and broker.is_active

    without_assertions(patch)
    patch(rules, "is_eligible", is_eligible)
    patch(controller_rules, "_is_eligible", may_be_member)


@bug(
    "fetches of earlier leader epochs count",
    "equal",
    "members",
    "kept",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def old_epochs_served(patch: Patch) -> None:
    without_assertions(patch)
    patch(Replica, "check_epoch", lambda replica, known_epoch: None)


# ---- who leads --------------------------------------------------------------------------------------------


@bug(
    "any replica that is there is elected, in sync or not",
    "kept",
    "lost",
    "members",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def laggard_elected(patch: Patch) -> None:
    def elect(old: Any, replicas: Any, isr: Any, elr: Any, election_rules: Any) -> Any:
        for replica in replicas:
            if election_rules.may_lead(replica):
                return elections._Election(replica, False)
        return elections._Election(elections.NO_LEADER, False)

    without_assertions(patch)
    patch(elections, "_elect", elect)


@bug(
    "who leaves an ISR above min.insync.replicas stays eligible",
    "members",
    "kept",
    "lost",
    kind=REPLICATION,
)
def eligible_for_ever(patch: Patch) -> None:
    def eligible(old: Any, isr: Any, election_rules: Any, lost: int) -> tuple[int, ...]:
        candidates = dict.fromkeys((*old.elr, *old.isr))
        return tuple(each for each in candidates if each not in isr and each != lost)

    without_assertions(patch)
    patch(elections, "_eligible", eligible)


@bug(
    "a broker that comes back from a loss of power counts as one that was stopped cleanly",
    "members",
    "kept",
    "lost",
    needs=[power_losses],
    kind=REPLICATION,
)
def power_loss_counts_as_stop(patch: Patch) -> None:
    def without(image: Any, broker_id: int, defaults: Any, *, was_unclean: bool = False) -> Any:
        return honest(image, broker_id, defaults)

    honest = brokers.without_broker
    without_assertions(patch)
    patch(brokers, "without_broker", without)


@bug(
    "a leader that comes back from a loss of power leads on in its old epoch (KAFKA-18106)",
    "members",
    "kept",
    "lost",
    "leadership",
    "equal",
    needs=[power_losses],
    unseen=DIRECTED,
    kind=REPLICATION,
)
def epoch_kept_after_power_loss(patch: Patch) -> None:
    def without(image: Any, broker_id: int, defaults: Any, *, was_unclean: bool | None = None) -> Any:
        return honest(image, broker_id, defaults) if was_unclean is None else []

    honest = brokers.without_broker
    without_assertions(patch)
    patch(brokers, "without_broker", without)


@bug(
    "the last known leader is elected although its broker is fenced (KAFKA-19522)",
    "leadership",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def fenced_leader_elected(patch: Patch) -> None:
    def elect(old: Any, replicas: Any, isr: Any, elr: Any, election_rules: Any) -> Any:
        elected = honest(old, replicas, isr, elr, election_rules)
        if elected.leader == elections.NO_LEADER and not isr and not elr and len(old.last_known_elr) == 1:
            return elections._Election(old.last_known_elr[0], True)
        return elected

    honest = elections._elect
    without_assertions(patch)
    patch(elections, "_elect", elect)


@bug(
    "a move ends when those that come are in sync, though others that are to stay are not (KAFKA-15665)",
    "moves",
    kind=REPLICATION,
)
def move_ends_early(patch: Patch) -> None:
    def arrived(
        target: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...], isr: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        left = tuple(each for each in isr if each in target)
        return left if left and set(adding) <= set(left) else None

    without_assertions(patch)
    patch(reassignments, "arrived_isr", arrived)


@bug(
    "replicas that are under min.insync.replicas are let in before they have caught up (KAFKA-19996)",
    "steady",
    unseen=DIRECTED,
    kind=REPLICATION,
)
def joins_under_min(patch: Patch) -> None:
    def may_join(role: Leading, follower: Follower, broker: Any, **more: Any) -> bool:
        return honest(role._replace(min_in_sync=0), follower, broker, **more)

    honest = rules.may_join
    without_assertions(patch)
    patch(leader_state, "may_join", may_join)
