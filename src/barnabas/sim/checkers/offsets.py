"""No offset is ever seen with two contents.

Acknowledgements say which record went to an offset; reads say the same, with key, value, timestamp and leader
epoch. All that is ever seen at one offset of a partition must agree, and compaction changes none of it:
what stays, stays where it is. Only a power loss may give an offset away again, since it may have taken what
was there; so two observations may differ if one lies within the stretch of their spans.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.sim.checkers.view import Place, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import History, Kept

NAME = "offsets"


class _Seen(NamedTuple):
    since: float
    until: float
    who: str
    mark: str
    record: Kept | None  # an acknowledgement shows only the mark


def check(history: History) -> list[Violation]:
    view = View(history)
    violations: list[Violation] = []
    for place, by_offset in _observations(view).items():
        for offset, seen in by_offset.items():
            if _differ(seen):
                violations += _clashes(view, place, offset, seen)
    return violations


def _observations(view: View) -> dict[Place, dict[int, list[_Seen]]]:
    found: dict[Place, dict[int, list[_Seen]]] = {}
    for place, acks in view.acks.items():
        by_offset = found.setdefault(place, {})
        for acked in acks:
            sent_at = view.sent[acked.mark].at
            seen = _Seen(sent_at, acked.at, "an acknowledgement", acked.mark, None)
            by_offset.setdefault(acked.offset, []).append(seen)
    for place, sightings in view.sightings.items():
        by_offset = found.setdefault(place, {})
        for since, until, who, record in sightings:
            by_offset.setdefault(record.offset, []).append(_Seen(since, until, who, record.mark, record))
    return found


def _differ(seen: list[_Seen]) -> bool:
    first, record = seen[0], None
    for each in seen:
        record = record or each.record
        if each.mark != first.mark or (each.record is not None and each.record != record):
            return True
    return False


def _clashes(view: View, place: Place, offset: int, seen: list[_Seen]) -> list[Violation]:
    """The first pair that no power loss explains."""
    for index, later in enumerate(seen):
        for earlier in seen[:index]:
            is_same = earlier.mark == later.mark
            if is_same and (earlier.record is None or later.record is None or earlier.record == later.record):
                continue
            if not view.may_lose(place, min(earlier.since, later.since), max(earlier.until, later.until)):
                what = (
                    f"{place[0]}-{place[1]} offset {offset} is {_told(later)} to {later.who}, but was "
                    f"{_told(earlier)} to {earlier.who} at {earlier.until:.3f} s, and nothing can be lost"
                )
                return [Violation(NAME, later.until, what)]
    return []


def _told(seen: _Seen) -> str:
    if seen.record is None:
        return repr(seen.mark)
    record = seen.record
    return (
        f"{seen.mark!r} (key {record.key!r}, value {record.value!r}, time {record.timestamp_ms}, "
        f"epoch {record.leader_epoch})"
    )
