"""What can happen to a partition of two replicas while one of them is away, each as a topic of its own.

`leader` stays, `other` is away and comes back. A story begins while both are there, goes on while `other` is
away, and is judged when it is in sync again: it leads, gives what is expected, and is written to; then
`leader` leads again, and gives that, too. Which of the two is of which kind is not known here.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from confluent_kafka import Producer

from tests.interop.mixed_replication_acts import PATIENCE_S, ReplicationActs
from tests.support.mixed_node import ClusterFailed, MixedNode

RECORDS = 30
IN_A_TRANSACTION = 5
ATTEMPTS = 10


def values(word: str, count: int = RECORDS) -> list[bytes]:
    return [b"%d=%s" % (number, word.encode()) for number in range(count)]


class Story:
    """One topic."""

    settings: ClassVar[Mapping[str, str | int]] = {}

    def __init__(self, acts: ReplicationActs, leader: int, other: int) -> None:
        self.acts = acts
        self.leader, self.other = leader, other
        self.name = f"{type(self).__name__.lower()}-{leader}"
        self.expected: dict[int, bytes] = {}
        acts.create(self.name, [leader, other], **self.settings)
        self.begin()

    def begin(self) -> None:
        """While both are there."""
        self.send("both")

    def away(self) -> None:
        """While `other` is away."""
        self.send("one")

    def back(self) -> None:
        """While both are there again, and in sync."""
        self.check(self.other)
        self.send("again")
        self.check(self.leader)

    def send(self, word: str) -> None:
        sent = values(word)
        self.expected |= zip(self.acts.send(self.name, sent), sent, strict=True)

    def check(self, at: int) -> None:
        """That replica leads, and gives what is expected."""
        self.acts.check(self.name, at, self.expected)

    def remove_files(self) -> None:
        """Of the one that is away."""
        shutil.rmtree(self.acts.cluster.nodes[self.other].data / f"{self.name}-0")


class Returning(Story):
    """It fetches what it has missed."""


class Emptied(Story):
    """Its files are gone; it fetches everything again."""

    def away(self) -> None:
        super().away()
        self.remove_files()


class Started(Story):
    """Records are deleted: its log start offset follows, both while it is there and when it comes back."""

    def begin(self) -> None:
        super().begin()
        self.delete_before(RECORDS // 2)

    def away(self) -> None:
        super().away()
        self.delete_before(RECORDS + RECORDS // 2)  # behind the end of what it has

    def back(self) -> None:
        self.check(self.other)
        self.delete_before(2 * RECORDS - 1)
        super().back()

    def delete_before(self, offset: int) -> None:
        self.acts.delete_records(self.name, offset)
        self.expected = {at: value for at, value in self.expected.items() if at >= offset}


class StartedAndEmptied(Started):
    """The same, with nothing left of it: it begins where the leader's log begins now."""

    def away(self) -> None:
        super().away()
        self.remove_files()


class Recreated(Story):
    """The topic is deleted, and one of the same name is created: nothing of the old one is left."""

    def away(self) -> None:
        self.acts.delete(self.name)
        self.acts.create(self.name, [self.leader, self.other], **self.settings)
        self.expected = {}
        super().away()


class Compacted(Story):
    """The leader's log has gaps before the other one fetches it from its beginning."""

    settings: ClassVar[Mapping[str, str | int]] = {
        "cleanup_policy": "compact",
        "segment_ms": 100,
        "min_cleanable_dirty_ratio": "0.01",
    }

    def begin(self) -> None:
        self.acts.compacted.add(self.name)
        super().begin()

    def away(self) -> None:
        for word in ("superseded", "too", "last"):
            self.send(word)
        self.acts.cluster.wait_for(f"{self.name} compacted", self._is_compacted)
        self.remove_files()

    def _is_compacted(self) -> bool | None:
        self.send("more")
        return len(self.acts.read(self.name)) < len(self.expected) - 2 * RECORDS or None

    def check(self, at: int) -> None:
        """The last value of each key, at its offset; some that are superseded may be there."""
        self.acts.lead(self.name, at)
        found = self.acts.read(self.name)
        assert found.items() <= self.expected.items(), f"{self.name} at {at}"
        assert _last(found) == _last(self.expected), f"{self.name} at {at}"


