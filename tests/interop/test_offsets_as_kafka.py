"""Offsets of groups, asked of Apache Kafka and of Barnabas side by side: every version, every mistake, and
the records that are left in `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators.coordinator import partition_for
from barnabas.coordination.records import decode_record
from barnabas.groups.records import KINDS, OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.schema import Struct
from barnabas.records.control import parse_end_transaction
from barnabas.records.reader import read_batch, read_batches
from barnabas.testing import Broker
from tests.support import raw_offsets as raw
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient, fetch_request, wait_until
from tests.support.raw_offsets import At
from tests.support.raw_transactions import Transactor

pytestmark = pytest.mark.java

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "50"}
UNKNOWN_ID = bytes(range(16))
GROUPS = ("g", "h", "", "member", "worker", "txn", "txn5", "old")
Answers = list[tuple[str, Any]]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RawClient, RawClient]]:
    """Kafka, and Barnabas."""
    home = tmp_path_factory.mktemp("sides")
    with (
        ApacheKafka(home / "kafka", settings=SETTINGS) as kafka,
        Broker(home / "barnabas", settings=SETTINGS) as broker,
        RawClient(kafka.port) as theirs,
        RawClient(broker.port) as ours,
    ):
        yield theirs, ours


def comparable(value: Any) -> Any:
    """A response as plain values: ids are known or not, and lists of structures have no order."""
    if isinstance(value, Struct):
        return {field.name: comparable(getattr(value, field.name)) for field in value.__fields__}
    if isinstance(value, (list, tuple)):
        return sorted(map(comparable, value), key=repr)
    return any(value) if isinstance(value, bytes) else value


# ---- what is asked ----------------------------------------------------------------------------------------


def nobody_coordinates(client: RawClient) -> Answers:
    """Before anybody has looked for a coordinator there is none."""
    raw.create(client, "t", 3)
    answers: Answers = [
        (f"commit v{version}", raw.commit(client, version, "g", [("t", [At(0, 5)])])) for version in (2, 9)
    ]
    for version in range(1, 10):
        answers.append((f"fetch v{version}", raw.fetch(client, version, "g", [("t", [0, 1])])))
    answers.append(("delete", raw.delete(client, "g", [("t", [0])])))
    return answers


def commits(client: RawClient) -> Answers:
    topic_id = raw.create(client, "u", 2)
    for group in GROUPS:
        raw.find(client, group)
    answers: Answers = []

    def add(label: str, answer: Any) -> None:
        answers.append((label, answer))

    for version in range(2, 11):
        topic = topic_id if version >= 10 else "u"
        nowhere = UNKNOWN_ID if version >= 10 else "nowhere"
        one = [At(0, version, f"note {version}", 7), At(1, 100 + version, None)]
        add(f"v{version}", raw.commit(client, version, "g", [(topic, one)]))
        add(f"v{version} found", raw.fetch(client, 9, "g", [("u", [0, 1])]))
        add(f"v{version} nowhere", raw.commit(client, version, "g", [(nowhere, one), (topic, [At(5, 1)])]))
        add(f"v{version} mixed", raw.commit(client, version, "g", [(topic, [At(0, 1), At(5, 1), At(-1, 1)])]))
        add(f"v{version} no topics", raw.commit(client, version, "new", []))
        add(f"v{version} no partitions", raw.commit(client, version, "new", [(topic, [])]))
        texts = [At(0, 1, "x" * 4097), At(1, 1, "ж" * 4096)]
        add(f"v{version} long texts", raw.commit(client, version, "h", [(topic, texts)]))
        add(f"v{version} no group", raw.commit(client, version, "no", [(topic, one)], generation=1))
        add(
            f"v{version} no member",
            raw.commit(client, version, "no", [(topic, one)], generation=0, member="m"),
        )
        add(f"v{version} empty group", raw.commit(client, version, "g", [(topic, one)], member="somebody"))
        add(f"v{version} generation", raw.commit(client, version, "g", [(topic, one)], generation=3))
        add(f"v{version} no name", raw.commit(client, version, "", [(topic, [At(0, version)])]))
    add("expiring", raw.commit(client, 4, "old", [("u", [At(0, 1, "", 3)])], retention_ms=3_600_000))
    add("expiring found", raw.fetch(client, 9, "old", None))
    add("negative", raw.commit(client, 9, "h", [("u", [At(0, -7, "")])], generation=-5))
    add("negative found", raw.fetch(client, 9, "h", [("u", [0])]))
    add("twice", raw.commit(client, 9, "h", [("u", [At(0, 1), At(0, 2)]), ("u", [At(0, 3)])]))
    add("twice found", raw.fetch(client, 9, "h", [("u", [0])]))
    return answers


def fetches(client: RawClient) -> Answers:
    topic_id = raw.create(client, "v", 2)
    raw.commit(client, 9, "g", [("v", [At(0, 5, "five", 2)])])
    raw.commit(client, 9, "h", [("v", [At(1, 6)])])
    answers: Answers = []
    for version in range(1, 11):
        topic = topic_id if version >= 10 else "v"
        nowhere = UNKNOWN_ID if version >= 10 else "nowhere"
        asked: list[Any] = [
            ("g", [(topic, [0, 1, 7, -1])]),
            ("g", [(nowhere, [0])]),
            ("g", [(topic, [0]), (topic, [0, 0])]),
            ("g", []),
            ("no", [(topic, [0])]),
        ]
        if version >= 2:
            asked += [("h", None), ("no", None)]
        for group, topics in asked:
            for stable in (False, True):
                answers.append(
                    (
                        f"v{version} {group} {topics} {stable}",
                        raw.fetch(client, version, group, topics, stable=stable),
                    )
                )
        if version >= 8:
            answers.append((f"v{version} all", raw.fetch_groups(client, version, asked)))
            answers.append((f"v{version} none", raw.fetch_groups(client, version, [])))
        if version >= 9:
            for epoch in (-1, 0, 5):
                answers.append(
                    (f"v{version} {epoch}", raw.fetch_groups(client, version, asked, member="m", epoch=epoch))
                )
    return answers


def deletions(client: RawClient) -> Answers:
    raw.create(client, "d", 3)
    raw.commit(client, 9, "g", [("d", [At(0, 5), At(1, 6), At(2, 7)])])
    asked: list[tuple[str, list[tuple[str, list[int]]]]] = [
        ("g", [("d", [0, 7, -1]), ("nowhere", [0])]),
        ("g", [("d", [0])]),
        ("g", []),
        ("no", [("d", [0])]),
        ("no", []),
        ("no", [("nowhere", [0])]),
        ("", [("d", [0])]),
        ("g", [("d", [])]),
    ]
    answers: Answers = [(f"{group} {topics}", raw.delete(client, group, topics)) for group, topics in asked]
    answers.append(("left", raw.fetch(client, 9, "g", [("d", [0, 1, 2])])))
    doomed = DeleteTopicState(name="d", topic_id=bytes(16))
    client.ask(DeleteTopicsRequest(topics=[doomed], timeout_ms=10_000), 6, DeleteTopicsResponse)

    def is_forgotten() -> bool:
        (topic,) = raw.fetch(client, 7, "g", [("d", [1])]).topics
        return topic.partitions[0].committed_offset == -1

    wait_until(is_forgotten, "the offsets of a deleted topic are gone")
    return answers


def members(client: RawClient) -> Answers:
    """Commits of members, and of others beside them."""
    answers: Answers = []
    for group, protocol_type in (("member", "consumer"), ("worker", "connect")):
        joined = raw.join(client, group, "t", protocol_type=protocol_type, sync=False)
        me = {"generation": joined.generation, "member": joined.id}
        places = [("t", [At(0, 5)]), ("u", [At(0, 6)])]
        answers.append((f"{group} not synced", raw.commit(client, 9, group, places, **me)))  # type: ignore[arg-type]
        raw.join(client, f"{group}-other", "t")  # which has nothing to do with it
        joined = raw.join(client, f"{group}-2", "t", protocol_type=protocol_type)
        group = f"{group}-2"
        me = {"generation": joined.generation, "member": joined.id}
        wrong: list[dict[str, Any]] = [
            {},
            {"generation": joined.generation},
            {"generation": joined.generation, "member": "nobody"},
            {"generation": joined.generation + 1, "member": joined.id},
            {"generation": joined.generation - 1, "member": joined.id},
            {"generation": -1, "member": joined.id},
            {**me, "instance": "nobody"},
        ]
        for who in [me, *wrong]:
            said = {**who, "member": who.get("member", "") == joined.id}
            for version in (7, 8, 9):
                answers.append(
                    (f"{group} v{version} {said}", raw.commit(client, version, group, places, **who))
                )
        answers.append((f"{group} found", raw.fetch(client, 9, group, None)))
        answers.append((f"{group} deleted", raw.delete(client, group, [("t", [0]), ("u", [0])])))
        answers.append((f"{group} left", raw.fetch(client, 9, group, None)))
    return answers


def add_offsets(transactor: Transactor, group: str, version: int = 3) -> AddOffsetsToTxnResponse:
    request = AddOffsetsToTxnRequest(
        transactional_id=transactor.name,
        producer_id=transactor.producer_id,
        producer_epoch=transactor.epoch,
        group_id=group,
    )
    return transactor.client.ask(request, version, AddOffsetsToTxnResponse)


def transactions(client: RawClient) -> Answers:
    answers: Answers = []
    producer = Transactor(client, "offsets-as-kafka")
    place = [("t", [At(0, 5, "five", 2)])]

    def add(label: str, answer: Any) -> None:
        answers.append((label, answer))

    for version in range(5):
        add(f"v{version} not added", raw.commit_in(producer, version, "txn", place))
    add("no name", raw.commit_in(producer, 3, "", place))
    add("nowhere", raw.commit_in(producer, 3, "txn", [("nowhere", [At(0, 1)])]))
    add("added", add_offsets(producer, "txn"))
    for version in range(5):
        add(f"v{version}", raw.commit_in(producer, version, "txn", [("t", [At(version % 3, version)])]))
    add("mixed", raw.commit_in(producer, 3, "txn", [("t", [At(0, 1, "x" * 5000), At(1, 1), At(9, 1)])]))
    add("no generation", raw.commit_in(producer, 3, "txn", place, generation=1, member="m"))
    add("somebody", raw.commit_in(producer, 3, "txn", place, member="m"))
    add("instance", raw.commit_in(producer, 3, "txn", place, instance="i"))
    add("later epoch", raw.commit_in(producer, 3, "txn", place, epoch=producer.epoch + 5))
    add("other id", raw.commit_in(producer, 3, "txn", place, producer_id=1 << 40))
    add("plain beside", raw.commit(client, 9, "txn", [("t", [At(1, 44)])]))
    for stable in (False, True):
        add(f"pending {stable}", raw.fetch(client, 9, "txn", [("t", [0, 1, 2])], stable=stable))
        add(f"all pending {stable}", raw.fetch(client, 9, "txn", None, stable=stable))
    add("end", producer.end(version=3))
    settled(client, "txn")
    add("ended", raw.fetch(client, 9, "txn", None, stable=True))
    producer = Transactor(client, "offsets-as-kafka")
    add("old epoch", raw.commit_in(producer, 4, "txn", place, epoch=producer.epoch - 1))
    add("implicitly", raw.commit_in(producer, 5, "txn5", place))
    add("aborted", producer.end(commit=False))
    settled(client, "txn5")
    add("nothing", raw.fetch(client, 9, "txn5", [("t", [0])], stable=True))
    return answers


def settled(client: RawClient, group: str) -> None:
    """Wait for the end of a transaction to reach the group."""

    def is_stable() -> bool:
        (topic,) = raw.fetch(client, 7, group, [("t", [0, 1, 2])], stable=True).topics
        return all(one.error_code == 0 for one in topic.partitions)

    wait_until(is_stable, "the end of the transaction")


# ---- the comparison ---------------------------------------------------------------------------------------


def history(client: RawClient, group: str) -> list[Any]:
    """The records about a group's offsets, and the ends of transactions, in their order."""
    partition = partition_for(group, 50)
    answer = client.ask(fetch_request("__consumer_offsets", partition=partition), 11, FetchResponse)
    data = bytes(answer.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]
    found: list[Any] = []
    for header, position in read_batches(data):
        if header.is_control:
            marker = parse_end_transaction(data, position, header)
            found.append(marker is not None and marker.is_commit)
            continue
        for record in read_batch(data, position, header):
            told = decode_record(KINDS, record.key, record.value)
            if isinstance(told.key, OffsetCommitKey) and told.key.group == group:
                found.append((header.is_transactional, told.version, comparable(told.key), _said(told.value)))
    return _in_order(found)


