"""What was committed is what is read back: no commit is lost, and none comes back.

Every commit of an offset has a mark of its own, which OffsetFetch gives back. A commit comes before another
if it was acknowledged before the other was sent; in between, nobody can tell their order.

- What is read was sent before, and was not refused.
- Whoever asks after a commit was acknowledged reads it, or one that is not before it.
- A commit that has been read and was followed by another that was read does not come back.
- Within a transaction: a commit shows only once EndTxn(commit) was sent, and never where the transaction was
  aborted. Whoever requires stable offsets, and asks after its commit was acknowledged, reads it.

A coordinator that was deposed and does not know it may tell what was committed before, and nothing else
(coordinators.py): the second and the third do not bind it.

A transaction's offsets take their place when its marker is written, which is after EndTxn was sent and
before anybody who requires stable offsets is answered.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.sim.checkers.coordinators import GroupCoordinators
from barnabas.sim.checkers.outcomes import Outcomes
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.group_events import CommitDone, CommitRefused, CommitSent, CommittedSeen
from barnabas.sim.history import History

NAME = "commits"
NEVER = float("inf")

_Key = tuple[str, str, int]  # group, topic, partition


class _Commit(NamedTuple):
    """It took effect between `since` and `until`, if at all; NEVER: it is not known to have."""

    sent: CommitSent
    since: float
    until: float

    def is_before(self, other: _Commit) -> bool:
        return self.until < other.since


def check(history: History) -> list[Violation]:
    outcomes, coordinators = Outcomes(history), GroupCoordinators(history)
    commits, refused = _commits(history, outcomes)
    violations: list[Violation] = []
    seen_by_key: dict[_Key, list[CommittedSeen]] = {}
    for seen in history.of(CommittedSeen):
        seen_by_key.setdefault((seen.group, seen.topic, seen.partition), []).append(seen)
    for key, sightings in seen_by_key.items():
        mine = {mark: each for mark, each in commits.items() if _key(each.sent) == key}
        certain = [seen for seen in sightings if not _is_of_deposed(seen, coordinators)]
        for seen in sightings:
            wrong = _wrong(seen, mine, refused, outcomes)
            if seen in certain:
                wrong = wrong or _stale(seen, mine)
            if wrong is not None:
                violations.append(_violation(seen, wrong))
        violations += _returning(certain)
    return violations


def _key(sent: CommitSent) -> _Key:
    return sent.group, sent.topic, sent.partition


def _commits(history: History, outcomes: Outcomes) -> tuple[dict[str, _Commit], dict[str, CommitRefused]]:
    done = {event.mark: event.at for event in history.of(CommitDone)}
    refused = {event.mark: event for event in history.of(CommitRefused)}
    commits = {}
    for sent in history.of(CommitSent):
        since, until = sent.at, done.get(sent.mark, NEVER)
        if sent.txn:
            since = outcomes.commit_sent_at(sent.txn)
            until = outcomes.committed_at(sent.txn) if sent.mark in done else NEVER
        commits[sent.mark] = _Commit(sent, since, until)
    return commits, refused


def _wrong(
    seen: CommittedSeen, mine: dict[str, _Commit], refused: dict[str, CommitRefused], outcomes: Outcomes
) -> str | None:
    """Something that cannot have been committed."""
    if seen.offset < 0:
        return None
    commit = mine.get(seen.mark)
    if commit is None:
        return "which nobody ever sent"
    if commit.sent.offset != seen.offset:
        return f"which was sent with offset {commit.sent.offset}"
    if seen.mark in refused:
        return f"which was refused at {refused[seen.mark].at:.3f} s: {refused[seen.mark].error}"
    if commit.sent.txn and outcomes.aborted_at(commit.sent.txn) is not None:
        return f"which belongs to {commit.sent.txn}, which was aborted"
    if commit.since > seen.at:
        return "whose transaction's commit was not asked for" if commit.sent.txn else "sent only later"
    return None


def _stale(seen: CommittedSeen, mine: dict[str, _Commit]) -> str | None:
    """Something that was followed by another before anybody asked."""
    shown = mine.get(seen.mark)
    for other in mine.values():
        if other.until > seen.asked_at or (other.sent.txn and not seen.is_stable):
            continue
        if other.sent.mark != seen.mark and (shown is None or shown.is_before(other)):
            when = f"acknowledged at {other.until:.3f} s"
            return f"although {other.sent.mark!r}, offset {other.sent.offset}, was {when}"
    return None


def _is_of_deposed(seen: CommittedSeen, coordinators: GroupCoordinators) -> bool:
    return coordinators.may_be_deposed(seen.group, seen.node, seen.asked_at, seen.at)


def _returning(sightings: list[CommittedSeen]) -> list[Violation]:
    """One that was read, then another, then the first again."""
    first: dict[str, CommittedSeen] = {}
    gone: dict[str, CommittedSeen] = {}  # by mark: who read another after it
    for seen in sorted(sightings, key=lambda each: each.at):
        after = gone.get(seen.mark)
        if after is not None and after.at < seen.asked_at:
            what = f"although at {after.at:.3f} s {after.mark!r}, offset {after.offset}, had taken its place"
            return [_violation(seen, what)]
        first.setdefault(seen.mark, seen)
        for mark, one in first.items():
            if mark != seen.mark and one.at < seen.asked_at:
                gone.setdefault(mark, seen)
    return []


def _violation(seen: CommittedSeen, wrong: str) -> Violation:
    read = f"offset {seen.offset} with mark {seen.mark!r}" if seen.offset >= 0 else "no offset"
    what = (
        f"{seen.who}, who asked at {seen.asked_at:.3f} s, read {read} of {seen.topic}-{seen.partition} in "
        f"{seen.group}, {wrong}"
    )
    return Violation(NAME, seen.at, what)
