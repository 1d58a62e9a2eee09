"""The marker topic: what an exactly-once sink has written, stored in Kafka together with the rows.

Two kinds of records, JSON with a key, in partition 0 of a topic that is only compacted:

    spark-{app}-{task}    {"batch", "rows", "bytes"}: written by a task in the transaction of its rows, so it
                          exists if and only if they do
    spark-{app}-decision  {"batch", "tasks", "prepared"}: written by the driver when the transactions of all
                          tasks of a batch are prepared. From then on the batch is to be committed, by this
                          run or the next: it names the transactions. It is binding as long as all of them
                          are open, or once one is committed: otherwise it came too late, from a driver that
                          another one had replaced, or no run came back in time

A read_committed consumer would have to wait for the open transactions of every other query in the topic. So
the log is read to its end, and the control records in it decide what is committed: a producer's markers are
pending until its COMMIT or ABORT, which compaction keeps as long as a record of the transaction.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NamedTuple

from barnabas.client.admin import Admin, NewTopic, ResourceType
from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.errors import TimedOut, TopicExists, UnknownTopic
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.client.transactions import PreparedTransaction
from barnabas.core.disk import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.records.batch import HEADER_BYTES, BatchHeader
from barnabas.records.control import parse_end_transaction
from barnabas.records.reader import read_batch
from barnabas.spark.driving import seams

PARTITION = 0
# small, and cleaned soon: every run reads all of it at its start
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "60000",  # of control records whose transactions are superseded
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": "1048576",
    "segment.ms": "86400000",
}
_READ_TIMEOUT_MS = 60_000
_REPLICAS = 3


class BadMarkerTopic(BarnabasError):
    """The marker topic has wrong settings."""


class TaskMarker(NamedTuple):
    """The last marker that a task has committed."""

    batch: int
    rows: int
    bytes_: int


class Entry(NamedTuple):
    """A transaction that is to be committed by a decision, and the size of its data."""

    task: int
    producer_id: int
    epoch: int
    version: int
    rows: int
    bytes_: int

    def prepared(self, app: str) -> PreparedTransaction:
        """The transaction in the form that an admin ends."""
        return PreparedTransaction(
            transactional_id(app, self.task), self.producer_id, self.epoch, False, self.version
        )


class Decision(NamedTuple):
    """A batch that is to be committed, and its number of tasks; tasks without rows have no entry."""

    batch: int
    tasks: int
    entries: tuple[Entry, ...]


def transactional_id(app: str, task: int) -> str:
    """The transactional id of a task, which is also the key of its marker."""
    return f"spark-{app}-{task}"


def task_of(app: str, name: str) -> int | None:
    """The task with that transactional id, if it is one of this application's."""
    head, _, tail = name.rpartition("-")
    return int(tail) if head == f"spark-{app}" and tail.isascii() and tail.isdecimal() else None


def given_up_id(app: str, write: str) -> str:
    """The transactional id that exists once a write has been given up."""
    return f"spark-{app}-given-up-{write}"


def decision_key(app: str) -> bytes:
    return f"spark-{app}-decision".encode()


def marker_value(marker: TaskMarker) -> bytes:
    return _json({"batch": marker.batch, "rows": marker.rows, "bytes": marker.bytes_})


def decision_value(decision: Decision) -> bytes:
    return _json({"batch": decision.batch, "tasks": decision.tasks, "prepared": decision.entries})


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class _Mark(NamedTuple):
    """A marker, and the transaction that it is in."""

    task: int
    marker: TaskMarker
    producer_id: int
    epoch: int

    def is_of(self, entry: Entry) -> bool:
        return (self.task, self.producer_id, self.epoch) == (entry.task, entry.producer_id, entry.epoch)


