"""Deliberate bugs of the raft core: each must be caught by a checker, with the core's own assertions off.

    python -m tests.sim.quorum_bugs                       every bug, and the first seed that catches it
    python -m tests.sim.quorum_bugs --bug no-stagger      one of them, and what the checkers say
    python -m tests.sim.quorum_bugs --pin                 choose the seeds of test_quorum_bugs.py anew
    python -m tests.sim.quorum_bugs --table               the pinned seeds as a table for the documents
    python -m tests.sim.quorum_bugs --replay no-stagger --seed 3 [--trace]

A bug counts as caught by a seed when a checker that is expected to says so, and the seed is clean without it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from barnabas.raft import following, invariants, serving, voter_changes, voting
from barnabas.raft.config import RaftConfig
from barnabas.raft.core import Raft
from barnabas.raft.election import NO_NODE, Election, VoterKey
from barnabas.raft.log_index import EpochEnd, LogIndex
from barnabas.raft.messages import NONE, UNSUPPORTED_VERSION, Fetch, FetchResponse
from barnabas.raft.outbound import Outbound
from barnabas.raft.ready import Ready
from barnabas.raft.replication import Leadership
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.states import Candidate, Follower, Search
from barnabas.raft.voters import VoterSet
from barnabas.sim.quorum.checkers import (
    ANSWERS,
    BUSY,
    COMMITTED,
    LEADERS,
    LIVENESS,
    PREFIX,
    VOTERS,
    VOTES,
    WATERMARK,
)
from barnabas.sim.quorum.stability import DISTURBED, FAILOVER, LAG
from barnabas.sim.quorum.world import QuorumOutcome, simulate_quorum

PINS = Path(__file__).with_name("quorum_bugs_pins.json")
SEEDS = 3_000

Patch = Callable[[Any, str, Any], None]


class Bug(NamedTuple):
    name: str
    what: str
    checkers: tuple[str, ...]
    apply: Callable[[Patch], None]


BUGS: dict[str, Bug] = {}


def bug(what: str, *checkers: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Make a bug of a function, under its name."""

    def make(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = apply.__name__.replace("_", "-")
        BUGS[name] = Bug(name, what, checkers, apply)
        return apply

    return make


def _nothing(holds: bool, what: str) -> None:
    """In the place of the core's own assertions."""


@contextmanager
def switched_on(one: Bug | None) -> Iterator[None]:
    """The core with that bug and without its assertions; as it is where there is none."""
    if one is None:
        yield
        return
    patches = [mock.patch.object(invariants, "require", _nothing)]
    one.apply(lambda owner, name, new: patches.append(mock.patch.object(owner, name, new)))
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()


# ---- elections -------------------------------------------------------------------------------------------


@bug("a vote for another node is not written to the disk", VOTES, LEADERS)
def vote_not_persisted(patch: Patch) -> None:
    ready, advance = Raft.ready, Raft.advance

    def forgetful(raft: Raft) -> Ready:
        found = ready(raft)
        if found.election is None or found.election.voted in (None, raft.me):
            return found
        return found._replace(election=found.election._replace(voted=None))

    def believing(raft: Raft, done: Ready, now_ms: int, installed: Any = None) -> None:
        advance(raft, done, now_ms, installed)
        if done.election is not None and done.election == raft.election._replace(voted=None):
            raft._persisted = raft.election

    patch(Raft, "ready", forgetful)
    patch(Raft, "advance", believing)


@bug("a leader that restarts stands again in its old epoch (KAFKA-10527)", LEADERS)
def epoch_reused(patch: Patch) -> None:
    first_role = Raft._first_role

    def candidate(raft: Raft, now_ms: int) -> Any:
        if raft.election.leader_id == raft.me.id and raft.election.epoch >= raft.log.last_epoch:
            raft.election = Election(raft.epoch, NO_NODE, raft.me)
            role = Candidate(raft.election_deadline_ms(now_ms))
            role.granted.add(raft.me.id)
            return role
        return first_role(raft, now_ms)

    patch(Raft, "_first_role", candidate)


@bug("a leader that has resigned says that it leads (KAFKA-17333)", LEADERS)
def resigned_announced(patch: Patch) -> None:
    patch(Raft, "leader_id", property(lambda raft: raft.election.leader_id))


@bug("a vote is forgotten on the way through Prospective (KAFKA-17642)", VOTES)
def vote_forgotten(patch: Patch) -> None:
    become = Raft.become_prospective

    def forgetful(raft: Raft, now_ms: int) -> None:
        raft.election = raft.election._replace(voted=None)
        become(raft, now_ms)

    patch(Raft, "become_prospective", forgetful)


@bug("a leader grants pre-votes", DISTURBED)
def pre_vote_by_leader(patch: Patch) -> None:
    honest = voting.can_grant_pre_vote

    def generous(raft: Raft, is_up_to_date: bool) -> bool:
        return is_up_to_date if isinstance(raft.role, Leadership) else honest(raft, is_up_to_date)

    patch(voting, "can_grant_pre_vote", generous)


@bug("half of the voters count as their majority", LEADERS, PREFIX, COMMITTED, VOTES)
def majority_of_half(patch: Patch) -> None:
    make = VoterSet.__init__

    def halved(voters: VoterSet, infos: Any) -> None:
        make(voters, infos)
        voters.majority = max(1, len(voters) // 2)

    patch(VoterSet, "__init__", halved)


@bug("a candidate is elected without its log being compared", COMMITTED, PREFIX)
def log_not_compared(patch: Patch) -> None:
    grants = voting.can_grant_vote
    patch(voting, "can_grant_vote", lambda raft, candidate, is_up_to_date: grants(raft, candidate, True))
    patch(voting, "can_grant_pre_vote", lambda raft, is_up_to_date: not isinstance(raft.role, Leadership))


@bug("voters that notice a dead leader ask all at once", FAILOVER)
def no_stagger(patch: Patch) -> None:
    patch(Raft, "staggered_ms", lambda raft, now_ms, without: now_ms)


# ---- replication -----------------------------------------------------------------------------------------


@bug("the high watermark moves by what earlier epochs left", COMMITTED, PREFIX, ANSWERS)
def old_epoch_committed(patch: Patch) -> None:
    patch(Leadership, "may_commit", lambda role, replicated: replicated > role.high_watermark)


@bug("a record is committed, and answered, when the leader alone has it", ANSWERS, PREFIX, COMMITTED)
def answered_before_commit(patch: Patch) -> None:
    def own(role: Leadership, voters: VoterSet, me: VoterKey, end_offset: int) -> list[int]:
        return [end_offset] * len(voters)

    patch(Leadership, "ends", own)


@bug("the leader counts as a voter when it is none (KAFKA-16530)", LIVENESS, COMMITTED, PREFIX)
def leader_outside_counted(patch: Patch) -> None:
    ends = Leadership.ends

    def counted(role: Leadership, voters: VoterSet, me: VoterKey, end_offset: int) -> list[int]:
        found = ends(role, voters, me, end_offset)
        if not voters.has(me) and found:
            found[found.index(min(found))] = end_offset
        return found

    patch(Leadership, "ends", counted)


@bug("a follower's answer about where it diverges is held back (KAFKA-15100)", LIVENESS, PREFIX, COMMITTED)
def diverging_held_back(patch: Patch) -> None:
    patch(serving, "diverging_response", lambda raft, role, found: None)


@bug("a follower cuts off more than it has to, below its high watermark", WATERMARK)
def truncation_too_deep(patch: Patch) -> None:
    cut = LogIndex.truncation_for

    def deeper(log: LogIndex, diverging: EpochEnd) -> int:
        return max(log.start_offset, cut(log, diverging) - 5)

    patch(LogIndex, "truncation_for", deeper)


@bug("a snapshot's id is the last offset in it, not the one behind (KAFKA-14618)", PREFIX, COMMITTED)
def snapshot_off_by_one(patch: Patch) -> None:
    def last(log: LogIndex, end_offset: int) -> SnapshotId:
        return SnapshotId(end_offset - 1, log.epoch_at(end_offset - 1))

    patch(LogIndex, "snapshot_id", last)


@bug("the time of the next request is not set: a busy loop (KAFKA-17751)", BUSY)
def timer_not_reset(patch: Patch) -> None:
    def at_once(outbound: Outbound, peer: object, now_ms: int) -> None:
        found = outbound._peers.get(peer)
        if found is not None:
            found.ready_ms = now_ms

    patch(Outbound, "back_off", at_once)


@bug("a replica waits for records although the high watermark has moved (KAFKA-13959)", LAG)
def high_watermark_waits(patch: Patch) -> None:
    due = serving.answer_if_due

    def later(raft: Raft, role: Leadership, request: Fetch) -> FetchResponse | None:
        return due(raft, role, request) if request.offset < raft.log.end_offset else None

    patch(serving, "answer_if_due", later)


@bug("records that were read while the leader cut its log are appended (KAFKA-18723)", PREFIX, COMMITTED)
def read_races_truncation(patch: Patch) -> None:
    def lenient(raft: Raft, response: FetchResponse) -> bool:
        return not response.entries or response.entries[0].base_offset == raft.log.end_offset

    patch(following, "continues", lenient)


@bug("a node is reached at the first of its listeners, whatever its name", LIVENESS)
def first_listener(patch: Patch) -> None:
    patch(RaftConfig, "reached_at", lambda config, endpoints: endpoints[0] if endpoints else None)


@bug("an observer waits for the fetch timeout though its leader is gone", FAILOVER)
def observer_waits(patch: Patch) -> None:
    ask = following.ask_for_leader

    def patient(raft: Raft, search: Search, now_ms: int) -> int:
        role = raft.role
        if isinstance(role, Follower) and now_ms < role.fetch_deadline_ms:
            return role.fetch_deadline_ms
        return ask(raft, search, now_ms)

    patch(following, "ask_for_leader", patient)


# ---- voters ----------------------------------------------------------------------------------------------


@bug("new voters are in force only when they are committed", COMMITTED, PREFIX, LEADERS, ANSWERS)
def voters_when_committed(patch: Patch) -> None:
    def committed(raft: Raft) -> VoterSet:
        return raft.log.voters.at(raft.high_watermark)[1]

    patch(Raft, "voters", property(committed))
    patch(Raft, "is_voter", property(lambda raft: raft.voters.has(raft.me)))


@bug("a change of voters begins while another is under way", VOTERS, COMMITTED, PREFIX)
def two_changes_at_once(patch: Patch) -> None:
    refusal = voter_changes.refusal

    def lenient(raft: Raft, role: Leadership) -> tuple[int, str]:
        error, message = refusal(raft, role)
        return (error, message) if error == UNSUPPORTED_VERSION else (NONE, "")

    patch(voter_changes, "refusal", lenient)


@bug("a voter that was removed joins again by itself (KAFKA-19850)", VOTERS)
def removed_rejoins(patch: Patch) -> None:
    patch(voter_changes, "may_join", lambda raft: raft.config.auto_join and raft.kraft_version > 0)


# ---- running them ----------------------------------------------------------------------------------------


def run(one: Bug | None, seed: int, on_line: Callable[[str], None] | None = None) -> QuorumOutcome:
    with switched_on(one):
        return simulate_quorum(seed, on_line=on_line)


def checkers_of(outcome: QuorumOutcome) -> tuple[str, ...]:
    """Which of them said something, in the order in which it came up."""
    return tuple(dict.fromkeys(violation.checker for violation in outcome.violations))


def catch(one: Bug, seed: int) -> str:
    """The first thing that an expected checker says; empty where the seed does not catch the bug."""
    try:
        outcome = run(one, seed)
    except Exception:  # noqa: BLE001 - an exception inside the product is no checker
        return ""
    said = [str(each) for each in outcome.violations if each.checker in one.checkers]
    return said[0] if said and not run(None, seed).violations else ""


def hunt(one: Bug, seeds: Sequence[int]) -> tuple[int, str] | None:
    """The first seed that catches a bug, and what is said then."""
    for seed in seeds:
        if said := catch(one, seed):
            return seed, said
    return None


def pins() -> dict[str, int]:
    """The seed of each bug that the tests run."""
    found: dict[str, int] = json.loads(PINS.read_text()) if PINS.exists() else {}
    return found


def markdown() -> str:
    """The table for the documents, by the pinned seeds."""
    lines = ["| bug | what is wrong | caught by | first seed |", "|---|---|---|---|"]
    for name, seed in pins().items():
        found = [each for each in checkers_of(run(BUGS[name], seed)) if each in BUGS[name].checkers]
        lines.append(f"| `{name}` | {BUGS[name].what} | {', '.join(found)} | {seed} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.quorum_bugs")
    parser.add_argument("--bug", metavar="NAME", action="append", choices=list(BUGS))
    parser.add_argument("--seeds", metavar="N", type=int, default=SEEDS, help="at most so many a bug")
    parser.add_argument("--pin", action="store_true", help=f"rewrite {PINS.name}")
    parser.add_argument("--table", action="store_true", help="the pinned seeds, as markdown")
    parser.add_argument("--replay", metavar="NAME", choices=list(BUGS))
    parser.add_argument("--seed", metavar="N", type=int, default=1)
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args(arguments)
    if args.table:
        print(markdown())
        return 0
    if args.replay:
        outcome = run(BUGS[args.replay], args.seed, print if args.trace else None)
        print(*outcome.violations, f"trace hash: {outcome.trace_hash}", sep="\n")
        return 1 if outcome.violations else 0
    chosen = pins()
    missing = []
    for name in args.bug or BUGS:
        found = hunt(BUGS[name], range(1, args.seeds + 1))
        print(
            f"{name}: {'not caught' if found is None else f'seed {found[0]}: {found[1][:200]}'}", flush=True
        )
        if found is None:
            missing.append(name)
            chosen.pop(name, None)
        else:
            chosen[name] = found[0]
    if args.pin:
        ordered = {name: chosen[name] for name in BUGS if name in chosen}
        PINS.write_text(json.dumps(ordered, indent=2) + "\n")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
