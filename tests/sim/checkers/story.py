"""Small histories told in a few words: one topic "t" with one partition, times in seconds."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.sim.checkers import Violation
from barnabas.sim.history import (
    Acked,
    Crash,
    Event,
    Failed,
    Fault,
    FinalRead,
    History,
    Kept,
    Polled,
    Read,
    Sent,
    SessionBegan,
    SessionEnded,
    TopicFacts,
    TopicMade,
)

TOPIC = "t"


class Story:
    """Every method adds an event and gives the story back; a record's value is its mark."""

    def __init__(self, facts: TopicFacts | None = None) -> None:
        self.facts = facts or TopicFacts()
        self.events: list[Event] = [TopicMade(0.0, TOPIC, self.facts)]
        self._sent: dict[str, Sent] = {}

    def add(self, *events: Event) -> Story:
        self.events += events
        return self

    def sent(
        self,
        at: float,
        mark: str,
        *,
        key: bytes | None = None,
        is_tombstone: bool = False,
        is_idempotent: bool = True,
        time_ms: int | None = None,
    ) -> Story:
        producer, _, number = mark.partition("/")
        value = None if is_tombstone else mark.encode()
        time_ms = round(at * 1000) if time_ms is None else time_ms
        sent = Sent(at, mark, producer, int(number), is_idempotent, TOPIC, 0, key, value, time_ms)
        self._sent[mark] = sent
        return self.add(sent)

    def acked(self, at: float, mark: str, offset: int) -> Story:
        return self.add(Acked(at, mark, TOPIC, 0, offset, self._sent[mark].timestamp_ms))

    def written(
        self, at: float, mark: str, offset: int, *, key: bytes | None = None, is_tombstone: bool = False
    ) -> Story:
        """Handed over then, and acknowledged a tenth of a second later."""
        return self.sent(at, mark, key=key, is_tombstone=is_tombstone).acked(at + 0.1, mark, offset)

    def failed(self, at: float, mark: str, error: str = "TimedOut") -> Story:
        return self.add(Failed(at, mark, error))

    def began(self, at: float, session: str, start_offset: int = 0) -> Story:
        return self.add(SessionBegan(at, session, "reader", TOPIC, 0, start_offset))

    def reads(self, at: float, session: str, marks: dict[int, str], *, epoch: int = 0) -> Story:
        """Given these marks by offset; the position is then past the last."""
        for offset, mark in marks.items():
            self.add(Read(at, session, TOPIC, 0, self.kept(offset, mark, epoch)))
        return self.add(Polled(at, session, TOPIC, 0, max(marks) + 1))

    def ended(self, at: float, session: str, position: int) -> Story:
        return self.add(SessionEnded(at, session, TOPIC, 0, position, True))

    def power_lost(self, at: float) -> Story:
        return self.add(Crash(at, "power"))

    def crashed(self, at: float) -> Story:
        return self.add(Crash(at, "process"))

    def clock_jumped(self, at: float) -> Story:
        return self.add(Fault(at, "clock-jump", "+3600000 ms"))

    def final(
        self, at: float, marks: dict[int, str], *, start: int = 0, end: int | None = None, epoch: int = 0
    ) -> Story:
        records = tuple(self.kept(offset, mark, epoch) for offset, mark in marks.items())
        end = max(marks, default=-1) + 1 if end is None else end
        return self.add(FinalRead(at, at - 0.1, TOPIC, 0, start, end, records))

    def kept(self, offset: int, mark: str, epoch: int = 0) -> Kept:
        sent = self._sent[mark]
        return Kept(offset, sent.timestamp_ms, sent.key, sent.value, mark, epoch)

    def judged(self, check: Callable[[History], list[Violation]]) -> list[Violation]:
        return check(History(events=self.events))


def only(violations: list[Violation]) -> Violation:
    """The one there is."""
    (violation,) = violations
    return violation
