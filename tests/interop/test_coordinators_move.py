"""A directory with groups and transactions of all kinds moves between Apache Kafka and Barnabas, twice.

Members stay connected by name, producers go on in the middle of their transactions, and each of the two finds
what the other has left (see coordinators_told.py and transactions_left.py), also after either has compacted
the topics it is in. In between the level of transactions goes down and up again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import ResourceType

from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.interop.coordinators_told import INTERNAL, listed, offsets, records, told, wait_for_all
from tests.interop.moving import Doing, OneDirectory
from tests.interop.test_directory_move import complaints, levels
from tests.interop.transactions_left import ENDING, GROUP, OTHER, OUT, Left, Level, leave, take_up
from tests.support import raw_modern as modern
from tests.support import raw_offsets as raw
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.raw_client import RawClient, wait_until
from tests.support.raw_offsets import At
from tests.support.raw_transactions import create_topic, find_coordinator, name_of
from tests.support.serve_process import ServeProcess

pytestmark = [pytest.mark.java, pytest.mark.slow]  # nodes are started on one directory, again and again

NEVER_MS = "9000000000000"
LONG_MS = 300_000
FILLER = "filler"
REWRITTEN = 12
EMPTY_MODERN = ("modern-empty", "modern-taken", "modern-deleted")
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "share.coordinator.state.topic.num.partitions": "2",
    # members that only say something when a test comes to them
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
    "group.share.max.session.timeout.ms": "600000",
    "group.share.session.timeout.ms": "600000",
}


class Static:
    """A static member of a group of its own, which comes back under its name."""

    def __init__(self, client: RawClient) -> None:
        self.generation = 0
        self.id = ""
        self.join(client)

    def join(self, client: RawClient) -> None:
        request = JoinGroupRequest(
            group_id="static",
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            member_id="",
            group_instance_id="one",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=raw.subscription("in"))],
        )
        joined = client.ask(request, 9, JoinGroupResponse)
        assert joined.error_code == 0
        self.id, self.generation = joined.member_id, joined.generation_id
        part = SyncGroupRequestAssignment(member_id=self.id, assignment=b"all of it")
        asked = SyncGroupRequest(
            group_id="static",
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id="one",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[] if joined.skip_assignment else [part],
        )
        synced = client.ask(asked, 5, SyncGroupResponse)
        assert (synced.error_code, bytes(synced.assignment)) == (0, b"all of it")

    def heartbeat(self, client: RawClient) -> str:
        request = HeartbeatRequest(
            group_id="static",
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id="one",
        )
        return name_of(client.ask(request, 4, HeartbeatResponse).error_code)

    def come_back(self, client: RawClient) -> None:
        """Known as it is; then anew under the same name, without a rebalance, and the old one is fenced."""
        assert self.heartbeat(client) == "NONE"
        before = (self.id, self.generation)
        self.join(client)
        after = (self.id, self.generation)
        assert after[0] != before[0]
        assert after[1] == before[1]
        self.id = before[0]
        assert self.heartbeat(client) == "FENCED_INSTANCE_ID"
        self.id = after[0]
        assert self.heartbeat(client) == "NONE"


class Living:
    """A real consumer that stays where it is while the broker under it changes."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "living",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "session.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(["in"])
        self.goes_on("first")

    def goes_on(self, word: str) -> None:
        """It reads what comes, and commits that."""
        producer = Producer({"bootstrap.servers": self._bootstrap})
        producer.produce("in", word.encode(), partition=0)
        assert producer.flush(20) == 0
        found: list[Any] = []

        def has_come() -> bool:
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message)
            return bool(found) and found[-1].value() == word.encode()

        wait_until(has_come, f"{word} to be read", 30.0)
        assert len(found) == 1  # nothing is read again
        (committed,) = self._consumer.commit(found[-1], asynchronous=False)
        assert committed.error is None

    def close(self) -> None:
        self._consumer.close()


