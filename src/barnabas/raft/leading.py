"""Leading: the high watermark, being heard of by a majority, and the end of the lead.

A leader that a majority of the voters does not fetch from for 1.5 x `fetch_timeout_ms` resigns: they may have
another one. What others ask a leader, and what it tells them, is in `serving`; a sole voter never loads that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.replication import Leadership
from barnabas.raft.states import NEVER, Resigned

if TYPE_CHECKING:
    from barnabas.raft.node import RaftNode


# --- the high watermark


def log_changed(raft: RaftNode, role: Leadership, now_ms: int) -> None:
    """What this leader wrote is durable; there may be other voters now."""
    role.duty_ms = 0
    if role.change is not None:
        from barnabas.raft import voter_changes

        voter_changes.appended(raft, role)
    count_offsets(raft, role, now_ms)
    if raft.role is role:
        wake(raft, role)


def count_offsets(raft: RaftNode, role: Leadership, now_ms: int) -> None:
    """Move the high watermark, if more is held by a majority now, with all that follows."""
    if not role.commit(raft.voters, raft.me, raft.log.end_offset):
        return
    raft.commit(role.high_watermark)
    if role.change is not None:
        from barnabas.raft import voter_changes

        voter_changes.committed(raft, role)
    wake(raft, role)
    if not raft.is_voter and role.high_watermark > raft.log.voters.latest_offset:
        raft.become_resigned(now_ms)  # the voters without this node have committed that it left


def wake(raft: RaftNode, role: Leadership) -> None:
    """Records have come, or the high watermark has moved: answer what waits for it."""
    if role.parked:
        from barnabas.raft import serving

        serving.answer_parked(raft, role)


# --- being heard of


def poll_leader(raft: RaftNode, role: Leadership, now_ms: int) -> int:
    if now_ms >= role.duty_ms:
        role.duty_ms = _do_duties(raft, role, now_ms)
        if raft.role is not role:
            return NEVER
    deadline_ms = role.duty_ms
    if role.parked:
        from barnabas.raft import serving

        deadline_ms = min(deadline_ms, serving.expire(raft, role, now_ms))
    if role.change is not None:
        from barnabas.raft import voter_changes

        deadline_ms = min(deadline_ms, voter_changes.poll(raft, role, now_ms))
    return deadline_ms


def _do_duties(raft: RaftNode, role: Leadership, now_ms: int) -> int:
    """Tell voters of the epoch, and resign where too few are heard of; returns when that is due again.
    Fetches only put it off, so it need not be looked at with each of them."""
    config, voters = raft.config, raft.voters
    deadline_ms = role.quorum_deadline_ms(voters, raft.me, config, now_ms)
    if now_ms >= deadline_ms:
        raft.become_resigned(now_ms)
        return NEVER
    role.forget_observers(voters, config, now_ms)
    for voter in voters.voters:
        endpoint = config.reached_at(voter.endpoints)
        if not voter.is_same(raft.me) and endpoint is not None:
            due_ms = _begin_due_ms(raft, role, voter.key.id)
            if due_ms <= now_ms:
                from barnabas.raft import serving

                serving.tell_begin(raft, role, voter.key, endpoint, now_ms)
                due_ms = _begin_due_ms(raft, role, voter.key.id)
            deadline_ms = min(deadline_ms, max(due_ms, now_ms + 1))
    return deadline_ms


def _begin_due_ms(raft: RaftNode, role: Leadership, node_id: int) -> int:
    """When that voter is to be told of the epoch: until it knows, and whenever it does not fetch."""
    ready_ms = raft.outbound.ready_ms(node_id)
    if node_id not in role.acknowledged:
        return ready_ms
    voter = raft.voters.get(node_id)
    progress = role.of_voter(voter) if voter is not None else None
    heard_ms = -1 if progress is None else progress.fetched_ms
    last_ms = max(role.begun_ms.get(node_id, 0), heard_ms)
    return max(ready_ms, last_ms + raft.config.begin_epoch_interval_ms)


# --- leading no more


def release(raft: RaftNode, role: Leadership) -> None:
    """The lead is lost: nothing waits for it any more."""
    if role.parked:
        from barnabas.raft import serving

        serving.refuse_parked(raft, role)
    if role.change is not None:
        from barnabas.raft import voter_changes

        voter_changes.abandon(raft, role)


def poll_resigned(raft: RaftNode, role: Resigned, now_ms: int) -> int:
    if raft.voters.is_only(raft.me):
        return now_ms  # the next tick elects it
    if now_ms >= role.deadline_ms:
        # a new epoch, for this one has had its leader
        raft.become_unattached(raft.epoch + 1, now_ms, deadline_ms=now_ms)
        return NEVER
    deadline_ms = role.deadline_ms
    for node_id in sorted(role.untold):
        endpoint = raft.endpoint_of(node_id)
        ready_ms = raft.outbound.ready_ms(node_id)
        if endpoint is None:
            continue
        if ready_ms <= now_ms:
            from barnabas.raft import serving

            serving.tell_end(raft, role, node_id, endpoint, now_ms)
            ready_ms = raft.outbound.ready_ms(node_id)
        deadline_ms = min(deadline_ms, ready_ms)
    return deadline_ms
