"""Records of one idempotent producer stand in a partition in the order in which they were handed over.

Whatever is sent again, and whatever is given up on the way: a later record may stand there without an earlier
one (which failed), never before it. This holds in every reader's session and in the last read of all.

A power loss may take everything that the broker knew of a producer, and then it takes whatever number comes
next. Of two batches that are open at that moment the first may have been refused already, so that it waits
for a new epoch, while the second is still sent under its number, since nobody knows whether it was written.
So a record that was handed over before a power loss may stand behind one that was acknowledged after it.

A start on a log that retention or compaction has shortened takes all but the latest batch of what the broker
knew of a producer. An earlier one whose acknowledgement was lost is refused then, and with it those behind it
are numbered anew, while the latest is recognised where it stands: these may stand behind it.

Producers without idempotence may have several batches on their way, one of which is sent again later than the
next: they promise no order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from barnabas.sim.checkers.view import View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import History, Kept, Sent

NAME = "order"


def check(history: History) -> list[Violation]:
    view = View(history)
    violations: list[Violation] = []
    for place, final in view.finals.items():
        if place[0] in view.topics:
            violations += _in_order(view, f"{place[0]}-{place[1]} at the end", final.at, final.records)
    for session in view.sessions.values():
        began = session.began
        if began.topic in view.topics:
            where = f"{began.topic}-{began.partition} as read by {began.session}"
            violations += _in_order(view, where, session.last_at, (read.record for read in session.reads))
    return violations


def _in_order(view: View, where: str, at: float, records: Iterable[Kept]) -> list[Violation]:
    last: dict[str, tuple[Sent, int]] = {}
    for record in records:
        sent = view.sent.get(record.mark)
        if sent is None or not sent.is_idempotent:
            continue
        before = last.get(sent.producer)
        is_behind = before is not None and before[0].number > sent.number
        if before is not None and is_behind and not _is_excused(view, sent, before[0]):
            what = (
                f"{where}: {record.mark!r}, handed over at {sent.at:.3f} s, stands at offset {record.offset}"
                f", behind {before[0].mark!r} at {before[1]}, handed over at {before[0].at:.3f} s"
            )
            return [Violation(NAME, at, what)]
        last[sent.producer] = (sent, record.offset)
    return []


def _is_excused(view: View, sent: Sent, overtaking: Sent) -> bool:
    acked, later = view.acked.get(overtaking.mark), view.acked.get(sent.mark)
    if view.topic_may_lose(sent.topic, sent.at, math.inf if acked is None else acked.at):
        return True
    return view.was_forgotten(sent.producer, sent.topic, sent.at, math.inf if later is None else later.at)
