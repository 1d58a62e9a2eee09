"""A leader and its followers' fetches: the ISR that it asks for, and the high watermark meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.broker.replicas.partition_changes import Outcome, PartitionChange
from barnabas.broker.replicas.replica import NotEnoughReplicas, Replica
from barnabas.broker.replicas.roles import NotLeaderOrFollower
from barnabas.metadata.parts import RECOVERED, RECOVERING, TopicImage
from barnabas.metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    UnfenceBrokerRecord,
)
from tests.broker.test_replicas import LAG_S, NODE, Site, on_a_site, until
from tests.controller.clusters import topic
from tests.support.logs import batch

A, B = 2, 3  # the followers


def led(work: Callable[[Site, TopicImage, Replica], Coroutine[Any, Any, None]], min_in_sync: int = 1) -> None:
    """Run with a partition that this node leads and two others follow, all in sync."""

    async def on(site: Site) -> None:
        site.min_in_sync = min_in_sync
        site.cluster.create(topic("t", assigned={0: [NODE, A, B]}))
        made = site.cluster.image.topics_by_name["t"]
        await work(site, made, await site.replicas.leader(made, 0))

    on_a_site(on, NODE, A, B)


def change(site: Site, made: TopicImage, **changed: Any) -> None:
    site.commit(PartitionChangeRecord(partition_id=0, topic_id=made.id, **changed))


def epoch_of(site: Site, node_id: int) -> int:
    return site.cluster.image.brokers[node_id].epoch


def fetch(site: Site, replica: Replica, node_id: int, offset: int, *, epoch: int | None = None) -> None:
    """A follower asks for what comes at `offset`."""
    broker_epoch = epoch_of(site, node_id) if epoch is None else epoch
    replica.follower_fetched(node_id, offset, start_offset=0, broker_epoch=broker_epoch)


def isr_of(asked: PartitionChange) -> tuple[int, ...]:
    return tuple(each.node_id for each in asked.isr)


# ---- shrinking ------------------------------------------------------------------------------------------


def test_followers_that_lag_behind_leave_the_isr() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        fetch(site, replica, A, 5)
        site.clock.advance(LAG_S)
        fetch(site, replica, B, 4)  # it fetches, but never everything
        replica.check_lag()
        assert not site.asked  # they were in the ISR when the leadership began
        site.clock.advance(0.1)
        replica.check_lag()
        (asked,) = site.asked
        assert isr_of(asked) == (NODE, A)  # A has everything: its silence says nothing
        assert (asked.leader_epoch, asked.partition_epoch) == (0, 0)
        epochs = [each.broker_epoch for each in asked.isr]
        assert epochs == [epoch_of(site, NODE), epoch_of(site, A)]
        replica.check_lag()
        assert len(site.asked) == 1  # one change at a time

    led(work)


def test_a_member_that_was_asked_to_leave_counts_until_the_metadata_says_so() -> None:
    """And then the high watermark moves at once (KAFKA-13091), although nobody fetches or appends."""

    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        wait = replica.committed(5)
        fetch(site, replica, A, 5)
        site.clock.advance(LAG_S + 0.1)
        replica.check_lag()
        (asked,) = site.asked
        assert replica.log.high_watermark == 0
        asked.answered(asked, Outcome.TAKEN, 1)
        assert replica.log.high_watermark == 0
        change(site, made, isr=[NODE, A])
        assert replica.log.high_watermark == 5
        assert wait.done()
        assert site.context.isr_changes.shrinks == 1

    led(work)


def test_the_isr_never_shrinks_below_the_leader() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica)
        site.clock.advance(LAG_S + 0.1)
        replica.check_lag()
        (asked,) = site.asked
        assert isr_of(asked) == (NODE,)

    led(work, min_in_sync=2)


def test_a_partition_without_others_has_no_isr_to_change() -> None:
    async def work(site: Site) -> None:
        replica = await site.replicas.leader(site.create("t"), 0)
        await site.append(replica)
        site.clock.advance(LAG_S + 1)
        replica.check_lag()
        assert not site.asked

    on_a_site(work)


def test_what_followers_held_before_another_node_led_does_not_count() -> None:
    """One delta has two changes of leaders. Meanwhile B, which held everything, was cut to what A has: as the
    leader is told later, B and A would seem to hold what only A has fetched anew."""

    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        wait = replica.committed(5)
        fetch(site, replica, A, 3)
        fetch(site, replica, B, 5)
        assert replica.log.high_watermark == 3
        led_by = [PartitionChangeRecord(partition_id=0, topic_id=made.id, leader=each) for each in (A, NODE)]
        site.commit(*led_by)
        assert replica.leader_epoch == 2
        fetch(site, replica, A, 5)
        assert replica.log.high_watermark == 3
        fetch(site, replica, B, 3)
        assert not wait.done()
        fetch(site, replica, B, 5)
        assert wait.done()  # the leader's own log has not changed: what waited there is committed in the end

    led(work)


def test_what_followers_hold_counts_in_the_next_epoch_of_the_same_leader() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        fetch(site, replica, A, 3)
        fetch(site, replica, B, 5)
        change(site, made, leader=NODE)
        assert replica.leader_epoch == 1
        fetch(site, replica, A, 5)
        assert replica.log.high_watermark == 5

    led(work)


# ---- expanding ------------------------------------------------------------------------------------------


def test_a_follower_that_has_caught_up_joins_the_isr() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        change(site, made, isr=[NODE, A])
        fetch(site, replica, A, 5)
        assert replica.log.high_watermark == 5
        fetch(site, replica, B, 4)
        assert not site.asked
        fetch(site, replica, B, 5)
        (asked,) = site.asked
        assert isr_of(asked) == (NODE, A, B)
        assert [each.broker_epoch for each in asked.isr] == [epoch_of(site, each) for each in (NODE, A, B)]
        fetch(site, replica, B, 5)
        assert len(site.asked) == 1
        # it counts from now on: the controller may have taken it in already
        await site.append(replica)
        fetch(site, replica, A, 6)
        assert replica.log.high_watermark == 5
        change(site, made, isr=[NODE, A, B])
        assert replica.log.high_watermark == 5
        fetch(site, replica, B, 6)
        assert replica.log.high_watermark == 6
        assert (site.context.isr_changes.expands, site.context.isr_changes.shrinks) == (1, 0)

    led(work)


def test_who_holds_no_record_of_the_leaders_epoch_does_not_join() -> None:
    """What is between the high watermark and the start of the epoch may be committed, as far as the leader
    before knew: who lacks it could be elected, and it would be lost."""

    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        change(site, made, leader=A)
        change(site, made, leader=NODE, isr=[NODE, A])
        assert (replica.log.high_watermark, replica.epoch_start) == (0, 5)
        fetch(site, replica, B, 4)
        assert not site.asked
        fetch(site, replica, B, 5)
        assert isr_of(site.asked[0]) == (NODE, A, B)

    led(work)


def test_a_fetch_of_an_incarnation_that_is_gone_does_not_expand() -> None:
    """KAFKA-15221: B has fetched everything, lost it and registered anew before its fetch is looked at."""

    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        change(site, made, isr=[NODE, A])
        before = epoch_of(site, B)
        site.cluster.start(B, incarnation=2)
        assert epoch_of(site, B) > before
        fetch(site, replica, B, 0, epoch=before)
        assert not site.asked
        fetch(site, replica, B, 0)
        assert [each.broker_epoch for each in site.asked[0].isr if each.node_id == B] == [epoch_of(site, B)]

    led(work)


def test_who_is_fenced_or_shutting_down_does_not_join() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        change(site, made, isr=[NODE, A])
        epoch = epoch_of(site, B)
        site.commit(FenceBrokerRecord(id=B, epoch=epoch))
        fetch(site, replica, B, 0)
        assert not site.asked
        site.commit(UnfenceBrokerRecord(id=B, epoch=epoch))
        site.commit(BrokerRegistrationChangeRecord(broker_id=B, broker_epoch=epoch, in_controlled_shutdown=1))
        fetch(site, replica, B, 0)
        assert not site.asked

    led(work)


def test_a_follower_that_only_keeps_up_with_a_frozen_high_watermark_does_not_flap() -> None:
    """KAFKA-19996"""

    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        change(site, made, isr=[NODE])
        for _ in range(20):
            await replica.append(memoryview(batch(1)), all_in_sync=False)
        for offset in range(20):
            site.clock.advance(LAG_S + 1)
            fetch(site, replica, A, offset)
            assert not site.asked
        fetch(site, replica, A, 20)
        assert isr_of(site.asked[0]) == (NODE, A)

    led(work, min_in_sync=2)


# ---- answers --------------------------------------------------------------------------------------------


def asked_to_expand(site: Site, made: TopicImage, replica: Replica) -> PartitionChange:
    """B is about to join; what it has not got is not committed."""
    change(site, made, isr=[NODE, A])
    fetch(site, replica, B, 0)
    return site.asked[-1]


def test_a_change_that_was_refused_is_taken_back_and_asked_for_again_later() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        asked = asked_to_expand(site, made, replica)
        await site.append(replica)
        fetch(site, replica, A, 1)
        site.commit(FenceBrokerRecord(id=B, epoch=epoch_of(site, B)))
        assert replica.log.high_watermark == 0
        asked.answered(asked, Outcome.REFUSED, 0)
        assert replica.log.high_watermark == 1  # nobody has to fetch or append for that
        assert site.context.isr_changes.failed == 1
        site.commit(UnfenceBrokerRecord(id=B, epoch=epoch_of(site, B)))
        fetch(site, replica, B, 1)
        assert len(site.asked) == 1  # not at once: the controller may know something that is on its way here
        site.clock.advance(0.2)
        fetch(site, replica, B, 1)
        assert len(site.asked) == 2

    led(work)


@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_DATE, Outcome.REPEATED])
def test_a_change_of_which_nothing_is_sure_stays_pending_until_metadata_comes(outcome: Outcome) -> None:
    """NEW_LEADER_ELECTED among them: the change that ended a reassignment was carried out (KAFKA-15665)."""

    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        asked = asked_to_expand(site, made, replica)
        await site.append(replica)
        fetch(site, replica, A, 1)
        asked.answered(asked, outcome, 0)
        assert replica.log.high_watermark == 0
        site.clock.advance(1)
        fetch(site, replica, B, 0)
        replica.check_lag()
        assert len(site.asked) == 1
        change(site, made, isr=[NODE, A])  # whatever it is, it is a later partition epoch
        assert asked.is_over
        assert replica.log.high_watermark == 0  # B was caught up a moment ago
        site.clock.advance(LAG_S)
        replica.check_lag()
        assert replica.log.high_watermark == 1

    led(work)


def test_a_change_is_asked_for_again_when_no_metadata_comes() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        asked = asked_to_expand(site, made, replica)
        asked.answered(asked, Outcome.OUT_OF_DATE, 0)
        site.clock.advance(LAG_S + 0.1)
        replica.check_lag()
        assert site.asked == [asked, asked]

    led(work)


def test_an_answer_that_changes_nothing_ends_the_change() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        asked = asked_to_expand(site, made, replica)
        asked.answered(asked, Outcome.TAKEN, 1)  # the partition epoch that is known already
        fetch(site, replica, B, 0)
        assert len(site.asked) == 2

    led(work)


def test_an_answer_to_a_change_that_is_over_is_ignored() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        asked = asked_to_expand(site, made, replica)
        change(site, made, isr=[NODE, A])
        fetch(site, replica, B, 0)
        later = site.asked[-1]
        assert later is not asked
        assert (asked.is_over, later.is_over) == (True, False)
        assert later.partition_epoch == asked.partition_epoch + 1
        asked.answered(asked, Outcome.REFUSED, 0)
        await site.append(replica)
        fetch(site, replica, A, 1)
        assert replica.log.high_watermark == 0  # B is still about to join

    led(work)


@pytest.mark.parametrize("leader", [NODE, A])
def test_a_change_ends_with_the_leadership_or_its_epoch(leader: int) -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        asked = asked_to_expand(site, made, replica)
        change(site, made, leader=leader)
        assert asked.is_over
        asked.answered(asked, Outcome.REFUSED, 0)
        assert len(site.asked) == 1

    led(work)


def test_other_settings_do_not_end_a_change() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        asked = asked_to_expand(site, made, replica)
        site.min_in_sync = 2
        site.replicas.topic_changed(site.cluster.image.topics_by_name["t"])
        assert not asked.is_over

    led(work)


# ---- the high watermark ---------------------------------------------------------------------------------


def test_a_caught_up_follower_that_may_join_is_waited_for() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        fetch(site, replica, B, 5)
        change(site, made, isr=[NODE, A])  # though B was caught up
        fetch(site, replica, A, 5)
        await site.append(replica)
        fetch(site, replica, A, 6)
        assert replica.log.high_watermark == 5
        site.clock.advance(LAG_S + 0.1)
        replica.check_lag()
        assert replica.log.high_watermark == 6  # it had its time

    led(work)


@pytest.mark.parametrize("is_fenced", [True, False])
def test_who_shuts_down_or_is_fenced_holds_nothing_up(is_fenced: bool) -> None:
    """KAFKA-15021: it was caught up a moment ago, but cannot join any more."""

    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        fetch(site, replica, B, 5)
        change(site, made, isr=[NODE, A])
        await site.append(replica)
        fetch(site, replica, A, 6)
        wait = replica.committed(6)
        assert replica.log.high_watermark == 5
        epoch = epoch_of(site, B)
        if is_fenced:
            site.commit(FenceBrokerRecord(id=B, epoch=epoch))
        else:
            site.commit(
                BrokerRegistrationChangeRecord(broker_id=B, broker_epoch=epoch, in_controlled_shutdown=1)
            )
        assert replica.log.high_watermark == 6
        assert wait.done()

    led(work)


def test_the_high_watermark_stands_still_under_min_insync_replicas() -> None:
    """KIP-966: however many replicas hold a record, it is committed only when the ISR is large enough."""

    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        change(site, made, isr=[NODE])
        for each in (A, B):
            fetch(site, replica, each, 5)
        assert replica.log.high_watermark == 0
        assert isr_of(site.asked[0]) == (NODE, A)
        with pytest.raises(NotEnoughReplicas):
            await site.append(replica)
        site.asked[0].answered(site.asked[0], Outcome.TAKEN, 2)
        assert replica.log.high_watermark == 0  # the committed ISR counts
        change(site, made, isr=[NODE, A])
        assert replica.log.high_watermark == 5

    led(work, min_in_sync=2)


def test_a_lower_min_insync_replicas_commits_and_a_higher_one_refuses() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        change(site, made, isr=[NODE])
        wait = replica.committed(5)
        assert not wait.done()
        site.min_in_sync = 1
        site.replicas.topic_changed(site.cluster.image.topics_by_name["t"])
        assert wait.done()
        site.min_in_sync = 3
        site.replicas.topic_changed(site.cluster.image.topics_by_name["t"])
        with pytest.raises(NotEnoughReplicas):
            await site.append(replica)

    led(work, min_in_sync=2)


def test_a_new_leader_commits_nothing_before_the_isr_has_fetched_from_it() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        for each in (A, B):
            fetch(site, replica, each, 5)
        change(site, made, leader=A)
        await replica.log.append_as_follower(batch(1, base_offset=5, leader_epoch=1))
        change(site, made, leader=NODE)
        assert (replica.log.high_watermark, replica.epoch_start) == (5, 6)
        fetch(site, replica, A, 6)
        assert replica.log.high_watermark == 5
        fetch(site, replica, B, 6)
        assert replica.log.high_watermark == 6

    led(work)


def test_what_a_follower_was_writing_when_it_was_elected_is_committed_too() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        change(site, made, leader=A)
        async with replica.log.turn:
            writing = asyncio.ensure_future(
                replica.log.append_as_follower(batch(1, base_offset=0, leader_epoch=1))
            )
            await until(lambda: replica.log.turn._waiting)
            change(site, made, leader=NODE)
        await writing
        for each in (A, B):
            fetch(site, replica, each, 1)
        assert replica.log.high_watermark == 1

    led(work)


def test_a_leader_that_stays_in_a_new_epoch_keeps_what_it_knows_of_its_followers() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        for each in (A, B):
            fetch(site, replica, each, 5)
        site.clock.advance(LAG_S + 1)
        change(site, made, leader=NODE)
        await site.append(replica)
        fetch(site, replica, A, 6)
        assert replica.log.high_watermark == 5
        replica.check_lag()
        assert not site.asked  # B has the whole lag time again
        fetch(site, replica, B, 6)
        assert replica.log.high_watermark == 6

    led(work)


def test_replicas_that_are_added_hold_nothing_up_and_those_removed_are_forgotten() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        site.cluster.start(4)
        await site.append(replica, 5)
        for each in (A, B):
            fetch(site, replica, each, 5)
        change(site, made, replicas=[NODE, A, 4, B], adding_replicas=[4], removing_replicas=[B])
        await site.append(replica)
        fetch(site, replica, 4, 0)
        for each in (A, B):
            fetch(site, replica, each, 6)
        assert replica.log.high_watermark == 6
        fetch(site, replica, 4, 6)
        assert isr_of(site.asked[0]) == (NODE, A, B, 4)
        change(site, made, replicas=[NODE, A, 4], isr=[NODE, A, 4], adding_replicas=[], removing_replicas=[])
        await site.append(replica)
        fetch(site, replica, B, 7)  # it does not know yet
        fetch(site, replica, A, 7)
        assert replica.log.high_watermark == 6
        fetch(site, replica, 4, 7)
        assert replica.log.high_watermark == 7

    led(work)


# ---- recovery -------------------------------------------------------------------------------------------


def test_a_leader_that_was_elected_uncleanly_says_that_it_has_recovered() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        change(site, made, leader=A)
        change(site, made, leader=NODE, isr=[NODE], leader_recovery_state=RECOVERING)
        (asked,) = site.asked
        assert isr_of(asked) == (NODE,)
        change(site, made, leader_recovery_state=RECOVERED)
        assert asked.is_over
        assert len(site.asked) == 1
        assert (site.context.isr_changes.expands, site.context.isr_changes.shrinks) == (0, 0)

    led(work)


def test_waits_end_with_the_leadership() -> None:
    async def work(site: Site, made: TopicImage, replica: Replica) -> None:
        await site.append(replica, 5)
        wait = replica.committed(5)
        change(site, made, leader=A)
        with pytest.raises(NotLeaderOrFollower):
            await wait

    led(work)
