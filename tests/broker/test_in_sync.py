"""The leader's rules: when a follower is caught up, who leaves and joins the ISR, what is committed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replicas.followers import NEVER, UNKNOWN_OFFSET, Follower
from barnabas.broker.replicas.in_sync import committed_end, is_eligible, lagging, may_join
from barnabas.broker.replicas.roles import Leading
from barnabas.metadata.parts import BrokerImage

LAG_S = 30.0
EPOCH = 50  # of every broker


def leading(isr: tuple[int, ...], followers: tuple[int, ...] = (2, 3, 4), min_in_sync: int = 1) -> Leading:
    return Leading(0, 0, isr, followers, min_in_sync)


def follower(node_id: int, end_offset: int, *, caught_up_at: float = NEVER, epoch: int = EPOCH) -> Follower:
    made = Follower(node_id, caught_up_at, 0.0)
    made.end_offset, made.broker_epoch = end_offset, epoch
    return made


def broker(*, epoch: int = EPOCH, fenced: bool = False, shutting_down: bool = False) -> BrokerImage:
    return BrokerImage(2, epoch, bytes(16), {}, {}, None, fenced, shutting_down, (), None)


# ---- caught up ------------------------------------------------------------------------------------------


def test_a_follower_at_the_end_is_caught_up() -> None:
    one = Follower(2, NEVER, 0.0)
    one.fetched(5, 0, 7, 100.0, EPOCH)
    assert one.caught_up_at == NEVER
    one.fetched(7, 0, 7, 101.0, EPOCH)
    assert one.caught_up_at == 101.0
    assert (one.end_offset, one.start_offset, one.broker_epoch) == (7, 0, EPOCH)


def test_a_follower_that_reaches_the_end_as_it_was_counts_as_caught_up_at_its_fetch_before() -> None:
    """Otherwise nobody would ever be caught up with a partition that is written to all the time."""
    one = Follower(2, NEVER, 0.0)
    for step in range(1, 100):
        one.fetched(10 * step, 0, 10 * step + 10, 1.0 * step, EPOCH)
    assert one.caught_up_at == 98.0
    assert not one.is_caught_up(2000, 98.0 + LAG_S + 0.1, LAG_S)
    assert one.is_caught_up(2000, 98.0 + LAG_S, LAG_S)
    one.fetched(995, 0, 2000, 100.0, EPOCH)  # not what the end was at the last fetch
    assert one.caught_up_at == 98.0


def test_a_follower_at_the_end_of_an_idle_partition_is_caught_up_for_ever() -> None:
    one = follower(2, 7)
    assert one.is_caught_up(7, 1e9, LAG_S)
    assert not one.is_caught_up(8, 1e9, LAG_S)


def test_a_new_leader_epoch_gives_members_the_whole_lag_time() -> None:
    one = follower(2, 7, caught_up_at=1.0)
    one.begin_epoch(9, 100.0, is_in_sync=True)
    assert one.is_caught_up(9, 130.0, LAG_S)
    one.begin_epoch(9, 100.0, is_in_sync=False)
    assert not one.is_caught_up(9, 100.0, LAG_S)
    one.fetched(8, 0, 12, 101.0, EPOCH)  # not even what the end was when the epoch began
    assert one.caught_up_at == NEVER


# ---- leaving and joining --------------------------------------------------------------------------------


def test_members_that_lag_behind_leave() -> None:
    followers = {
        2: follower(2, 9, caught_up_at=69.0),
        3: follower(3, 9, caught_up_at=70.0),
        4: follower(4, 9, caught_up_at=0.0),
    }
    assert lagging(leading((1, 2, 3)), followers, 10, 100.0, LAG_S) == (2,)  # 4 is no member
    assert lagging(leading((1, 2, 3)), followers, 9, 100.0, LAG_S) == ()


def test_who_may_join() -> None:
    def joins(one: Follower, known: BrokerImage | None = None, role: Leading | None = None) -> bool:
        return may_join(
            role or leading((1,)),
            one,
            known or broker(),
            high_watermark=5,
            epoch_start=7,
            leader_end=9,
            now=100.0,
            lag_s=LAG_S,
        )

    assert joins(follower(2, 7))
    assert joins(follower(2, 7, epoch=-1))  # of a version that does not tell
    assert not joins(follower(2, 6))  # it may lack what was committed before the leader's epoch
    assert not joins(follower(2, 7), role=leading((1, 2)))
    assert not joins(follower(2, 7), broker(fenced=True))
    assert not joins(follower(2, 7), broker(shutting_down=True))
    assert not is_eligible(follower(2, 7), None)
    assert not is_eligible(Follower(2, 100.0, 0.0), broker())  # it has not fetched from this leader


def test_who_has_fetched_before_it_was_started_anew_does_not_join() -> None:
    """KAFKA-15221: what the incarnation before had may be lost."""
    assert not is_eligible(follower(2, 7), broker(epoch=EPOCH + 1))
    assert not is_eligible(follower(2, 7, epoch=EPOCH + 1), broker())  # or the metadata lags behind


def test_who_has_only_reached_a_high_watermark_that_stands_still_does_not_join() -> None:
    """KAFKA-19996: under min.insync.replicas it would leave again at the next look, over and over."""
    role = leading((1,), min_in_sync=2)
    for end_offset, caught_up_at, joins in ((8, NEVER, False), (9, NEVER, True), (8, 70.0, True)):
        one = follower(2, end_offset, caught_up_at=caught_up_at)
        found = may_join(
            role, one, broker(), high_watermark=5, epoch_start=0, leader_end=9, now=100.0, lag_s=LAG_S
        )
        assert found is joins
        assert not (joins and lagging(leading((1, 2)), {2: one}, 9, 100.0, LAG_S))


# ---- what is committed ----------------------------------------------------------------------------------


@given(
    own_end=st.integers(0, 9),
    ends=st.lists(st.integers(-1, 9), min_size=3, max_size=3),
    waited_for=st.sets(st.sampled_from((2, 3, 4))),
)
def test_committed_is_what_the_isr_and_those_about_to_join_hold(
    own_end: int, ends: list[int], waited_for: set[int]
) -> None:
    followers = [follower(node_id, end) for node_id, end in zip((2, 3, 4), ends, strict=True)]

    def found(role: Leading, in_sync: tuple[int, ...], waits: bool) -> int:
        return committed_end(
            role, in_sync, followers, own_end, lambda one: waits and one.node_id in waited_for
        )

    role = leading((1, 2, 3))
    assert found(role, role.isr, False) == min(own_end, ends[0], ends[1])
    assert found(role, (1, 2, 3, 4), False) == min(own_end, *ends)
    waited_ends = [one.end_offset for one in followers if one.node_id in waited_for]
    assert found(role, role.isr, True) == min(own_end, ends[0], ends[1], *waited_ends)
    assert found(leading((1,)), (1,), False) == own_end


def test_nothing_more_is_committed_while_the_isr_is_under_min() -> None:
    followers = [follower(2, 9), follower(3, 9)]
    role = leading((1, 2), min_in_sync=3)
    # not even with one that is about to join: the controller may refuse it
    assert committed_end(role, (1, 2, 3), followers, 9, lambda one: False) == UNKNOWN_OFFSET
    assert committed_end(leading((1, 2, 3), (2, 3), 3), (1, 2, 3), followers, 9, lambda one: False) == 9
