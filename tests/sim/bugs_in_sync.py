"""Bugs of replication: in which replicas join the ISR, which are elected, and when a move ends."""

from __future__ import annotations

from typing import Any

from barnabas.broker.replicas import in_sync as rules
from barnabas.broker.replicas import leader_state
from barnabas.broker.replicas.followers import Follower
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.roles import Leading
from barnabas.controller import brokers, elections, reassignments
from barnabas.controller import in_sync as controller_rules
from tests.sim.bugs_replication import directed, of_replication, without_assertions
from tests.sim.bugs_switch import Patch, power_losses

# ---- who joins the ISR ------------------------------------------------------------------------------------


@of_replication("a follower joins the ISR wherever its log ends", "members", "kept", "lost")
def laggard_joins(patch: Patch) -> None:
    def may_join(role: Leading, follower: Follower, broker: Any, **more: Any) -> bool:
        return honest(role, follower, broker, **(more | {"high_watermark": -1, "epoch_start": -1}))

    honest = rules.may_join
    without_assertions(patch)
    patch(leader_state, "may_join", may_join)


@directed(
    "what a broker held before its restart lets it into the ISR (KAFKA-15221)", "members", "kept", "lost"
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


@directed("fetches of earlier leader epochs count", "equal", "members", "kept")
def old_epochs_served(patch: Patch) -> None:
    without_assertions(patch)
    patch(Replica, "check_epoch", lambda replica, known_epoch: None)


# ---- who leads --------------------------------------------------------------------------------------------


@directed("any replica that is there is elected, in sync or not", "kept", "lost", "members")
def laggard_elected(patch: Patch) -> None:
    def elect(old: Any, replicas: Any, isr: Any, elr: Any, election_rules: Any) -> Any:
        for replica in replicas:
            if election_rules.may_lead(replica):
                return elections._Election(replica, False)
        return elections._Election(elections.NO_LEADER, False)

    without_assertions(patch)
    patch(elections, "_elect", elect)


@of_replication("who leaves an ISR above min.insync.replicas stays eligible", "members", "kept", "lost")
def eligible_for_ever(patch: Patch) -> None:
    def eligible(old: Any, isr: Any, election_rules: Any, lost: int) -> tuple[int, ...]:
        candidates = dict.fromkeys((*old.elr, *old.isr))
        return tuple(each for each in candidates if each not in isr and each != lost)

    without_assertions(patch)
    patch(elections, "_eligible", eligible)


@of_replication(
    "a broker that comes back from a loss of power counts as one that was stopped cleanly",
    "members",
    "kept",
    "lost",
    needs=[power_losses],
)
def power_loss_counts_as_stop(patch: Patch) -> None:
    def without(image: Any, broker_id: int, defaults: Any, *, was_unclean: bool = False) -> Any:
        return honest(image, broker_id, defaults)

    honest = brokers.without_broker
    without_assertions(patch)
    patch(brokers, "without_broker", without)


@directed(
    "a leader that comes back from a loss of power leads on in its old epoch (KAFKA-18106)",
    "members",
    "kept",
    "lost",
    "leadership",
    "equal",
    needs=[power_losses],
)
def epoch_kept_after_power_loss(patch: Patch) -> None:
    def without(image: Any, broker_id: int, defaults: Any, *, was_unclean: bool | None = None) -> Any:
        return honest(image, broker_id, defaults) if was_unclean is None else []

    honest = brokers.without_broker
    without_assertions(patch)
    patch(brokers, "without_broker", without)


@directed("the last known leader is elected although its broker is fenced (KAFKA-19522)", "leadership")
def fenced_leader_elected(patch: Patch) -> None:
    def elect(old: Any, replicas: Any, isr: Any, elr: Any, election_rules: Any) -> Any:
        elected = honest(old, replicas, isr, elr, election_rules)
        if elected.leader == elections.NO_LEADER and not isr and not elr and len(old.last_known_elr) == 1:
            return elections._Election(old.last_known_elr[0], True)
        return elected

    honest = elections._elect
    without_assertions(patch)
    patch(elections, "_elect", elect)


@of_replication(
    "a move ends when those that come are in sync, though others that are to stay are not (KAFKA-15665)",
    "moves",
)
def move_ends_early(patch: Patch) -> None:
    def arrived(
        target: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...], isr: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        left = tuple(each for each in isr if each in target)
        return left if left and set(adding) <= set(left) else None

    without_assertions(patch)
    patch(reassignments, "arrived_isr", arrived)


@directed(
    "replicas that are under min.insync.replicas are let in before they have caught up (KAFKA-19996)",
    "steady",
)
def joins_under_min(patch: Patch) -> None:
    def may_join(role: Leading, follower: Follower, broker: Any, **more: Any) -> bool:
        return honest(role._replace(min_in_sync=0), follower, broker, **more)

    honest = rules.may_join
    without_assertions(patch)
    patch(leader_state, "may_join", may_join)
