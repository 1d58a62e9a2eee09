"""When the faults stop, everything goes on.

In virtual time from the end of the faults:

- every node serves again: it started after its last crash, and after CALM_S it neither crashes nor starts;
- within SETTLE_S every send of before is acknowledged or has failed (but those of killed clients);
- every record that is handed over after CALM_S is acknowledged, within ACK_S;
- every reader that begins after CALM_S reaches the end, and is given what is acknowledged meanwhile within
  PROMPT_S, however long its fetches may wait;
- within FINISH_S all partitions of the topics that are still there have been read to their end, and the
  workload is done.

Compaction of what is due happens: on a topic with max.compaction.lag.ms, what was superseded by a record
older than that plus COMPACTION_SLACK_S is gone from the last read. A tombstone goes with the first pass that
comes when it has been through one and delete.retention.ms is over since. The lag is counted by the broker's
wall clock from the records' timestamps, so a clock that jumped in between is an excuse. So is a disk that
failed, unless its node started after the faults: a log that could not be compacted is left until then.
"""

from __future__ import annotations

from barnabas.sim.checkers.view import Place, Session, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import (
    ClientKilled,
    Crash,
    Fault,
    FaultsEnded,
    FinalRead,
    Finished,
    History,
    Sent,
    Settled,
    Started,
)

NAME = "liveness"
DISK_ERROR = "disk-error"
CALM_S = 30.0
SETTLE_S = 90.0
ACK_S = 30.0
PROMPT_S = 1.0
FINISH_S = 240.0
COMPACTION_SLACK_S = 45.0
UNDISTURBED_SLACK_S = 12.0  # the same where there was no fault at all


def check(history: History) -> list[Violation]:
    calm = next(history.of(FaultsEnded), None)
    if calm is None:
        return []
    view = View(history)
    violations = _nodes(history, calm.at)
    violations += _sends(history, view, calm.at)
    violations += _readers(view, calm.at)
    violations += _end(history, view, calm.at)
    for place in view.places():
        violations += _compaction(view, place)
    return violations


def _nodes(history: History, calm_at: float) -> list[Violation]:
    for event in history.events:
        if isinstance(event, (Crash, Started)) and event.at > calm_at + CALM_S:
            what = "crashes" if isinstance(event, Crash) else "starts again"
            text = f"node {event.node} {what} although the faults ended at {calm_at:.3f} s"
            return [Violation(NAME, event.at, text)]
    crashed_at = {event.node: event.at for event in history.of(Crash)}
    started_at = {event.node: event.at for event in history.of(Started)}
    return [
        Violation(NAME, at, f"node {node} never started again after this crash")
        for node, at in crashed_at.items()
        if started_at.get(node, -1.0) < at
    ]


def _sends(history: History, view: View, calm_at: float) -> list[Violation]:
    violations = []
    settled = next(history.of(Settled), None)
    if settled is None or settled.at > calm_at + SETTLE_S:
        when = "never" if settled is None else f"only at {settled.at:.3f} s"
        what = f"sends of before the faults ended ({calm_at:.3f} s) were settled {when}"
        violations.append(Violation(NAME, calm_at + SETTLE_S, what))
    killed = {event.client for event in history.of(ClientKilled)}
    for sent in view.sent.values():
        if sent.producer not in killed and sent.topic in view.topics:
            violations += _send(view, sent, calm_at)
    return violations


def _send(view: View, sent: Sent, calm_at: float) -> list[Violation]:
    acked, failed = view.settled.get(sent.mark), view.failed.get(sent.mark)
    told = f"{sent.mark!r}, handed over at {sent.at:.3f} s for {sent.topic}"
    if acked is None and failed is None:
        return [Violation(NAME, sent.at, f"{told}, was never acknowledged and did not fail")]
    if sent.at <= calm_at + CALM_S:
        return []
    if failed is not None:
        return [Violation(NAME, failed.at, f"{told}, failed long after the faults: {failed.error}")]
    if acked is not None and acked.at > sent.at + ACK_S:
        return [Violation(NAME, acked.at, f"{told}, was acknowledged only now")]
    return []


