"""When the faults have ended every partition is led, every ISR is whole again, and every move ends.

Counted from the end of the faults, by the metadata as it was published; from then on it stays so. A machine
without power takes up to eight seconds to come back, a broker whose old session is not over waits for that,
nine more, and a replica catches up.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Event, FaultsEnded
from barnabas.sim.replication.checkers.replay import Key, Replay
from barnabas.sim.replication.events import PartitionSeen

NAME = "healing"
LED_S = 30.0
WHOLE_S = 45.0
MOVED_S = 45.0

PROMISES: tuple[tuple[float, Callable[[PartitionSeen], str]], ...] = (
    (LED_S, lambda seen: "" if seen.leader >= 0 else "has no leader"),
    (WHOLE_S, lambda seen: "" if set(seen.replicas) <= set(seen.isr) else f"has the ISR {seen.isr}"),
    (
        MOVED_S,
        lambda seen: (
            f"is moving, adding {seen.adding}, removing {seen.removing}"
            if seen.adding or seen.removing
            else ""
        ),
    ),
)


class Healing:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._ended_at: float | None = None
        self._states: dict[Key, PartitionSeen] = {}

    def take(self, replay: Replay, event: Event) -> None:
        if isinstance(event, FaultsEnded):
            self._ended_at = event.at
        elif isinstance(event, PartitionSeen):
            key = (event.topic_id, event.partition)
            before = self._states.get(key)
            if before is not None:
                self._in_force_until(before, event.at)
            self._states[key] = event

    def end(self, replay: Replay) -> None:
        for key, seen in self._states.items():
            if key in replay.partitions:
                self._in_force_until(seen, float("inf"))

    def _in_force_until(self, seen: PartitionSeen, until: float) -> None:
        if self._ended_at is None:
            return
        for bound_s, wrong in PROMISES:
            late_at = self._ended_at + bound_s
            said = wrong(seen)
            if said and until > late_at:
                what = (
                    f"{seen.topic}-{seen.partition} {said} since {seen.at:.3f} s, and the faults ended at "
                    f"{self._ended_at:.3f} s"
                )
                self.violations.append(Violation(NAME, max(late_at, seen.at), what))
