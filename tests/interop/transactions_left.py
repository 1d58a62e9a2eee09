"""Transactions in every state, left with whoever serves a directory, and taken up with whoever comes next.

`leave` makes them, `take_up` says what must have become of them: the producers go on, by the same requests,
as if nothing had been. One that is prepared is made so by the record that a coordinator would have written,
sent to its topic behind the back of the one that runs: the next finds it as after a crash in the middle, with
the marker in one partition and not in the other.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.coordinators.coordinator import partition_for
from barnabas.coordination.records import KeyedRecord, decode_record, encode_key, encode_value
from barnabas.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.transactions.ending import ended, ended_with_bump
from barnabas.transactions.records import KINDS, TransactionLogKey
from barnabas.transactions.states import PREPARE_COMMIT
from barnabas.transactions.transaction import Transaction, record_of, transaction_of
from tests.interop import coordinators_told as ct
from tests.support import raw_offsets as raw
from tests.support.raw_client import RawClient, frame, payload, wait_until
from tests.support.raw_offsets import At
from tests.support.raw_transactions import (
    ADDING_PRODUCE,
    OLD_PRODUCE,
    Transactor,
    see,
    write_marker,
)

STATE_TOPIC = "__transaction_state"
OUT, OTHER = "out", "other"  # where they stay as they are, and where they end by themselves
GROUP = "plain"
ENDING = ("late", "prepared-commit", "prepared-abort", "prepared-again")  # ids that end by themselves
LATE_MS = 3000
_TAKEN_UP_IN = 30.0


class Level(NamedTuple):
    """How clients go about transactions at a level of transaction.version."""

    number: int

    @property
    def has_bumps(self) -> bool:
        return self.number >= 2

    @property
    def end_version(self) -> int:
        return 5 if self.has_bumps else 3

    def produce(self, producer: Transactor, topic: str, value: bytes, partition: int = 0) -> None:
        if self.has_bumps:
            error = producer.produce(topic, value, partition=partition, version=ADDING_PRODUCE)
        else:
            assert producer.add(topic, partition) == "NONE"
            error = producer.produce(topic, value, partition=partition, version=OLD_PRODUCE)
        assert error == "NONE", error

    def commit_offset(self, producer: Transactor, at: At) -> None:
        """How far GROUP has read, once the transaction commits."""
        if not self.has_bumps:
            request = AddOffsetsToTxnRequest(
                transactional_id=producer.name,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                group_id=GROUP,
            )
            assert producer.client.ask(request, 3, AddOffsetsToTxnResponse).error_code == 0
        answer = raw.commit_in(producer, 5 if self.has_bumps else 3, GROUP, [("in", [at])])
        assert answer.topics[0].partitions[0].error_code == 0


class Left(NamedTuple):
    """What somebody has left."""

    word: str
    level: Level
    data: Transactor
    offsets: Transactor
    late: Transactor | None
    zombie: Transactor
    successor: Transactor
    offset: int  # that the open transaction commits


def leave(client: RawClient, word: str, level: Level, offset: int, *, has_ending: bool = True) -> Left:
    """One of each; of those that stay open, records are in OUT, of the others, which end by themselves where
    there are such, in OTHER."""

    def producer(name: str, timeout_ms: int = 600_000) -> Transactor:
        return Transactor(client, f"{word}-{name}", timeout_ms=timeout_ms)

    for name, commit in (("committed", True), ("aborted", False)):
        one = producer(name)
        level.produce(one, OUT, f"{word} {name}".encode())
        assert one.end(commit=commit, version=level.end_version) == "NONE"
    producer("empty")
    zombie = producer("replaced")
    level.produce(zombie, OUT, f"{word} of a zombie".encode())
    successor = producer("replaced")  # which aborts it
    level.produce(successor, OUT, f"{word} of its successor".encode(), partition=1)
    data, offsets = producer("data"), producer("offsets")
    for partition in (0, 1):
        level.produce(data, OUT, f"{word} open".encode(), partition)
    level.commit_offset(offsets, At(3, offset, f"{word} pending", 1))
    late = None
    if has_ending:
        for commit in (True, False):
            prepare(client, word, level, commit=commit)
        prepare_again(client, word, level)
        late = producer("late", LATE_MS)
        level.produce(late, OTHER, f"{word} late".encode())
    return Left(word, level, data, offsets, late, zombie, successor, offset)


def prepare(client: RawClient, word: str, level: Level, *, commit: bool) -> None:
    """A transaction that was decided when its coordinator died: one partition knows it, one does not."""
    name = "prepared-commit" if commit else "prepared-abort"
    one = Transactor(client, f"{word}-{name}", timeout_ms=600_000)
    for partition in (0, 1):
        level.produce(one, OTHER, f"{word} {name}".encode(), partition)
    found = recorded(client, one.name)
    if level.has_bumps:
        move = ended_with_bump(
            found, found.producer, is_commit=commit, now_ms=found.updated_ms + 1, fresh_producer_id=None
        )
    else:
        move = ended(found, found.producer, is_commit=commit, now_ms=found.updated_ms + 1)
    assert move is not None
    write_down(client, record_of(one.name, move.transaction, level.number))
    marker = move.transaction.producer
    error = write_marker(
        client, OTHER, marker.id, marker.epoch, commit=commit, transaction_version=2 * level.has_bumps
    )
    assert error == "NONE"


def prepare_again(client: RawClient, word: str, level: Level) -> None:
    """The coordinator's own record of a decision comes once more, after the end that followed it."""
    one = Transactor(client, f"{word}-prepared-again", timeout_ms=600_000)
    level.produce(one, OTHER, f"{word} prepared-again".encode())
    assert one.end(version=level.end_version) == "NONE"
    wait_for(client, one.name, "CompleteCommit")
    decisions = [each for each in records_of(client, one.name) if status_of(each) == PREPARE_COMMIT]
    send_to_coordinator(client, one.name, decisions[-1])


