"""The position of a consumer in each of its partitions. Pure.

A partition either has a position, or its offset must be looked up first (by time or by name). It holds the
records of one fetch until they are used up, and only then more are fetched. Each change of position by the
user increments `turn`: responses to requests of an earlier turn are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barnabas.client.fetch_session import Watermarks
from barnabas.client.fetched import Fetched
from barnabas.client.metadata import TopicPartition

NO_EPOCH = -1


class PartitionState:
    """The state of one assigned partition."""

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
        self.last_epoch = NO_EPOCH  # of the batch before the position, if known
        self.lookup: int | None = None  # the time, or special value, of the offset to look up
        self.is_looked_up = False  # while the look-up is under way
        self.fetched: Fetched | None = None
        self.nothing: Watermarks | None = None  # of a fetch that found nothing at the position
        self.is_paused = False
        self.not_before = 0.0  # earliest time of the next request
        self.turn = 0

    def go_to(self, offset: int, last_epoch: int = NO_EPOCH) -> None:
        """Continue at that offset."""
        self._turn()
        self.position, self.last_epoch, self.lookup = offset, last_epoch, None

    def look_up(self, timestamp_ms: int) -> None:
        """Continue at the offset of that time or special value, which must be looked up first."""
        self._turn()
        self.position, self.last_epoch, self.lookup = None, NO_EPOCH, timestamp_ms

    def brought(self, fetched: Fetched) -> None:
        """Keep the fetched records."""
        self.fetched, self.nothing = fetched, None

    def used(self) -> None:
        """Move the position behind the fetched records that were taken."""
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
    """All partitions of a consumer, in the order in which they are served."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def __iter__(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        return iter(self._states.items())

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def partitions(self) -> list[TopicPartition]:
        return list(self._states)

    def replace(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Replace the partitions; returns the states of new ones."""
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
        """The partitions to fetch now."""
        return [
            (partition, state)
            for partition, state in self._states.items()
            if state.position is not None
            and state.fetched is None
            and not state.is_paused
            and state.not_before <= now
        ]

    def lost(self, now: float) -> dict[TopicPartition, int]:
        """The partitions whose offset must be looked up now, with the time or special value."""
        return {
            partition: state.lookup
            for partition, state in self._states.items()
            if state.lookup is not None and not state.is_looked_up and state.not_before <= now
        }

    def next_time(self, now: float) -> float | None:
        """The next time at which a waiting partition may be requested."""
        times = [state.not_before for state in self._states.values() if state.not_before > now]
        return min(times, default=None)

    def full(self) -> Sequence[tuple[TopicPartition, PartitionState]]:
        """The partitions with fetched records to take."""
        return [
            each for each in self._states.items() if each[1].fetched is not None and not each[1].is_paused
        ]

    def to_the_end(self, partition: TopicPartition) -> None:
        """Serve the other partitions first next time."""
        self._states[partition] = self._states.pop(partition)
