"""What the checkers of replicated partitions have in common: they go through a history together, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Event, History
from barnabas.sim.replication.checkers.replay import Replay


class Judge(Protocol):
    """Says what was broken, event by event."""

    violations: list[Violation]

    def take(self, replay: Replay, event: Event) -> None:
        """The next event, which the replay has taken already."""

    def end(self, replay: Replay) -> None:
        """That was all."""


def judged(history: History, judges: Sequence[Judge]) -> list[Violation]:
    """What these have to say about a history."""
    replay = Replay(history)
    for event in replay.events():
        for judge in judges:
            judge.take(replay, event)
    for judge in judges:
        judge.end(replay)
    return [violation for judge in judges for violation in judge.violations]
