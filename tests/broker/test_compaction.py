"""Compaction in a whole node: whose settings it goes by, and what it never touches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.directories import upkeep
from barnabas.broker.handlers import fetch
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.settings.current_settings import CurrentSettings
from barnabas.log import trimming, untouched
from barnabas.log.compaction.cleaning import CleanerIo, clean
from barnabas.log.compaction.survey import survey
from barnabas.log.config import CleanerSettings
from barnabas.log.partition import PartitionLog
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.records.kernel import OffsetMap
from barnabas.records.reader import read_records
from barnabas.testing import Broker
from tests.support.logs import batch, read_all
from tests.support.raw_client import RawClient, fetch_request, wait_until

EVERY_TOPIC = {
    "log.cleanup.policy": "compact",
    "log.cleaner.backoff.ms": "5",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.cleaner.delete.retention.ms": "7",
    "log.cleaner.min.compaction.lag.ms": "0",
    "log.cleaner.max.compaction.lag.ms": "12345678",
}


def create(broker: Broker, name: str, **settings: str) -> PartitionLog:
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    with RawClient(broker.port) as client:
        answer = client.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert [one.error_code for one in answer.topics] == [0]
    return log_of(broker, name)


def log_of(broker: Broker, name: str) -> PartitionLog:
    async def opened() -> PartitionLog:
        replicas = broker.node.broker.replicas
        topic = replicas.topic(name, b"", by_id=False)
        return (await replicas.leader(topic, 0)).log

    return broker.run(opened())


def fill(broker: Broker, log: PartitionLog, rounds: int = 4) -> None:
    async def append() -> None:
        for _ in range(rounds):
            await log.append_as_leader(batch(10), 0)
            await log.roll()
            log.advance_high_watermark(log.end_offset)

    broker.run(append())


def offsets(broker: Broker, log: PartitionLog) -> list[int]:
    return [record.offset for record in broker.run(read_all(log))]


def test_topics_have_the_brokers_settings_and_the_metadata_is_never_compacted(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker(settings=EVERY_TOPIC)
    log = create(broker, "t")
    own = create(broker, "own", delete_retention_ms="9", cleanup_policy="delete")
    config = log.config
    assert config.is_compacted
    assert (config.min_cleanable_dirty_ratio, config.delete_retention_ms) == (0.1, 7)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (0, 12345678)
    assert (own.config.delete_retention_ms, own.config.is_compacted) == (9, False)
    fill(broker, own)
    fill(broker, log)
    wait_until(lambda: log.cleaned_offset == 40, "it is compacted")
    assert offsets(broker, log) == list(range(30, 40))
    assert len(offsets(broker, own)) == 40
    assert broker.run(untouched.compacted(broker.node.directories[0])) == [("t", 0)]
    metadata = broker.node.storage.logs.opened(CLUSTER_METADATA, 0)
    assert metadata is not None
    assert metadata.cleaned_offset is None


@pytest.mark.parametrize("is_enabled", [True, False])
def test_it_can_be_switched_off(
    make_broker: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch, is_enabled: bool
) -> None:
    asked_for = []

    async def housekeeping(
        directory: object, clock: object, intervals: object, cleaner: Callable[[], CleanerSettings] | None
    ) -> None:
        asked_for.append(cleaner is not None)

    monkeypatch.setattr(upkeep, "keep_house", housekeeping)
    make_broker(settings={"log.cleaner.enable": str(is_enabled).lower()})
    assert asked_for == [is_enabled]


def test_the_settings_reach_the_cleaner_as_they_are_now(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(
        settings={
            "log.cleaner.backoff.ms": "0",
            "log.cleaner.dedupe.buffer.size": "2000000",
            "log.cleaner.io.buffer.size": "1000",
            "log.cleaner.io.buffer.load.factor": "0.5",
            "log.cleaner.io.max.bytes.per.second": "1e6",
        }
    )
    settings = CurrentSettings(1, broker.node.quorum.metadata, broker.node.settings)
    assert settings.cleaner() == (1, 2_000_000, 1000, 0.5, 1e6)  # the loop is not to spin


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_node_ends_in_the_middle_of_a_compaction(make_broker: Callable[..., Broker], how: str) -> None:
    slow = {**EVERY_TOPIC, "log.cleaner.io.max.bytes.per.second": "1"}  # it would take half an hour
    broker = make_broker(settings=slow)
    log = create(broker, "t")
    fill(broker, log)
    wait_until(lambda: broker.node.directories[0].being_cleaned is log, "a compaction")
    getattr(broker, how)()
    broker.start()
    assert broker.node.storage.logs.was_clean is (how == "stop")
    assert len(offsets(broker, log_of(broker, "t"))) == 40


async def compact_and_sweep(log: PartitionLog) -> None:
    """Compact a log now, and remove what was replaced."""

    async def unhurried(size_bytes: int) -> None:
        pass

    io = CleanerIo(1 << 19, 0.9, unhurried)
    await clean(log, await survey(log), OffsetMap(1 << 20, bytes(16)), io=io)
    await trimming.sweep(log)
    assert log.doomed == []


def test_what_is_compacted_and_removed_under_a_long_poll_is_looked_up_again(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker(settings={**EVERY_TOPIC, "log.cleaner.enable": "false"})
    log = create(broker, "t", file_delete_delay_ms="0")
    fill(broker, log)
    position = log.bases[-2]

    def replica() -> Replica:
        found = broker.node.broker.replicas.opened(
            broker.node.broker.replicas.topic("t", b"", by_id=False), 0
        )
        assert found is not None
        return found

    with RawClient(broker.port) as client:
        client.send(fetch_request("t", offset=position, max_wait_ms=1500, min_bytes=1 << 20), 12)
        wait_until(lambda: bool(replica().marks.polls), "it waits for more")
        broker.run(compact_and_sweep(log))
        _, answer = client.receive_response(FetchResponse, 12, flexible=True)
        (partition,) = answer.responses[0].partitions
    assert [record.offset for record in read_records(partition.records or b"")] == list(range(30, 40))


def test_what_is_removed_while_other_partitions_are_read_is_looked_up_again(
    make_broker: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(settings={**EVERY_TOPIC, "log.cleaner.enable": "false"})
    log, other = create(broker, "t", file_delete_delay_ms="0"), create(broker, "u")
    fill(broker, log)
    fill(broker, other)
    read, seen = fetch._read_partition, []

    async def read_slowly(replica: Replica, *arguments: Any, **options: Any) -> Any:
        seen.append(replica.name)
        if replica.name == "u" and "u" not in seen[:-1]:
            await compact_and_sweep(log)  # what was found in it is gone
        return await read(replica, *arguments, **options)

    monkeypatch.setattr(fetch, "_read_partition", read_slowly)
    request = fetch_request("t", offset=log.bases[-2])
    request.topics += fetch_request("u", offset=0).topics
    with RawClient(broker.port) as client:
        answer = client.ask(request, 12, FetchResponse)
    of_t, of_u = (topic.partitions[0] for topic in answer.responses)
    assert seen == ["t", "u", "t", "u"]
    assert [record.offset for record in read_records(of_t.records or b"")] == list(range(30, 40))
    assert [record.offset for record in read_records(of_u.records or b"")][:10] == list(range(10))
