"""A transaction coordinator's shard on the bench: virtual time, its log as bytes, and what it wants sent.

Every record that it writes is encoded, checked against the table of states, and replayed, as its host would
do it; `reload` throws the shard away and replays the log into another, whole or compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.coordination.effects import Effects, Markers, Now, Producer, TopicPartition
from barnabas.coordination.records import KeyedRecord, decode_record, encode_key, encode_value
from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.describe_transactions import TransactionState
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.transactions.records import KINDS, TransactionLogKey
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.shard import TransactionShard
from barnabas.transactions.states import AT_REST, NEXT
from barnabas.transactions.transaction import NeedsProducerId, Transaction, record_of, transaction_of

NOBODY = Producer(-1, -1)
OLD, NEW = 1, 5  # versions of EndTxn: of librdkafka, and of Java 4
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)

Logged = tuple[bytes, bytes | None]


class Bench:
    """One shard, and whoever runs it."""

    def __init__(self, level: int = 2, **settings: int) -> None:
        self.settings = TransactionSettings(transaction_version=level, **settings)
        self.now = Now(1_700_000_000_000, 50.0)
        self.log: list[Logged] = []
        self.sent: list[Markers] = []
        self.next_producer_id = 1000
        self.shard = TransactionShard(lambda: self.settings)
        self.carry_out(self.shard.loaded(self.now))

    # ---- what a host does

    def carry_out(self, effects: Effects) -> dict[object, Any]:
        """Write, replay, answer, send."""
        for write in effects.writes:
            assert write.producer is None
            for record in write.records:
                self.write(record)
        self.sent.extend(effects.markers)
        return dict(effects.replies)

    def write(self, record: KeyedRecord) -> None:
        """One record into the log, and replayed."""
        assert isinstance(record.key, TransactionLogKey)
        before = self.shard.transactions.get(record.key.transactional_id)
        if before is not None:
            if record.value is None:
                assert before.state in AT_REST
            else:
                assert transaction_of(record).state in NEXT[before.state]
        self.log.append((encode_key(record.key), encode_value(record)))
        self.shard.replay(record)

    def put(self, name: str, transaction: Transaction) -> None:
        """A state from nowhere, as a log may hold it."""
        record = record_of(name, transaction, self.settings.transaction_version)
        self.log.append((encode_key(record.key), encode_value(record)))
        self.shard.replay(record)

    def reload(self, *, compacted: bool = False) -> None:
        """The process dies, with all that was on its way; another one loads."""
        self.shard = self.replayed(compact(self.log) if compacted else self.log)
        self.sent = []
        self.carry_out(self.shard.loaded(self.now))

    def replayed(self, log: Sequence[Logged]) -> TransactionShard:
        """A shard that knows what a log says."""
        shard = TransactionShard(lambda: self.settings)
        for key, value in log:
            shard.replay(decode_record(KINDS, key, value))
        return shard

    def advance(self, ms: int) -> None:
        """Time goes by, with whatever becomes due."""
        until = Now(self.now.wall_ms + ms, self.now.seconds + ms / 1000)
        while (due := self.shard.next_due_seconds()) is not None and due <= until.seconds:
            passed = max(0.0, due - self.now.seconds)
            self.now = Now(self.now.wall_ms + round(passed * 1000), max(due, self.now.seconds))
            self.carry_out(self.shard.tick(self.now))
        self.now = until

    def mark(self) -> None:
        """Every partition gets its markers."""
        while self.sent:
            self.carry_out(self.shard.markers_written(self.sent.pop(0), self.now))

    # ---- what producers do: the error's name first

    def init(
        self,
        name: str = "a",
        expected: Producer = NOBODY,
        *,
        version: int = 5,
        timeout_ms: int = 60_000,
        fresh: int | None = None,
    ) -> tuple[str, Producer]:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.id,
            producer_epoch=expected.epoch,
        )
        try:
            effects = self.shard.init_producer_id(request, version, self.now, "r", fresh)
        except NeedsProducerId:
            assert fresh is None
            return self.init(name, expected, version=version, timeout_ms=timeout_ms, fresh=self.fresh())
        answer = self.carry_out(effects)["r"]
        return error_name(answer.error_code), Producer(answer.producer_id, answer.producer_epoch)

    def fresh(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def add(self, producer: Producer, *places: TopicPartition, name: str = "a", version: int = NEW) -> str:
        """The one error of all partitions."""
        client_version = 2 if version > 3 else 0
        asked = asked_of(name, producer, places or (T0,))
        effects = self.shard.add_partitions(
            asked, self.now, "r", client_version=client_version, api_version=version
        )
        errors = errors_of(self.carry_out(effects)["r"])
        assert len(set(errors.values())) == 1
        return next(iter(errors.values()))

    def verify(
        self, producer: Producer, *places: TopicPartition, name: str = "a"
    ) -> dict[TopicPartition, str]:
        asked = asked_of(name, producer, places or (T0,), verify_only=True)
        return errors_of(self.carry_out(self.shard.add_partitions(asked, self.now, "r"))["r"])

    def end(
        self,
        producer: Producer,
        *,
        commit: bool = True,
        name: str = "a",
        version: int = NEW,
        fresh: int | None = None,
    ) -> tuple[str, Producer]:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        try:
            effects = self.shard.end(request, version, self.now, "r", fresh)
        except NeedsProducerId:
            assert fresh is None
            return self.end(producer, commit=commit, name=name, version=version, fresh=self.fresh())
        answer = self.carry_out(effects)["r"]
        return error_name(answer.error_code), Producer(answer.producer_id, answer.producer_epoch)

    def describe(self, name: str = "a") -> TransactionState:
        state: TransactionState = self.carry_out(self.shard.describe(name, "r"))["r"]
        return state

    def state(self, name: str = "a") -> str:
        return self.describe(name).transaction_state


def asked_of(
    name: str, producer: Producer, places: Sequence[TopicPartition], *, verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=one.topic, partitions=[one.partition]) for one in places],
    )


def errors_of(result: Any) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic.name, one.partition_index): error_name(one.partition_error_code)
        for topic in result.topic_results
        for one in topic.results_by_partition
    }


def error_name(code: int) -> str:
    return WIRE_ERRORS[code].name


def compact(log: Sequence[Logged]) -> list[Logged]:
    """The last record of each key, where it stands."""
    last = {key: at for at, (key, _) in enumerate(log)}
    return [log[at] for at in sorted(last.values())]
