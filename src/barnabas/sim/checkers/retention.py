"""Retention takes away only what it may.

Where a topic has a retention.ms, and no retention.bytes, a segment goes when its newest record is older than
that, so nothing goes that is younger. Judged is every start offset that anybody was told: what is known to
have been written below it was older by then, by the broker's wall clock, which is that of the records but for
a drift of at most MAX_DRIFT. A clock that was ever set before excuses; so does a power loss since the record
was handed over, which may have given its offset to another. On a compacted topic a segment is as old as what
compaction left in it: tombstones, and what a later record of the key may have superseded, say nothing.

What retention ought to have taken need not be gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.sim.checkers.view import Place, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Acked, FinalRead, History, OffsetSeen, Sent

NAME = "retention"
MAX_DRIFT = 0.02


def check(history: History) -> list[Violation]:
    view = View(history)
    acks = {place: sorted(acked, key=lambda each: each.offset) for place, acked in view.acks.items()}
    violations = []
    for at, place, start_offset in _starts(view):
        acked = _too_young(view, place, at, start_offset, acks[place])
        if acked is not None:
            what = (
                f"{place[0]}-{place[1]} begins at {start_offset}, but offset {acked.offset}, {acked.mark!r}, "
                f"was handed over only at {view.sent[acked.mark].at:.3f} s; "
                f"retention.ms={view.topics[place[0]].retention_ms}"
            )
            violations.append(Violation(NAME, at, what))
    return violations


def _starts(view: View) -> Iterator[tuple[float, Place, int]]:
    """The start offsets that somebody was told, where they are judged, and when."""
    for event in view.history.events:
        if isinstance(event, FinalRead):
            offset = event.start_offset
        elif isinstance(event, OffsetSeen) and event.kind == "start":
            offset = event.offset
        else:
            continue
        facts = view.topics.get(event.topic)
        is_judged = facts is not None and facts.retention_ms is not None and facts.retention_bytes is None
        if is_judged and offset > 0 and not view.has_clock_jump(0.0, event.at):
            yield event.at, (event.topic, event.partition), offset


def _too_young(view: View, place: Place, at: float, start_offset: int, acks: list[Acked]) -> Acked | None:
    """A record before the start that should still be there."""
    retention_ms = view.topics[place[0]].retention_ms
    assert retention_ms is not None
    for acked in acks:
        if acked.offset >= start_offset:
            break
        sent_at = view.sent[acked.mark].at
        is_young = at * (1 + MAX_DRIFT) - sent_at < retention_ms / 1000
        if is_young and not view.may_lose(place, sent_at, at) and not _may_be_compacted(view, acked, at):
            return acked
    return None


def _may_be_compacted(view: View, acked: Acked, at: float) -> bool:
    sent = view.sent[acked.mark]
    if not view.topics[acked.topic].is_compacted:
        return False
    return sent.value is None or any(
        other.key == sent.key and other.at <= at and _may_follow(view, other, acked)
        for other in view.sent.values()
        if other.topic == sent.topic and other is not sent
    )


def _may_follow(view: View, other: Sent, acked: Acked) -> bool:
    later = view.acked.get(other.mark)
    return later is None or later.offset < 0 or later.offset > acked.offset
