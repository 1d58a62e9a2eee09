"""The leader's rules: which replicas leave the ISR, which may join it, and up to where records are committed.

- A member leaves when it has not been caught up for replica.lag.time.max.ms.
- A follower joins when it has everything up to the high watermark and to the start of the leader's epoch:
  below that start there may be records that are committed although this leader does not know it yet. Its
  broker must be active, and be the incarnation that has fetched (KIP-903, KIP-841).
- While the ISR is smaller than min.insync.replicas the high watermark stands still, however old it is. Then a
  replica that joins must be caught up with the end of the log, or it would soon leave again (KAFKA-19996).
- The high watermark is the smallest log end offset among the replicas that are in sync and those that could
  join. Replicas about to join count as in sync, since the controller may have added them already. A caught-up
  replica that could join counts, or the high watermark would stay ahead of it for ever.

All of this is pure; `leader_state` asks the controller for the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from barnabas.broker.replicas.followers import UNKNOWN_EPOCH, UNKNOWN_OFFSET, Follower
from barnabas.broker.replicas.roles import Leading
from barnabas.metadata.parts import BrokerImage


def lagging(
    role: Leading, followers: Mapping[int, Follower], leader_end: int, now: float, lag_s: float
) -> tuple[int, ...]:
    """The members of the ISR that lag behind for too long."""
    return tuple(
        each.node_id
        for each in followers.values()
        if not each.is_caught_up(leader_end, now, lag_s) and each.node_id in role.isr
    )


def is_eligible(follower: Follower, broker: BrokerImage | None) -> bool:
    """Whether the state of the follower's broker allows it to join the ISR."""
    return (
        broker is not None
        and broker.is_active
        and follower.broker_epoch is not None
        and follower.broker_epoch in (UNKNOWN_EPOCH, broker.epoch)
    )


def may_join(
    role: Leading,
    follower: Follower,
    broker: BrokerImage | None,
    *,
    high_watermark: int,
    epoch_start: int,
    leader_end: int,
    now: float,
    lag_s: float,
) -> bool:
    """Whether the leader should ask the controller to add a follower to the ISR."""
    return (
        follower.node_id not in role.isr
        and follower.end_offset >= max(high_watermark, epoch_start)
        and is_eligible(follower, broker)
        and (not role.is_under_min or follower.is_caught_up(leader_end, now, lag_s))
    )


def committed_end(
    role: Leading,
    in_sync: Collection[int],
    followers: Iterable[Follower],
    own_end: int,
    is_waited_for: Callable[[Follower], bool],
) -> int:
    """The offset up to which everything is committed; UNKNOWN_OFFSET where the high watermark does not move.

    `in_sync` are the members of the ISR and those that are about to join it; `is_waited_for` says whether
    another follower is caught up and could join.
    """
    if role.is_under_min:
        return UNKNOWN_OFFSET
    lowest = own_end
    for each in followers:
        if each.end_offset < lowest and (each.node_id in in_sync or is_waited_for(each)):
            lowest = each.end_offset
    return lowest
