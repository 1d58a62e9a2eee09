"""No record of an idempotent producer stands at two offsets.

A batch that is sent again keeps its number, and the broker recognises it by what it remembers of the
producer. After a power loss that memory is what the surviving log says: if the first copy survived, its
number did, too, and the second is recognised; if it did not, there is only the second. So in what is in the
log at any one time there is never a second copy, power losses or not. Readers who see the log at different
times may see a record at two offsets only if a power loss between took the first, or retention or compaction
did and a start made the broker forget it.

Nor is a record refused because of its number, unless a power loss took what came before it: a producer gives
up with OUT_OF_ORDER_SEQUENCE_NUMBER only if nothing else explains that its numbers are not remembered. What
else does is a start: the broker then knows of a producer, besides its latest batch, what the log still says,
and retention or compaction may have taken a batch whose acknowledgement was lost with the connection.

Producers without idempotence promise nothing here.
"""

from __future__ import annotations

from barnabas.sim.checkers.view import REFUSED, Place, Sighting, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import History

NAME = "duplicates"


def check(history: History) -> list[Violation]:
    view = View(history)
    violations = _refused(view)
    for place, sightings in view.sightings.items():
        violations += _repeated(view, place, sightings)
    return violations


def _refused(view: View) -> list[Violation]:
    """Records that the broker did not take although nothing can have been lost before them."""
    began: dict[str, float] = {}
    violations = []
    for sent in view.sent.values():
        began_at = began.setdefault(sent.producer, sent.at)
        failed = view.failed.get(sent.mark)
        if failed is None or sent.topic not in view.topics or REFUSED not in failed.error:
            continue
        is_explained = view.was_forgotten(sent.producer, sent.topic, sent.at, failed.at)
        if not is_explained and not view.topic_may_lose(sent.topic, began_at, failed.at):
            what = f"{sent.mark!r} for {sent.topic} was refused, and nothing can be lost: {failed.error}"
            violations.append(Violation(NAME, failed.at, what))
    return violations


def _repeated(view: View, place: Place, sightings: list[Sighting]) -> list[Violation]:
    by_mark: dict[str, dict[int, list[Sighting]]] = {}
    for sighting in sightings:
        record = sighting.record
        if _is_numbered(view, record.mark):
            by_mark.setdefault(record.mark, {}).setdefault(record.offset, []).append(sighting)
    violations = []
    for mark, by_offset in by_mark.items():
        if len(by_offset) > 1:
            violations += _clash(view, place, mark, [each for seen in by_offset.values() for each in seen])
    return violations


def _clash(view: View, place: Place, mark: str, seen: list[Sighting]) -> list[Violation]:
    for index, later in enumerate(seen):
        for earlier in seen[:index]:
            if earlier.record.offset == later.record.offset:
                continue
            since, until = min(earlier.since, later.since), max(earlier.until, later.until)
            if not view.may_lose(place, since, until) and not _was_forgotten(view, mark, earlier, later):
                what = (
                    f"{place[0]}-{place[1]}: {mark!r} of an idempotent producer was read at offset "
                    f"{earlier.record.offset} by {earlier.who} at {earlier.until:.3f} s and at offset "
                    f"{later.record.offset} by {later.who}, and nothing can be lost"
                )
                return [Violation(NAME, later.until, what)]
    return []


def _was_forgotten(view: View, mark: str, one: Sighting, other: Sighting) -> bool:
    """Whether the first copy had been seen for the last time when the broker said that it knew of none."""
    sent = view.sent[mark]
    first, second = sorted((one, other), key=lambda seen: seen.record.offset)
    return view.was_forgotten(sent.producer, sent.topic, first.until, second.until)


def _is_numbered(view: View, mark: str) -> bool:
    sent = view.sent.get(mark)
    return sent is not None and sent.is_idempotent