class Transactional(Story):
    """Transactions are open when the other goes and when it comes back; markers are replicated, and each
    replica tells what was aborted."""

    def begin(self) -> None:
        self.open: dict[Producer, dict[int, bytes]] = {}
        self.producer, self.late = self._producer("first"), self._producer("late")
        self.write(self.producer, "committed").commit(self.producer)
        self.write(self.producer, "aborted").abort(self.producer)
        self.write(self.producer, "open")

    def away(self) -> None:
        self.commit(self.producer)
        self.write(self.producer, "aborted alone").abort(self.producer)
        self.write(self.late, "late")

    def back(self) -> None:
        self.check(self.other)
        self.abort(self.late)
        self.write(self.producer, "again").commit(self.producer)
        self.check(self.leader)

    def check(self, at: int) -> None:
        """What is committed, up to the first record of a transaction that is open."""
        stable = min((min(each) for each in self.open.values()), default=sys.maxsize)
        expected = {offset: value for offset, value in self.expected.items() if offset < stable}
        self.acts.check(self.name, at, expected, isolation="read_committed")

    def _producer(self, word: str) -> Producer:
        settings = {"bootstrap.servers": self.acts.bootstrap, "transactional.id": f"{self.name}-{word}"}
        producer = Producer(settings | {"log_level": 0, "transaction.timeout.ms": 300_000})
        producer.init_transactions(PATIENCE_S)
        return producer

    def write(self, producer: Producer, word: str) -> Transactional:
        """Begin a transaction with some records, and leave it open."""
        reports: list[Any] = []
        producer.begin_transaction()
        for value in values(word, IN_A_TRANSACTION):
            producer.produce(self.name, value, partition=0, on_delivery=lambda *told: reports.append(told))
        assert producer.flush(PATIENCE_S) == 0
        assert [error for error, _ in reports if error is not None] == []
        self.open[producer] = {message.offset(): message.value() for _, message in reports}
        return self

    def commit(self, producer: Producer) -> None:
        producer.commit_transaction(PATIENCE_S)
        self.expected |= self.open.pop(producer)

    def abort(self, producer: Producer) -> None:
        producer.abort_transaction(PATIENCE_S)
        del self.open[producer]


class Diverged(Story):
    """The leader has records that were never committed when the other one leads: it truncates them. Nobody
    has to be away for that, but the other is stopped while they are written."""

    def begin(self) -> None:
        super().begin()
        if not any(self._diverge() for _ in range(ATTEMPTS)):
            raise ClusterFailed(f"{self.name}: the other one has always got everything")

    def _diverge(self) -> bool:
        """Whether it had to truncate: the other one may have been sent the records before it stopped."""
        acts, follower = self.acts, self.acts.cluster.nodes[self.other]
        acts.lead(self.name, self.leader)
        acts.reassign(self.name, [self.other, self.leader])
        follower.pause()
        lost = acts.send(self.name, values("lost", 4), acks=1)
        acts.elect(self.name)
        follower.resume()
        acts.wait_for_state(self.name, self.other, [self.leader, self.other])
        sent = values("kept", 2)
        offsets = acts.send(self.name, sent)
        self.expected = acts.read(self.name)
        assert self.expected.items() >= set(zip(offsets, sent, strict=True))
        acts.lead(self.name, self.leader)
        return offsets[0] <= lost[-1]


def _last(records: Mapping[int, bytes]) -> dict[bytes, tuple[int, bytes]]:
    """The last record of each key."""
    return {value.partition(b"=")[0]: (offset, value) for offset, value in sorted(records.items())}


def tell(
    acts: ReplicationActs,
    kinds: Sequence[type[Story]],
    leader: int,
    other: int,
    end: Callable[[MixedNode], None],
) -> None:
    """Stories of these kinds together; `end` is how the other broker goes."""
    stories = [each(acts, leader, other) for each in kinds]
    node = acts.cluster.nodes[other]
    end(node)
    for each in stories:
        acts.wait_for_state(each.name, leader, [leader])
    for each in stories:
        each.away()
    node.start_again()
    for each in stories:
        acts.wait_for_state(each.name, leader, [leader, other])
    for each in stories:
        each.back()


STORIES = (Returning, Emptied, Started, StartedAndEmptied, Recreated, Compacted, Transactional, Diverged)
