"""Counters of a node's traffic: by topic, by listener, and between replicas.

Plain numbers that only go up, on objects that the hot path uses anyway: an append costs two additions. They
are always counted, whether or not the node serves metrics, and nothing depends on them.
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError, wire_error


def _codes(*names: str) -> frozenset[int]:
    return frozenset(wire_error(name).code for name in names)


# Errors that clients meet in normal operation: as in Kafka, they are no failures of the broker.
_USUAL = ("UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR")
_USUAL_PRODUCES = _codes(*_USUAL, "MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "CORRUPT_MESSAGE")
_USUAL_FETCHES = _codes(
    *_USUAL, "OFFSET_OUT_OF_RANGE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "INCONSISTENT_TOPIC_ID"
)
_TOO_LARGE = wire_error("MESSAGE_TOO_LARGE").code


class TopicTraffic:
    """One topic, all its partitions on this node; a request counts once for each partition."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produces = 0
        self.failed_produces = 0
        self.fetches = 0
        self.failed_fetches = 0

    def refused_produce(self, error: BarnabasError, size_bytes: int) -> None:
        """Count a batch that was not appended."""
        if error.wire.code == _TOO_LARGE:
            self.bytes_rejected += size_bytes
        elif error.wire.code not in _USUAL_PRODUCES:
            self.failed_produces += 1

    def refused_fetch(self, error: BarnabasError) -> None:
        """Count a partition that was not read."""
        if error.wire.code not in _USUAL_FETCHES:
            self.failed_fetches += 1

    def take(self, other: TopicTraffic) -> None:
        """Add the counts of another topic, which is deleted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class ReplicationTraffic:
    """Bytes exchanged between leaders and followers of this node and other nodes, over all topics."""

    __slots__ = ("bytes_in", "bytes_out")

    def __init__(self) -> None:
        self.bytes_in = 0  # fetched from leaders, and appended
        self.bytes_out = 0  # sent to followers


class ListenerTraffic:
    """The connections of one listener."""

    __slots__ = ("closed", "created", "expired", "turned_away")

    def __init__(self) -> None:
        self.created = 0
        self.closed = 0
        self.expired = 0  # of the closed ones: idle for too long
        self.turned_away = 0  # never created, since there were too many
