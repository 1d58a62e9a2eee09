"""Chooses the partitions of a follower's fetch session that have to be read: those with news for the
follower.

Most partitions of a follower are at rest: the follower is in the ISR, has the leader's whole log, and was
told the high watermark and the log start offset. A partition at rest is not read until it is woken. It is
registered with the partition's marks (`Marks.resting`); an append, a new high watermark, another role or a
deletion wakes it, and so does a request that names it. So the cost of a request depends on the partitions
that are written, not on the number that are followed.

A follower still has the whole log of a partition at rest when it sends its next requests in the session,
which do not name that partition. When the partition is woken, the follower counts as caught up at its last
request.

A follower that has to ask for a new partition at once gives up its request and begins another session. The
request that was given up may end after the first requests of the new session. It does not change what is at
rest in the new session.

Some changes wake nothing (retention deletes a segment). They are found by reading all partitions from time to
time. All partitions are also read when the registration of the follower's broker changes, since requests of
an earlier registration are refused.
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
        """A request of the follower's session; `registration` is its broker's registration in the
        metadata."""
        if now - self._read_all_at >= READ_ALL_S or registration != self._registration:
            self._read_all_at, self._registration = now, registration
            self.due |= dict.fromkeys(known)
        self.asked_at = now

    def named(self, known: Known) -> None:
        """The request names this partition."""
        self._leave(known)
        self.due[known] = None

    def forget(self, known: Known) -> None:
        """The follower does not fetch this partition any more."""
        self._leave(known)
        self.due.pop(known, None)

    def told(self, known: Known, replica: Replica | None) -> None:
        """The response contains the state of this replica; None where it has only part of it, or an error."""
        self._leave(known)
        if replica is None or not replica.has_told_all(self._node_id, known):
            return
        other = replica.marks.resting.get(self._node_id)
        if other is None or other.asked_at < self.asked_at:
            self.due.pop(known, None)
            known.resting = replica.marks.resting[self._node_id] = Resting(self, known, replica)

    def read_last(self, known: Known) -> None:
        """Read this partition after the others in the next request."""
        if known in self.due:
            self.due[known] = self.due.pop(known)

    @contextmanager
    def waiting(self, poll: LongPoll) -> Iterator[None]:
        """While a request waits: woken partitions count for it."""
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
    """A partition at rest in a follower's session."""

    __slots__ = ("_known", "_reads", "_replica")

    def __init__(self, reads: FollowerReads, known: Known, replica: Replica) -> None:
        self._reads = reads
        self._known = known
        self._replica = replica

    @property
    def asked_at(self) -> float:
        """When the follower last asked, in the session of this partition."""
        return self._reads.asked_at

    def wake(self, node_id: int, new_bytes: int) -> None:
        """End the rest because of a change; `new_bytes` were appended."""
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
        """Remove this entry from the replica's marks."""
        resting = self._replica.marks.resting
        if resting.get(node_id) is self:
            del resting[node_id]
