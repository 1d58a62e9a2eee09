"""The metadata of a cluster from offset to offset, put together from what all nodes have published.

A state is in force from its commit to that of the next one. When it was committed nobody saw; the first node
that published it, or a later one, had it by then. So `committed_at` is the latest moment of the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.sim.cluster.events import Answered, Asked, ImageSeen, TopicSeen
from barnabas.sim.history import History


class State(NamedTuple):
    """The metadata at an offset, in force until `replaced_at` at the latest."""

    image: ImageSeen
    committed_at: float
    replaced_at: float

    def topic(self, name: str) -> TopicSeen | None:
        return next((each for each in self.image.topics if each.name == name), None)


class Change(NamedTuple):
    """A question of an admin, and its answer."""

    asked: Asked
    answered: Answered


class Timeline:
    """All states, in the order of their offsets; the first one is that of the empty cluster."""

    def __init__(self, history: History) -> None:
        images: dict[int, ImageSeen] = {-1: ImageSeen(0.0, 0, -1, -1, "", (), ())}
        for seen in history.of(ImageSeen):
            images.setdefault(seen.offset, seen)
        offsets = sorted(images)
        times: list[float] = []
        latest = float("inf")
        for offset in reversed(offsets):
            latest = min(latest, images[offset].at)
            times.append(latest)
        times.reverse()
        ends = [*times[1:], float("inf")]
        self.states = [State(images[each], *when) for each, *when in zip(offsets, times, ends, strict=True)]

    def steps(self) -> Iterator[tuple[State, State]]:
        """Each state with the next one."""
        return zip(self.states, self.states[1:], strict=False)

    def is_ever(self, since: float, until: float, is_true: Callable[[State], bool]) -> bool:
        """Whether something is true of a state that may have been in force at some moment between these."""
        return any(
            is_true(each) for each in self.states if each.committed_at <= until and each.replaced_at >= since
        )


def changes(history: History) -> list[Change]:
    """The changes that were answered, in the order of the answers."""
    asked = {each.number: each for each in history.of(Asked)}
    return [Change(asked[each.number], each) for each in history.of(Answered)]