def _readers(view: View, calm_at: float) -> list[Violation]:
    violations = []
    for session in view.sessions.values():
        began = session.began
        if began.at <= calm_at + CALM_S or began.topic not in view.topics:
            continue
        if session.ended is None or not session.ended.is_at_end:
            what = (
                f"{began.session}, reading {began.topic}-{began.partition} since {began.at:.3f} s, long "
                f"after the faults, came to {session.position} and not to the end"
            )
            violations.append(Violation(NAME, session.last_at, what))
        violations += _prompt(view, session)
    return violations


def _prompt(view: View, session: Session) -> list[Violation]:
    """Whether a reader gets what comes while it waits."""
    began = session.began
    read_at = {read.record.offset: read.at for read in session.reads}
    for acked in view.acks[began.topic, began.partition]:
        if acked.at >= began.at and read_at.get(acked.offset, acked.at) > acked.at + PROMPT_S:
            what = (
                f"{began.session} was given {acked.mark!r}, acknowledged at {acked.at:.3f} s, only at "
                f"{read_at[acked.offset]:.3f} s"
            )
            return [Violation(NAME, read_at[acked.offset], what)]
    return []


def _end(history: History, view: View, calm_at: float) -> list[Violation]:
    missing = [
        f"{topic}-{partition}" for topic, partition in view.places() if (topic, partition) not in view.finals
    ]
    late_at = calm_at + FINISH_S
    violations = [Violation(NAME, late_at, f"{each} could not be read to its end") for each in missing]
    finished = next(history.of(Finished), None)
    if finished is None or finished.at > late_at:
        when = "never" if finished is None else f"only at {finished.at:.3f} s"
        violations.append(Violation(NAME, late_at, f"the clients' work was done {when}"))
    return violations


def _compaction(view: View, place: Place) -> list[Violation]:
    final, facts = view.finals.get(place), view.topics[place[0]]
    if final is None or not facts.is_compacted or facts.max_compaction_lag_ms is None:
        return []
    if view.has_clock_jump(0.0, final.at) or _may_be_left(view.history):
        return []
    pass_s = facts.max_compaction_lag_ms / 1000 + _slack_s(view.history)
    left = _superseded(view, place, final, pass_s) or _tombstone(view, place, final, pass_s)
    if left is None:
        return []
    what = f"{place[0]}-{place[1]} still holds {left}; max.compaction.lag.ms={facts.max_compaction_lag_ms}"
    return [Violation(NAME, final.at, what)]


def _may_be_left(history: History) -> bool:
    """Whether a node may have met an error of its disk in its last life: one may strike late."""
    failed = {fault.node for fault in history.of(Fault) if fault.kind == DISK_ERROR}
    ended_at = max((event.at for event in history.of(FaultsEnded)), default=0.0)
    return bool(failed - {started.node for started in history.of(Started) if started.at > ended_at})


def _slack_s(history: History) -> float:
    is_disturbed = any(isinstance(event, (Crash, Fault)) for event in history.events)
    return COMPACTION_SLACK_S if is_disturbed else UNDISTURBED_SLACK_S


def _superseded(view: View, place: Place, final: FinalRead, pass_s: float) -> str | None:
    """A record that a pass should have taken, which is over when `pass_s` have gone."""
    known, due_at = view.known_since(place), final.asked_at - pass_s
    later: dict[bytes | None, int] = {}
    for record in reversed(final.records):
        by = later.get(record.key)
        if by is not None:
            return (
                f"offset {record.offset} of key {record.key!r}, superseded by offset {by} since "
                f"{known[by]:.3f} s"
            )
        if known[record.offset] < due_at:
            later[record.key] = record.offset
    return None


def _tombstone(view: View, place: Place, final: FinalRead, pass_s: float) -> str | None:
    """A tombstone that a second pass should have taken: over something that came when its time was over."""
    known = view.known_since(place)
    last_due_at = max((at for at in known.values() if at < final.asked_at - pass_s), default=0.0)
    stays_s = pass_s + view.topics[place[0]].delete_retention_ms / 1000
    for record in final.records:
        since = known[record.offset]
        if record.value is None and since + stays_s < last_due_at:
            return (
                f"the tombstone at offset {record.offset} of key {record.key!r}, known since {since:.3f} s, "
                f"although what came at {last_due_at:.3f} s was compacted when its time was over"
            )
    return None