class Markers:
    """The state of one application in the log, read batch by batch. Pure."""

    def __init__(self, app: str) -> None:
        self.app = app
        self._decisions: list[Decision] = []  # on the newest batch that has one; usually one
        self._committed: dict[int, _Mark] = {}  # by task
        self._pending: dict[int, list[_Mark]] = {}  # by producer

    @property
    def committed(self) -> dict[int, TaskMarker]:
        """The last marker that each task has committed."""
        return {task: mark.marker for task, mark in self._committed.items()}

    @property
    def decision(self) -> Decision | None:
        """The last binding decision."""
        return next(filter(self._binds, reversed(self._decisions)), None)

    def _binds(self, decision: Decision) -> bool:
        """Whether a decision is binding: some of it is committed, or all of it can still be."""
        states = [(self._is_committed(each), self.is_open(each)) for each in decision.entries]
        return any(committed for committed, _ in states) or all(is_open for _, is_open in states)

    def _is_committed(self, entry: Entry) -> bool:
        mark = self._committed.get(entry.task)
        return mark is not None and mark.is_of(entry)

    def is_open(self, entry: Entry) -> bool:
        """Whether that transaction has not been ended, up to the read position."""
        return any(mark.is_of(entry) for mark in self._pending.get(entry.producer_id, ()))

    @property
    def newest_batch(self) -> int:
        """The last batch with anything committed or decided; -1 if there is none."""
        decision = self.decision
        batches = [mark.marker.batch for mark in self._committed.values()]
        return max([*batches, -1 if decision is None else decision.batch])

    def has_committed(self, task: int, batch: int) -> bool:
        """Whether a task has committed that batch, or a later one."""
        mark = self._committed.get(task)
        return mark is not None and mark.marker.batch >= batch

    def decided(self, batch: int) -> Decision | None:
        """The decision on that batch."""
        decision = self.decision
        return decision if decision is not None and decision.batch == batch else None

    def undone(self, decision: Decision | None) -> list[Entry]:
        """The decided transactions that are not seen to be committed."""
        if decision is None:
            return []
        return [each for each in decision.entries if not self.has_committed(each.task, decision.batch)]

    def take(self, data: Buffer, first_offset: int) -> None:
        """Apply fetched batches, from that offset on."""
        start, end = 0, len(data)
        while end - start >= HEADER_BYTES:
            header = BatchHeader.parse(data, start)
            if start + header.size_bytes > end:
                return
            if header.last_offset >= first_offset:
                self._take_batch(data, start, header)
            start += header.size_bytes

    def _take_batch(self, data: Buffer, start: int, header: BatchHeader) -> None:
        if header.is_control:
            marker = parse_end_transaction(data, start, header)
            if marker is not None:
                self._end(header.producer_id, marker.is_commit)
            return
        for record in read_batch(data, start, header):
            if record.key == decision_key(self.app) and not header.is_transactional:
                self._decide(_decision(record.value))
            elif header.is_transactional and record.key is not None and record.value is not None:
                task = task_of(self.app, record.key.decode(errors="replace"))
                if task is not None:
                    mark = _Mark(task, _marker(record.value), header.producer_id, header.producer_epoch)
                    self._pending.setdefault(header.producer_id, []).append(mark)

    def _decide(self, decision: Decision | None) -> None:
        if decision is None:
            self._decisions.clear()
        elif not self._decisions or decision.batch > self._decisions[0].batch:
            self._decisions = [decision]
        elif decision.batch == self._decisions[0].batch:
            self._decisions.append(decision)

    def _end(self, producer_id: int, is_commit: bool) -> None:
        for mark in self._pending.pop(producer_id, ()):
            if is_commit:
                self._committed[mark.task] = mark


def _marker(value: bytes) -> TaskMarker:
    found = json.loads(value)
    return TaskMarker(found["batch"], found["rows"], found["bytes"])


def _decision(value: bytes | None) -> Decision | None:
    if value is None:
        return None
    found = json.loads(value)
    return Decision(found["batch"], found["tasks"], tuple(Entry(*each) for each in found["prepared"]))


class MarkerLog:
    """Reads the markers of an application, up to the end of the log at each call."""

    def __init__(self, admin: Admin, bootstrap: str, topic: str, app: str) -> None:
        config = ConsumerConfig(reset=Reset.EARLIEST, client=admin.cluster.config)
        self._admin = admin
        self._consumer = Consumer(*seams(), bootstrap, config)
        self._place = TopicPartition(topic, PARTITION)
        self._markers = Markers(app)
        self._position: int | None = None

    async def __aenter__(self) -> MarkerLog:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._consumer.close()

    async def read(self) -> Markers:
        """Read the markers; later calls continue at the last position."""
        consumer, place = self._consumer, self._place
        if self._position is None:
            self._position = await self._offset(EARLIEST)
            consumer.assign([place])
            consumer.seek(place, self._position)
        end = await self._offset(LATEST)
        if end < self._position:  # the topic was created again, and has none of the old markers
            self._markers, self._position = Markers(self._markers.app), None
            return await self.read()
        while self._position < end:
            answers = await consumer.poll_batches(_READ_TIMEOUT_MS, unseen=True)
            if not answers:
                raise TimedOut(
                    f"the marker topic {place.topic} cannot be read up to {end}; is its leader up?"
                )
            for fetched in answers:
                self._markers.take(fetched.data, self._position)
                self._position = max(self._position, fetched.next_offset)
                if not fetched.data and fetched.high_watermark >= end:  # the tail is compacted away
                    self._position = max(self._position, end)
        return self._markers

    async def _offset(self, at: int) -> int:
        return (await self._admin.list_offsets({self._place: at}))[self._place].offset


async def ensure_topic(admin: Admin, topic: str) -> None:
    """Create the marker topic if it does not exist; BadMarkerTopic if it has another cleanup policy."""
    try:
        found = await admin.describe_configs(ResourceType.TOPIC, topic, ["cleanup.policy"])
    except UnknownTopic:
        replicas = min(_REPLICAS, max(1, len((await admin.describe_cluster()).brokers)))
        settings = {**TOPIC_SETTINGS, "min.insync.replicas": str(max(1, replicas - 1))}
        wanted = NewTopic(topic, 1, replicas, settings)
        with suppress(TopicExists):  # another task was faster
            await admin.create_topics([wanted])
        return
    policy = found["cleanup.policy"].value
    if policy != "compact":
        raise BadMarkerTopic(
            f"topic {topic} has cleanup.policy={policy}: a marker topic must be compacted, nothing else, or "
            f"it forgets what was written. Set cleanup.policy=compact, or name another in markerTopic"
        )
