"""Offsets of groups over the wire: kept through restarts and compaction, by real clients and by requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.broker.handlers import delete_groups, offset_fetch
from barnabas.core.errors import WIRE_ERRORS
from barnabas.groups import listing, offset_commands
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.testing import Broker
from tests.support import raw_offsets as raw
from tests.support.raw_client import RawClient, wait_until
from tests.support.raw_offsets import At
from tests.support.raw_transactions import Transactor


def offsets(client: RawClient, group: str, topic: str = "t", *, stable: bool = False) -> dict[int, int]:
    """What a group has committed for a topic."""
    found = raw.fetch(client, 7, group, None, stable=stable)
    assert found.error_code == 0
    return {
        one.partition_index: one.committed_offset
        for each in found.topics
        if each.name == topic
        for one in each.partitions
    }


def errors(response: Any) -> list[str]:
    return [WIRE_ERRORS[one.error_code].name for topic in response.topics for one in topic.partitions]


# ---- what stays ------------------------------------------------------------------------------------------


def test_a_reader_of_a_group_without_a_position_begins_where_it_is_told(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"first", b"second"):
        producer.produce("t", value)
    assert producer.flush(20) == 0
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    for expected in (b"first", b"second"):  # the second goes on after what the first committed
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
        consumer.assign([TopicPartition("t", 0)])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == expected
        consumer.commit(message, asynchronous=False)
        consumer.close()


def test_commits_outlive_the_process(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker = make_broker(tmp_path)
    with RawClient(broker.port) as client:
        raw.create(client, "t", 3)
        raw.find(client, "g")
        raw.commit(client, 9, "g", [("t", [At(0, 5, "five", 2), At(1, 6)])])
        raw.delete(client, "g", [("t", [1])])
        producer = Transactor(client, "x")
        raw.commit_in(producer, 5, "g", [("t", [At(2, 7)])])
        before = raw.fetch(client, 9, "g", None)
    broker.stop()
    broker = make_broker(tmp_path)
    with RawClient(broker.port) as client:
        raw.find(client, "g")
        assert raw.fetch(client, 9, "g", None) == before
        unstable = raw.fetch(client, 7, "g", [("t", [2])], stable=True)
        assert errors(unstable) == ["UNSTABLE_OFFSET_COMMIT"]
        producer.client = client
        assert producer.end() == "NONE"
        wait_until(lambda: offsets(client, "g", stable=True) == {0: 5, 2: 7}, "the commit")


def test_a_deleted_topic_takes_its_commits_along(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with RawClient(broker.port) as client:
        for topic in ("t", "other"):
            raw.create(client, topic, 2)
        raw.find(client, "g")
        raw.commit(client, 9, "g", [("t", [At(0, 5)]), ("other", [At(1, 6)])])
        admin.delete_topics(["t"])["t"].result(20)
        wait_until(lambda: offsets(client, "g") == {}, "its offsets to be gone")
        assert offsets(client, "g", "other") == {1: 6}
        raw.create(client, "t", 2)
        assert offsets(client, "g") == {}


def test_commits_expire(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(settings={"offsets.retention.check.interval.ms": "20"})
    with RawClient(broker.port) as client:
        raw.create(client, "t", 2)
        raw.find(client, "g")
        raw.commit(client, 9, "g", [("t", [At(0, 5)])])
        raw.commit(client, 4, "g", [("t", [At(1, 6)])], retention_ms=30)
        wait_until(lambda: offsets(client, "g") == {0: 5}, "the one of its own retention to expire")


def test_many_partitions_are_fetched_in_slices_that_nobody_sees(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [("t", [*range(7)]), ("none", []), ("u", [1, 0]), ("t", [3, 9]), ("u", [*range(3)])]
    with RawClient(broker.port) as client:
        raw.find(client, "g")
        for topic, numbers in (("t", [0, 2, 5, 6]), ("u", [0, 1])):
            raw.create(client, topic, 7)
            raw.commit(client, 9, "g", [(topic, [At(number, 10 + number) for number in numbers])])
        whole = [raw.fetch(client, 9, "g", asked) for asked in (wanted, None, [])]
        assert [len(topic.partitions) for topic in whole[0].groups[0].topics] == [7, 0, 2, 2, 3]
        turns: list[int] = []
        fetch = offset_commands.fetch

        def counted(shard: Any, asked: Any, *rest: Any) -> Any:
            turns.append(sum(len(topic.partition_indexes) for topic in asked.topics))
            return fetch(shard, asked, *rest)

        monkeypatch.setattr(offset_commands, "fetch", counted)
        monkeypatch.setattr(offset_fetch, "PARTITIONS_A_TURN", 3)
        assert [raw.fetch(client, 9, "g", asked) for asked in (wanted, None, [])] == whole
        assert turns == [3, 3, 3, 5, 3, 3, 0]


def test_a_group_of_many_commits_is_deleted_in_slices_that_nobody_sees(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices: list[int] = []
    delete = listing.delete

    def counted(shard: Any, group_id: str, reply: Any) -> Any:
        effects = delete(shard, group_id, reply)
        slices.append(sum(len(write.records) for write in effects.writes))
        return effects

    monkeypatch.setattr(listing, "COMMITS_A_TURN", 3)
    monkeypatch.setattr(delete_groups, "delete", counted)
    with RawClient(broker.port) as client:
        raw.create(client, "t", 7)
        raw.find(client, "g")
        raw.commit(client, 9, "g", [("t", [At(number, 5) for number in range(7)])])
        answers = [
            client.ask(DeleteGroupsRequest(groups_names=["g"]), 2, DeleteGroupsResponse).results[0]
            for _ in range(2)
        ]
        names = [WIRE_ERRORS[answer.error_code].name for answer in answers]
        assert names == ["NONE", "GROUP_ID_NOT_FOUND"]
        assert slices == [3, 3, 2, 0]  # the last of it with the group itself
        assert offsets(client, "g") == {}


# ---- requests ---------------------------------------------------------------------------------------------


def test_a_commit_that_no_batch_has_room_for_is_named_and_changes_nothing(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        raw.create(client, "t", 400)
        raw.find(client, "g")
        raw.commit(client, 9, "g", [("t", [At(0, 5)])])
        many = [At(number, 9, "x" * 4000) for number in range(400)]
        assert set(errors(raw.commit(client, 9, "g", [("t", many)]))) == {"INVALID_COMMIT_OFFSET_SIZE"}
        assert offsets(client, "g") == {0: 5}
        assert errors(raw.commit(client, 9, "g", [("t", [At(0, 6)])])) == ["NONE"]
        assert offsets(client, "g") == {0: 6}


@pytest.mark.parametrize(("version", "name"), [(3, "INVALID_TXN_STATE"), (4, "TRANSACTION_ABORTABLE")])
def test_a_transaction_that_does_not_know_of_the_group_commits_nothing_for_it(
    broker: Broker, version: int, name: str
) -> None:
    with RawClient(broker.port) as client:
        raw.create(client, "t", 1)
        raw.find(client, "g")
        producer = Transactor(client, "x")
        assert errors(raw.commit_in(producer, version, "g", [("t", [At(0, 5)])])) == [name]
        assert offsets(client, "g", stable=True) == {}


def test_a_late_commit_does_not_land_in_the_next_transaction(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        raw.create(client, "t", 1)
        raw.find(client, "g")
        producer = Transactor(client, "x")
        late = producer.epoch
        assert errors(raw.commit_in(producer, 5, "g", [("t", [At(0, 5)])])) == ["NONE"]
        assert producer.end() == "NONE"
        wait_until(lambda: offsets(client, "g", stable=True) == {0: 5}, "the commit")
        assert errors(raw.commit_in(producer, 5, "g", [("t", [At(0, 9)])], epoch=late)) == [
            "INVALID_PRODUCER_EPOCH"
        ]
        assert errors(raw.commit_in(producer, 5, "g", [("t", [At(0, 6)])])) == ["NONE"]
        assert producer.end(commit=False) == "NONE"
        wait_until(
            lambda: errors(raw.fetch(client, 7, "g", [("t", [0])], stable=True)) == ["NONE"], "the abort"
        )
        assert offsets(client, "g") == {0: 5}
