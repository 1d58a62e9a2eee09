"""The same topics in every cluster, offset for offset, for reads that are compared: everything that a record
can be, in all the ways that offsets can have gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer, TopicPartition, admin

from tests.support.clients import DEADLINE_S, Confluent, Message, create_topic, until

# compaction soon, and nothing by itself
OPEN_MS = 7_200_000  # a transaction stays open for longer than all tests take
CLUSTER_SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "transaction.max.timeout.ms": str(OPEN_MS),
}
TIME_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACTED_LEFT = [*range(210, 220), 220]
TRIMMED_TO = 40


@contextmanager
def topics(bootstrap: str) -> Iterator[None]:
    """Create and fill them all; one transaction stays open for as long as this lasts."""
    _everything(bootstrap)
    create_topic(bootstrap, "empty", 2, retention_ms="-1")
    _appended(bootstrap)
    _compacted(bootstrap)
    _trimmed(bootstrap)
    with _transactions(bootstrap):
        yield


def _everything(bootstrap: str) -> None:
    create_topic(bootstrap, "everything", 3, retention_ms="-1")
    create_topic(bootstrap, "every.other", 1, retention_ms="-1")
    messages = [_message(number) for number in range(500)]
    for index, codec in enumerate(CODECS):
        part = messages[index * 100 : (index + 1) * 100]
        Confluent().produce(bootstrap, "everything", part, codec=codec)
    others = [Message(b"%d" % number, timestamp_ms=TIME_MS + number) for number in range(20)]
    Confluent().produce(bootstrap, "every.other", others)


def _message(number: int) -> Message:
    """A record of every kind: times go up with the number, but for a few that are late."""
    headers: Any = ()
    if number % 3 == 0:
        headers = (("número ☃", b"%d" % number), ("twice", None), ("twice", b""), ("", b"\x00\xff"))
    key = None if number % 7 == 0 else b"" if number % 17 == 0 else f"schlüssel {number % 50}".encode()
    value = None if number % 11 == 0 else b"" if number % 13 == 0 else f"wert ☂ {number}".encode() * 5
    late_ms = 500 if number % 50 == 49 else 0
    return Message(value, key, headers, TIME_MS + 10 * number - late_ms, number % 3)


def _appended(bootstrap: str) -> None:
    create_topic(bootstrap, "appended", 1, message_timestamp_type="LogAppendTime")
    Confluent().produce(
        bootstrap, "appended", [Message(b"%d" % n, timestamp_ms=TIME_MS + n) for n in range(30)]
    )


def _compacted(bootstrap: str) -> None:
    """A segment that compaction empties, one of which ten records are left, and one that is still written."""
    create_topic(
        bootstrap,
        "compacted",
        1,
        cleanup_policy="compact",
        segment_ms="60000",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="3600000000",
    )
    for first, count, time_ms in ((0, 200, 0), (200, 20, 100_000), (220, 1, 200_000)):
        part = [
            Message(b"%d" % n, b"%d" % (n % 10), timestamp_ms=TIME_MS + time_ms + n)
            for n in range(first, first + count)
        ]
        Confluent().produce(bootstrap, "compacted", part)

    def is_compacted() -> bool:
        found = Confluent().consume(bootstrap, "compacted", 1)
        return found[0].offset == COMPACTED_LEFT[0]

    until(is_compacted, "compaction")


def _trimmed(bootstrap: str) -> None:
    create_topic(bootstrap, "trimmed", 1, retention_ms="-1")
    sent = [Message(b"%d" % n, timestamp_ms=TIME_MS + n) for n in range(100)]
    Confluent().produce(bootstrap, "trimmed", sent)
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    wanted = TopicPartition("trimmed", 0, TRIMMED_TO)
    next(iter(client.delete_records([wanted]).values())).result(DEADLINE_S)


@contextmanager
def _transactions(bootstrap: str) -> Iterator[None]:
    """Committed, aborted, and in partition 1 one that is open; all of partition 0 is ended, by an abort."""
    create_topic(bootstrap, "transactional", 2, retention_ms="-1")
    producer = _transactional(bootstrap, "ends")
    for number in range(12):
        producer.begin_transaction()
        for each in range(10):
            value = f"{number} {each}".encode()
            producer.produce("transactional", value, partition=each % 2, timestamp=TIME_MS + number)
        producer.flush(DEADLINE_S)
        if number % 3 == 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    still_open = _transactional(bootstrap, "stays open")
    still_open.begin_transaction()
    still_open.produce("transactional", b"open", partition=1, timestamp=TIME_MS + 20)
    still_open.flush(DEADLINE_S)
    Confluent().produce(
        bootstrap, "transactional", [Message(b"plain", timestamp_ms=TIME_MS + 21, partition=1)]
    )
    yield
    still_open.purge()  # and no abort: the coordinator may have given up waiting for one


def _transactional(bootstrap: str, name: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1}
    producer = Producer({**settings, "transaction.timeout.ms": OPEN_MS})
    producer.init_transactions(DEADLINE_S)
    return producer
