"""Where a consumer stands in each of its partitions. Pure.

A partition either has a position, or an offset is to be looked up first (by time or by name); it holds what
was fetched until that is used up, and only then more is fetched. Each change of position by the user gets
a new `turn`: what was asked for in an earlier turn is thrown away when it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barnabas.client.fetch_session import Watermarks
from barnabas.client.fetched import Fetched
from barnabas.client.metadata import TopicPartition

NO_EPOCH = -1


class PartitionState:
    """One partition that is read."""

    __slots__ = (
        "fetched",
        "is_looked_up",
        "is_paused",
        "last_epoch",
        "lookup",
        "not_before",
        "nothing",
        "position",
        "turn",
    )

    def __init__(self) -> None:
        self.position: int | None = None
        self.last_epoch = NO_EPOCH  # of the batch before the position, where that is known
        self.lookup: int | None = None  # the time, or name, of the offset to go to
        self.is_looked_up = False  # while that is under way
        self.fetched: Fetched | None = None
        self.nothing: Watermarks | None = None  # there was nothing at the position, when these were
        self.is_paused = False
        self.not_before = 0.0  # asked for no earlier
        self.turn = 0

    def go_to(self, offset: int, last_epoch: int = NO_EPOCH) -> None:
        """Read on from that offset."""
        self._turn()
        self.position, self.last_epoch, self.lookup = offset, last_epoch, None

    def look_up(self, timestamp_ms: int) -> None:
        """Read on from the offset of that time or name, which is to be found first."""
        self._turn()
        self.position, self.last_epoch, self.lookup = None, NO_EPOCH, timestamp_ms

    def brought(self, fetched: Fetched) -> None:
        """Hold what was fetched."""
        self.fetched, self.nothing = fetched, None

    def used(self) -> None:
        """Some of what was fetched has been taken: stand behind it."""
        assert self.fetched is not None
        self.position = self.fetched.position
        if self.fetched.is_used_up:
            self.last_epoch = self.fetched.leader_epoch
            self.fetched = None

    def _turn(self) -> None:
        self.turn += 1
        self.fetched = self.nothing = None
        self.is_looked_up = False
        self.not_before = 0.0


class Assignment:
    """All partitions of a consumer, in the order in which they get their turns."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def __iter__(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        return iter(self._states.items())

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def partitions(self) -> list[TopicPartition]:
        return list(self._states)

    def replace(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Read these from now on; those that are new are given back."""
        before, self._states = self._states, {}
        new = []
        for partition in partitions:
            state = before.get(partition)
            if state is None:
                state = PartitionState()
                new.append(state)
            self._states[partition] = state
        return new

    def wanting(self, now: float) -> list[tuple[TopicPartition, PartitionState]]:
        """The partitions of which something may be fetched now."""
        return [
            (partition, state)
            for partition, state in self._states.items()
            if state.position is not None
            and state.fetched is None
            and not state.is_paused
            and state.not_before <= now
        ]

    def lost(self, now: float) -> dict[TopicPartition, int]:
        """The partitions whose offset is to be looked up now, by what."""
        return {
            partition: state.lookup
            for partition, state in self._states.items()
            if state.lookup is not None and not state.is_looked_up and state.not_before <= now
        }

    def next_time(self, now: float) -> float | None:
        """When a partition that waits may be asked for again."""
        times = [state.not_before for state in self._states.values() if state.not_before > now]
        return min(times, default=None)

    def full(self) -> Sequence[tuple[TopicPartition, PartitionState]]:
        """The partitions that hold something to be taken."""
        return [
            each for each in self._states.items() if each[1].fetched is not None and not each[1].is_paused
        ]

    def to_the_end(self, partition: TopicPartition) -> None:
        """Let the others go first next time."""
        self._states[partition] = self._states.pop(partition)