class Modern:
    """A consumer group and a share group, each with a member, and consumer groups without any."""

    def __init__(self, client: RawClient) -> None:
        self._epoch = self._share_epoch = modern.JOIN
        self.beat(client)
        raw.commit(client, 9, "modern", [("in", [At(2, 22, "modern")])], generation=self._epoch, member="m")
        for group in EMPTY_MODERN:
            joined = modern.consumer_heartbeat(client, group, "e", modern.JOIN, "in")
            assert joined.error_code == 0
            raw.commit(client, 9, group, [("in", [At(1, 11)])], generation=joined.member_epoch, member="e")
            assert modern.consumer_heartbeat(client, group, "e", modern.LEAVE).error_code == 0

    def visit(self, bootstrap: str) -> None:
        """A real client comes, reads what a pattern fits, commits, and goes."""
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "modern-visited",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["^i.$"])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        consumer.commit(message, asynchronous=False)
        consumer.close()

    def beat(self, client: RawClient) -> None:
        """Its members are known by their epochs, and go on."""
        told_epoch = modern.consumer_heartbeat(client, "modern", "m", self._epoch, "in")
        assert told_epoch.error_code == 0, told_epoch.error_message
        shared = modern.share_heartbeat(client, "shared", "s", self._share_epoch, "in")
        assert shared.error_code == 0, shared.error_message
        assert self._epoch in (modern.JOIN, told_epoch.member_epoch)
        self._epoch, self._share_epoch = told_epoch.member_epoch, shared.member_epoch


def make_groups(client: RawClient) -> None:
    """Offsets without members, a group that is empty again, and one that does not read topics."""
    raw.commit(client, 9, GROUP, [("in", [At(0, 5, "five", 2), At(1, 6)])])
    raw.commit(client, 4, GROUP, [("in", [At(2, 7, "old")])], retention_ms=3_600_000)
    member = raw.join(client, "empty", "in", session_ms=LONG_MS)
    raw.commit(client, 9, "empty", [("in", [At(0, 9)])], generation=member.generation, member=member.id)
    gone = LeaveGroupRequest(group_id="empty", member_id=member.id)
    assert client.ask(gone, 2, LeaveGroupResponse).error_code == 0
    raw.join(client, "workers", protocol_type="connect", session_ms=LONG_MS)


def compact(client: RawClient, bootstrap: str) -> None:
    """Have whoever serves compact both topics; nothing that is told of them changes."""
    doing = Doing(bootstrap)
    for number in range(REWRITTEN):
        raw.commit(client, 9, FILLER, [("in", [At(0, number)])])
    before, written = seen(client, bootstrap), [count(client, name) for name in INTERNAL]
    for name in INTERNAL:
        doing.alter(ResourceType.TOPIC, name, min_compaction_lag_ms="0")
    wait_until(
        lambda: all(
            count(client, name) <= many - REWRITTEN // 2 for name, many in zip(INTERNAL, written, strict=True)
        ),
        "the topics to be compacted",
    )
    for name in INTERNAL:
        doing.alter(ResourceType.TOPIC, name, min_compaction_lag_ms=NEVER_MS)
    assert seen(client, bootstrap) == before


def count(client: RawClient, topic: str) -> int:
    """How many records there are."""
    return sum(len(records(client, topic, partition)) for partition in (0, 1))


def seen(client: RawClient, bootstrap: str) -> dict[str, Any]:
    return told(client, bootstrap, topic=OUT, ending=ENDING)


def set_level(client: RawClient, name: str, level: int) -> None:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=2 if level == 0 else 1)
    request = UpdateFeaturesRequest(feature_updates=[update], validate_only=False)
    answer = client.ask(request, 2, UpdateFeaturesResponse)
    assert answer.error_code == 0, answer.error_message


class Cast(NamedTuple):
    """Who stays through all the moves."""

    static: Static
    living: Living
    modern: Modern

    def go_on(self, client: RawClient, bootstrap: str, left: Left) -> None:
        """With whoever serves now, as if it was the one before."""
        take_up(client, left)
        self.static.come_back(client)
        self.living.goes_on(f"after {left.word}")
        compact(client, bootstrap)


def begin(client: RawClient, bootstrap: str) -> Cast:
    raw.create(client, "in", 4)
    for name in (OUT, OTHER):
        create_topic(client, name, 2)
    raw.find(client, GROUP)
    make_groups(client)
    cast = Cast(Static(client), Living(bootstrap), Modern(client))
    cast.modern.visit(bootstrap)
    find_coordinator(client, "anybody", 1)
    for name in INTERNAL:
        Doing(bootstrap).alter(
            ResourceType.TOPIC,
            name,
            segment_ms="1",
            min_cleanable_dirty_ratio="0.01",
            min_compaction_lag_ms=NEVER_MS,
        )
    return cast


