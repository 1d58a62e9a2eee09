"""Which partitions of a follower's fetch session have to be read: those with news for the follower.

Most partitions of a follower are at rest: it is in the ISR, holds all that the leader has, and was told the
high watermark and the start of the log. Such a partition is not read again before something happens to it. It
rests at its marks (`Marks.resting`), where an append, a new high watermark, another role or a deletion wakes
it; a request that names it does so as well. So a request costs what is written, not what is followed.

A follower still holds all of a partition at rest when it sends its next requests in the session, which do not
name that partition. When the partition is woken, the follower counts as caught up at its last request.

A change that wakes nothing (retention deletes a segment) is found by reading all partitions from time to
time. All are read, too, when the registration of the follower's broker changes, since requests of an earlier
one are refused.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.broker.replicas.fetch_sessions import Known
    from barnabas.broker.replicas.purgatory import LongPoll
    from barnabas.broker.replicas.replica import Replica

READ_ALL_S = 5.0


class FollowerReads:
    """The partitions of one follower's session that are due to be read, in this order."""

    __slots__ = ("_node_id", "_read_all_at", "_registration", "asked_at", "due", "poll")

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._read_all_at = float("-inf")
        self._registration: object = None
        self.asked_at = float("-inf")  # when the follower last asked
        self.due: dict[Known, None] = {}
        self.poll: LongPoll | None = None  # the request that waits

    def asked(self, now: float, registration: object, known: Iterable[Known]) -> None:
        """The follower asks for what it asked for before; `registration` is what is known of its broker."""
        if now - self._read_all_at >= READ_ALL_S or registration != self._registration:
            self._read_all_at, self._registration = now, registration
            self.due |= dict.fromkeys(known)
        self.asked_at = now

    def named(self, known: Known) -> None:
        """The request names a partition."""
        self._leave(known)
        self.due[known] = None

    def forget(self, known: Known) -> None:
        """The follower does not ask for a partition any more."""
        self._leave(known)
        self.due.pop(known, None)

    def told(self, known: Known, replica: Replica | None) -> None:
        """The follower was answered what this replica has; None where that is not all, or an error."""
        self._leave(known)
        if replica is not None and replica.has_told_all(self._node_id, known):
            self.due.pop(known, None)
            known.resting = replica.marks.resting[self._node_id] = Resting(self, known, replica)

    def read_last(self, known: Known) -> None:
        """Others come first, the next time."""
        if known in self.due:
            self.due[known] = self.due.pop(known)

    @contextmanager
    def waiting(self, poll: LongPoll) -> Iterator[None]:
        """While a request waits: partitions that are woken count for it."""
        self.poll = poll
        try:
            yield
        finally:
            if self.poll is poll:
                self.poll = None

    def _leave(self, known: Known) -> None:
        resting, known.resting = known.resting, None
        if resting is not None:
            resting.leave(self._node_id)


class Resting:
    """A partition at rest."""

    __slots__ = ("_known", "_reads", "_replica")

    def __init__(self, reads: FollowerReads, known: Known, replica: Replica) -> None:
        self._reads = reads
        self._known = known
        self._replica = replica

    def wake(self, node_id: int, new_bytes: int) -> None:
        """Something has happened, perhaps that so many bytes were appended; it does not rest any more."""
        reads, known, replica = self._reads, self._known, self._replica
        if known.resting is not self:
            return
        known.resting = None
        replica.follower_was_caught_up(node_id, reads.asked_at)
        reads.due[known] = None
        if reads.poll is not None:
            reads.poll.watch_end(replica.marks)
            reads.poll.arrived(new_bytes)

    def leave(self, node_id: int) -> None:
        """Wait for nothing any more."""
        resting = self._replica.marks.resting
        if resting.get(node_id) is self:
            del resting[node_id]
