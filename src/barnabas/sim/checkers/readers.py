"""What a reader is given: what was sent, in order, with nothing left out.

- Nobody reads what was never sent: key, value, timestamp (unless the topic has the broker's) and topic are
  those of the record that was handed over, and it was handed over before.
- Nobody reads what was deleted with its topic: what was acknowledged before a deletion was confirmed, by a
  session that began after that. Where there are several nodes a broker may not know of the deletion yet, as
  long as there are faults.
- Within one session offsets only go up, from where the session began.
- A session that has passed an offset has seen the record there. Certain are records that the last read found:
  nothing took them away at any time. Without a loss (view.py) since the session began, all of them below its
  position; with one, those that were known to be there before it began, since others may have been written
  where an earlier record was lost.

Retention and compaction only take away, so what is still there at the end was there for every session. A
record of a deleted topic needs only to have been sent.

But each replica compacts by itself: what one leader has compacted away another may still have. So a session
may have passed a record of a compacted, replicated topic that is superseded: by one of the same key at a
higher offset that the session was given, or that may stand where it has not come to, or is a tombstone whose
time is over, which may be gone as well. And it may have passed such a tombstone.
"""

from __future__ import annotations

from barnabas.sim.checkers.view import Session, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import NO_PARTITION, FaultsEnded, History, Read, Sent, TopicDeleted

NAME = "readers"
KNOWN_S = 30.0  # after the faults: until then every broker has the metadata


def check(history: History) -> list[Violation]:
    view = View(history)
    violations: list[Violation] = []
    certain = {place: sorted(view.known_since(place).items()) for place in view.places()}
    deleted: dict[str, list[float]] = {}
    known_from = max((each.at + KNOWN_S for each in history.of(FaultsEnded)), default=0.0)
    for event in history.of(TopicDeleted):
        deleted.setdefault(event.topic, []).append(event.at)
    for session in view.sessions.values():
        violations += _only_what_was_sent(view, session.reads)
        violations += _only_upwards(session)
        if session.began.at > known_from or not view.is_replicated:
            violations += _nothing_deleted(view, session, deleted.get(session.began.topic, []))
        place = (session.began.topic, session.began.partition)
        violations += _nothing_skipped(view, session, certain.get(place, []))
    for final in view.finals.values():
        reads = [Read(final.at, "the last read", final.topic, final.partition, r) for r in final.records]
        violations += _only_what_was_sent(view, reads)
    return violations


def _only_what_was_sent(view: View, reads: list[Read]) -> list[Violation]:
    return [
        Violation(
            NAME,
            read.at,
            f"{read.topic}-{read.partition} offset {read.record.offset}, read by {read.session}: {wrong}",
        )
        for read in reads
        if (wrong := _wrong(view, read)) is not None
    ]


def _wrong(view: View, read: Read) -> str | None:
    record = read.record
    sent = view.sent.get(record.mark)
    if sent is None:
        return f"nobody ever sent {record.value!r} with key {record.key!r} (mark {record.mark!r})"
    if sent.at > read.at:
        return f"{record.mark!r} was sent only later, at {sent.at:.3f} s"
    if sent.topic != read.topic or sent.partition not in (NO_PARTITION, read.partition):
        return f"{record.mark!r} was sent to {sent.topic}-{sent.partition}"
    if (sent.key, sent.value) != (record.key, record.value):
        return (
            f"{record.mark!r} was sent with key {sent.key!r} and value {sent.value!r}, "
            f"and came with {record.key!r} and {record.value!r}"
        )
    facts = view.topics.get(read.topic)
    if facts is not None and not facts.has_append_time and sent.timestamp_ms != record.timestamp_ms:
        return f"{record.mark!r} was sent with time {sent.timestamp_ms}, and came with {record.timestamp_ms}"
    return None


def _only_upwards(session: Session) -> list[Violation]:
    before = session.began.start_offset - 1
    for read in session.reads:
        if read.record.offset <= before:
            what = (
                f"{session.began.session} was given offset {read.record.offset} of "
                f"{read.topic}-{read.partition}, although it had come to {before + 1} already"
            )
            return [Violation(NAME, read.at, what)]
        before = read.record.offset
    return []


def _nothing_deleted(view: View, session: Session, deleted: list[float]) -> list[Violation]:
    """`deleted`: when deletions of its topic were confirmed."""
    gone_at = max((at for at in deleted if at < session.began.at), default=0.0)
    for read in session.reads:
        acked = view.acked.get(read.record.mark)
        if acked is not None and acked.at < gone_at:
            what = (
                f"{session.began.session} was given {acked.mark!r}, acknowledged at {acked.at:.3f} s, "
                f"although {read.topic} was deleted at {gone_at:.3f} s"
            )
            return [Violation(NAME, read.at, what)]
    return []


def _nothing_skipped(view: View, session: Session, certain: list[tuple[int, float]]) -> list[Violation]:
    began = session.began
    seen = {read.record.offset for read in session.reads}
    position = max(session.position, max(seen, default=-1) + 1)
    place = began.topic, began.partition
    lost_at = view.doubts(place).first(began.at)
    is_compacted = view.is_replicated and place[0] in view.topics and view.topics[place[0]].is_compacted
    for offset, known_since in certain:
        is_passed = began.start_offset <= offset < position and offset not in seen
        if is_passed and (lost_at is None or known_since < began.at):
            if is_compacted and _may_be_compacted(view, session, offset, position):
                continue
            what = (
                f"{began.session}, reading {began.topic}-{began.partition} from {began.start_offset} since "
                f"{began.at:.3f} s, has come to {position} without having been given offset {offset}, which "
                f"is known to be there since {known_since:.3f} s"
            )
            return [Violation(NAME, session.last_at, what)]
    return []


def _may_be_compacted(view: View, session: Session, offset: int, position: int) -> bool:
    """Whether a leader may have compacted away what the last read found at an offset that was passed."""
    topic, partition = session.began.topic, session.began.partition
    passed = next(each for each in view.finals[topic, partition].records if each.offset == offset)
    if _is_gone(view, session, view.sent[passed.mark]):
        return True
    given = {read.record.mark for read in session.reads if read.record.offset > offset}
    for sent in view.sent_by_key[topic, passed.key]:
        if sent.at > session.last_at or sent.partition not in (NO_PARTITION, partition):
            continue
        where, stands = view.stands_at.get(sent.mark, (partition, None))
        if stands is None:  # it may have been written
            if not view.is_before(sent, view.sent[passed.mark]):
                return True
        elif where == partition and stands > offset:
            is_seen = sent.mark in given or stands >= position
            if is_seen or _is_gone(view, session, sent):
                return True
    return False


def _is_gone(view: View, session: Session, sent: Sent) -> bool:
    return sent.value is None and view.may_be_removed(sent, session.last_at)
