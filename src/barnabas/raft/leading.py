"""Leading: the high watermark, the contact with a majority of the voters, and the end of the lead.

A leader from which no majority of the voters has fetched for 1.5 x `fetch_timeout_ms` resigns: they may have
another one. Requests and answers of replicas are in `serving`, which a sole voter never loads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.replication import Leadership
from barnabas.raft.states import NEVER, Resigned

if TYPE_CHECKING:
    from barnabas.raft.node import RaftNode


# --- the high watermark


def log_changed(raft: RaftNode, role: Leadership, now_ms: int) -> None:
    """The leader's writes are durable; the voters may have changed."""
    role.duty_ms = 0
    if role.change is not None:
        from barnabas.raft import voter_changes

        voter_changes.appended(raft, role)
    count_offsets(raft, role, now_ms)
    if raft.role is role:
        wake(raft, role)


def count_offsets(raft: RaftNode, role: Leadership, now_ms: int) -> None:
    """Advance the high watermark if a majority now holds more, with all consequences."""
    if not role.commit(raft.voters, raft.me, raft.log.end_offset):
        return
    raft.commit(role.high_watermark)
    if role.change is not None:
        from barnabas.raft import voter_changes

        voter_changes.committed(raft, role)
    wake(raft, role)
    if not raft.is_voter and role.high_watermark > raft.log.voters.latest_offset:
        raft.become_resigned(now_ms)  # the voters without this node have committed its removal


def wake(raft: RaftNode, role: Leadership) -> None:
    """There are new records, or the high watermark has moved: answer waiting fetches."""
    if role.parked:
        from barnabas.raft import serving

        serving.answer_parked(raft, role)


# --- contact with the voters


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
    """Announce the epoch to voters, and resign if too few have fetched; returns when that is due again. A
    fetch only delays it, so it need not be checked on every fetch."""
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
    """When to announce the epoch to that voter: until it knows the epoch, and whenever it does not fetch."""
    ready_ms = raft.outbound.ready_ms(node_id)
    if node_id not in role.acknowledged:
        return ready_ms
    voter = raft.voters.get(node_id)
    progress = role.of_voter(voter) if voter is not None else None
    heard_ms = -1 if progress is None else progress.fetched_ms
    last_ms = max(role.begun_ms.get(node_id, 0), heard_ms)
    return max(ready_ms, last_ms + raft.config.begin_epoch_interval_ms)


# --- the end of the lead


def release(raft: RaftNode, role: Leadership) -> None:
    """The lead is lost: refuse everything that waits for it."""
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
        # a new epoch, since this one has had its leader
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