def _in_order(found: list[Any]) -> list[Any]:
    """Tombstones of one batch come in any order."""
    ended: list[list[Any]] = []
    was_tombstone = False
    for one in found:
        is_tombstone = one not in (True, False) and one[-1] is None
        if not is_tombstone or not was_tombstone:
            ended.append([])
        ended[-1].append(one)
        was_tombstone = is_tombstone
    return [one for some in ended for one in sorted(some, key=repr)]


def _said(value: Any) -> Any:
    if value is None:
        return None
    assert isinstance(value, OffsetCommitValue)
    lasts_ms = value.expire_timestamp - value.commit_timestamp if value.expire_timestamp > 0 else None
    return value.offset, value.leader_epoch, value.metadata, any(value.topic_id), lasts_ms


def test_offsets_are_answered_and_written_down_alike(sides: tuple[RawClient, RawClient]) -> None:
    differences = []
    for story in (nobody_coordinates, commits, fetches, deletions, members, transactions):
        expected, got = (story(client) for client in sides)
        assert len(expected) == len(got)
        for (label, theirs), (_, ours) in zip(expected, got, strict=True):
            if comparable(theirs) != comparable(ours):
                differences.append(
                    f"{story.__name__}, {label}\n  Kafka: {comparable(theirs)}\n  here:  {comparable(ours)}"
                )
    assert not differences, "\n".join(differences)
    for group in GROUPS:
        theirs, ours = (history(client, group) for client in sides)
        assert ours == theirs, group
    assert history(sides[1], "g")
    assert history(sides[1], "txn")[-1] is True