def take_up(client: RawClient, left: Left) -> None:
    """Whoever was there goes on; what was decided comes to its end."""
    word, level = left.word, left.level
    if left.late is not None:
        see_the_end(client, word, level, left.late)
    for one in (left.data, left.offsets, left.zombie, left.successor):
        one.client = client
    assert refusal(left.zombie, OUT) == "INVALID_PRODUCER_EPOCH"
    assert left.zombie.end(version=level.end_version) == "PRODUCER_FENCED"
    level.produce(left.data, OUT, f"{word} going on".encode())
    assert left.data.end(version=level.end_version) == "NONE"
    assert left.offsets.end(version=level.end_version) == "NONE"
    assert left.successor.end(commit=False, version=level.end_version) == "NONE"
    for one in (left.data, left.successor):
        wait_for(client, one.name, "CompleteAbort" if one is left.successor else "CompleteCommit")
    committed = [f"{word} {each}".encode() for each in ("committed", "open", "going on")]
    assert mine(client, OUT, word, 0) == committed
    assert mine(client, OUT, word, 1) == committed[1:2]
    wait_for(client, left.offsets.name, "CompleteCommit")
    assert ct.offsets(client, GROUP, stable=True)["in", 3] == (left.offset, 1, f"{word} pending", 0)


def see_the_end(client: RawClient, word: str, level: Level, late: Transactor) -> None:
    """Of those that end by themselves."""
    for name, end in (
        ("prepared-commit", "CompleteCommit"),
        ("prepared-abort", "CompleteAbort"),
        ("prepared-again", "CompleteCommit"),
        ("late", "CompleteAbort"),
    ):
        wait_for(client, f"{word}-{name}", end)
    late.client = client
    refused = "INVALID_TXN_STATE" if level.has_bumps else "PRODUCER_FENCED"
    assert late.end(version=level.end_version) == refused
    assert refusal(late, OTHER) == "INVALID_PRODUCER_EPOCH"
    prepared = [f"{word} prepared-{each}".encode() for each in ("commit", "again")]
    assert mine(client, OTHER, word, 0) == prepared
    assert mine(client, OTHER, word, 1) == prepared[:1]


def wait_for(client: RawClient, name: str, state: str) -> None:
    wait_until(lambda: ct.state(client, name) == state, f"{name} to be {state}", _TAKEN_UP_IN)


def refusal(producer: Transactor, topic: str) -> str:
    """What a producer is told that is none any more, once Kafka's partition has found the coordinator."""
    found: list[str] = []

    def is_told() -> bool:
        found.append(producer.produce(topic, b"of nobody", version=OLD_PRODUCE))
        return found[-1] not in ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE")

    wait_until(is_told, "the partition to ask the coordinator")
    return found[-1]


def mine(client: RawClient, topic: str, word: str, partition: int) -> list[bytes]:
    """What a reader of committed records finds of those with a word."""
    values = see(client, topic, partition=partition).values
    return [value for value in values if value is not None and value.startswith(word.encode())]


# ---- the coordinator's own records -----------------------------------------------------------------------


def records_of(client: RawClient, name: str) -> list[Record]:
    """What was written of an id, as far as it is there."""
    wanted = encode_key(TransactionLogKey(transactional_id=name))
    found = ct.records(client, STATE_TOPIC, partition_of(client, name))
    return [record for record in found if record.key == wanted]


def recorded(client: RawClient, name: str) -> Transaction:
    """What the last record says of an id."""
    last = records_of(client, name)[-1]
    return transaction_of(decode_record(KINDS, last.key, last.value))


def status_of(record: Record) -> int:
    return transaction_of(decode_record(KINDS, record.key, record.value)).state


def write_down(client: RawClient, record: KeyedRecord) -> None:
    """A record of Barnabas's coordinator, whoever runs."""
    key = record.key
    assert isinstance(key, TransactionLogKey)
    started_ms = ct.transaction(client, key.transactional_id)[2]
    written = Record(0, started_ms, encode_key(key), encode_value(record))
    send_to_coordinator(client, key.transactional_id, written)


def send_to_coordinator(client: RawClient, name: str, record: Record) -> None:
    """Append to the coordinator's topic; the coordinator which runs does not know of it."""
    batch = build_batch([record._replace(offset=0)])
    data = PartitionProduceData(index=partition_of(client, name), records=memoryview(batch))
    topic = TopicProduceData(name=STATE_TOPIC, partition_data=[data])
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[topic])
    client.send_bytes(frame(payload(request, 9, client_id="__admin_client")))
    _, answer = client.receive_response(ProduceResponse, 9, flexible=True)
    (done,) = answer.responses[0].partition_responses
    assert done.error_code == 0, done


def partition_of(client: RawClient, name: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=STATE_TOPIC)])
    request.allow_auto_topic_creation = False
    (topic,) = client.ask(request, 9, MetadataResponse).topics
    return partition_for(name, len(topic.partitions))