def test_groups_and_transactions_move_there_and_back_twice(tmp_path: Path) -> None:
    moving = OneDirectory(tmp_path, settings=SETTINGS)
    with moving.kafka() as kafka, RawClient(kafka.port) as client:
        port, bootstrap = kafka.port, kafka.bootstrap
        cast = begin(client, bootstrap)
        left = leave(client, "kafka", Level(2), 31)
        features, before = levels(bootstrap), seen(client, bootstrap)
        kafka.kill()

    with moving.barnabas() as barnabas, RawClient(port) as client:
        wait_for_all(client, before)
        assert seen(client, bootstrap) == before
        states = {one.group_id: one.group_state for one in listed(client)}
        assert (states["modern"], states["modern-empty"], states["shared"]) == ("Empty", "Empty", "Stable")
        cast.go_on(client, bootstrap, left)
        left = leave(client, "barnabas", Level(2), 32)
        before = seen(client, bootstrap)
        assert barnabas.stop() == 0

    with moving.kafka() as kafka, RawClient(port) as client:
        wait_for_all(client, before)
        assert seen(client, bootstrap) == before
        assert levels(bootstrap) == features
        cast.modern.beat(client)
        cast.go_on(client, bootstrap, left)
        set_level(client, "transaction.version", 0)
        left = leave(client, "kafka again", Level(0), 33)
        features, before = levels(bootstrap), seen(client, bootstrap)

    with moving.barnabas() as barnabas, RawClient(port) as client:
        wait_for_all(client, before)
        assert seen(client, bootstrap) == before
        cast.go_on(client, bootstrap, left)
        # what nobody here serves can be deleted, or taken over
        deleted = client.ask(DeleteGroupsRequest(groups_names=["modern-deleted"]), 2, DeleteGroupsResponse)
        assert [one.error_code for one in deleted.results] == [0]
        raw.join(client, "modern-taken", "in", session_ms=LONG_MS)
        set_level(client, "transaction.version", 1)
        features["transaction.version"] = 1
        # Apache Kafka 4.3 that starts after a kill, also its own, ends what is decided or late before
        # partitions have leaders, and writes no markers there: so nothing is left for it to end
        left = leave(client, "barnabas again", Level(1), 34, has_ending=False)
        before = seen(client, bootstrap)
        barnabas.kill()

    with moving.kafka() as kafka, RawClient(port) as client:
        wait_for_all(client, before)
        assert seen(client, bootstrap) == before
        assert levels(bootstrap) == features
        cast.modern.beat(client)
        cast.go_on(client, bootstrap, left)
        Doing(bootstrap).produce("in", [(None, b"for the visitor")])
        cast.modern.visit(bootstrap)
        cast.living.close()
    # of a small segment there is no index yet when somebody is killed: Kafka makes it
    assert [line for line in complaints(moving) if "Could not find offset index file" not in line] == []


class AsLeft(ApacheKafka):
    """With the settings that stand in the directory."""

    def format(self) -> Path:
        return self.data / "server.properties"


def test_a_directory_of_barnabas_goes_on_in_kafka_and_gets_its_protocol_of_groups(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    data, bootstrap = tmp_path / "data", f"127.0.0.1:{port}"
    with ServeProcess(data, listen=bootstrap) as barnabas, RawClient(port) as client:
        raw.create(client, "in", 4)
        for name in (OUT, OTHER):
            create_topic(client, name, 2)
        raw.find(client, GROUP)
        make_groups(client)
        static = Static(client)
        left = leave(client, "barnabas", Level(2), 31)
        features, before = levels(bootstrap), seen(client, bootstrap)
        assert barnabas.stop() == 0
    with (data / "server.properties").open("a") as properties:
        properties.write("transaction.abort.timed.out.transaction.cleanup.interval.ms=300\n")

    with AsLeft(tmp_path, data=data, port=port), RawClient(port) as client:
        wait_for_all(client, before)
        assert seen(client, bootstrap) == before
        assert levels(bootstrap) == features
        take_up(client, left)
        static.come_back(client)
        set_level(client, "group.version", 1)
        wait_until(lambda: "group.version" in levels(bootstrap), "the new level")
        kept = offsets(client, GROUP, stable=True)
        joined = modern.consumer_heartbeat(client, GROUP, "m", modern.JOIN, "in")
        assert joined.error_code == 0, joined.error_message
        assert {one.group_id: one.group_type for one in listed(client)}[GROUP] == "consumer"
        assert offsets(client, GROUP, stable=True) == kept