def test_a_directory_moves_with_its_offsets(tmp_path: Path) -> None:
    """What Kafka committed is found here, in an open transaction, too; and the other way round."""
    data = tmp_path / "data"
    kafka = ApacheKafka(tmp_path / "kafka", data=data, standalone=True)
    with kafka, RawClient(kafka.port) as client:
        raw.create(client, "t", 3)
        raw.find(client, "g")
        raw.commit(client, 9, "g", [("t", [At(0, 5, "five", 2), At(1, 6)])])
        raw.commit(client, 4, "g", [("t", [At(2, 7, "old")])], retention_ms=3_600_000)
        producer = Transactor(client, "moved")
        raw.commit_in(producer, 5, "g", [("t", [At(1, 60)])])
        answers = [comparable(raw.fetch(client, 9, "g", None, stable=stable)) for stable in (False, True)]
    with Broker(data) as broker, RawClient(broker.port) as client:
        raw.find(client, "g")
        found = [comparable(raw.fetch(client, 9, "g", None, stable=stable)) for stable in (False, True)]
        assert found == answers
        producer.client = client
        assert producer.end(version=3) == "NONE"
        settled(client, "g")
        assert offset_of(client, 1) == 60
        raw.commit(client, 4, "g", [("t", [At(0, 50, "fifty")])], retention_ms=3_600_000)
        raw.delete(client, "g", [("t", [2])])
        producer = Transactor(client, "moved")
        raw.commit_in(producer, 5, "g", [("t", [At(1, 600)])])
        answers = [comparable(raw.fetch(client, 9, "g", None, stable=stable)) for stable in (False, True)]
    with kafka, RawClient(kafka.port) as client:
        raw.find(client, "g")
        found = [comparable(raw.fetch(client, 9, "g", None, stable=stable)) for stable in (False, True)]
        assert found == answers
        producer.client = client
        wait_until(lambda: producer.end() == "NONE", "a coordinator that has been loaded")
        settled(client, "g")
        assert offset_of(client, 1) == 600


def offset_of(client: RawClient, partition: int) -> int:
    (topic,) = raw.fetch(client, 7, "g", [("t", [partition])], stable=True).topics
    offset: int = topic.partitions[0].committed_offset
    return offset
