"""Producer ids, settings, and the first records of a cluster."""

from __future__ import annotations

import pytest

from barnabas.controller.bootstrap import FEATURE_LEVELS, activation_records, bootstrap_records
from barnabas.controller.configs import ConfigResult, alter_config
from barnabas.controller.producer_ids import allocate_producer_ids
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.settings.topic import validate_topic_overrides
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from barnabas.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
)
from barnabas.metadata.replay import Replayer
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tests.controller.clusters import Cluster, topic
from tests.support.images import image_of


def test_blocks_of_producer_ids_follow_each_other() -> None:
    cluster = Cluster(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch)
    starts = []
    for _ in range(3):
        response = cluster.carry_out(allocate_producer_ids(cluster.image, request))
        assert (response.error_code, response.producer_id_len) == (0, 1000)
        starts.append(response.producer_id_start)
    assert starts == [0, 1000, 2000]
    assert cluster.image.next_producer_id == 3000


@pytest.mark.parametrize(
    ("broker_id", "epoch_off", "expected"),
    [(2, 0, "STALE_BROKER_EPOCH"), (1, -1, "STALE_BROKER_EPOCH")],
)
def test_producer_ids_are_for_registered_brokers(broker_id: int, epoch_off: int, expected: str) -> None:
    cluster = Cluster(1)
    epoch = cluster.image.brokers[1].epoch + epoch_off
    decision = allocate_producer_ids(
        cluster.image, AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
    )
    assert (WIRE_ERRORS[decision.response.error_code].name, decision.records) == (expected, [])


def test_producer_ids_come_to_an_end() -> None:
    cluster = Cluster(1)
    epoch = cluster.image.brokers[1].epoch
    cluster.append([ProducerIdsRecord(broker_id=1, broker_epoch=epoch, next_producer_id=(1 << 63) - 1000)])
    decision = allocate_producer_ids(
        cluster.image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    )
    assert decision.response.error_code != 0
    assert decision.records == []


def altered(cluster: Cluster, name: str, changes: dict[str, str | None], kind: int = TOPIC_RESOURCE) -> str:
    result = cluster.carry_out(
        alter_config(cluster.image, kind, name, changes, validate_topic_overrides if kind == 2 else _any)
    )
    assert isinstance(result, ConfigResult)
    return WIRE_ERRORS[result.error_code].name


def _any(new: object) -> None:
    pass


def test_settings_of_a_topic_are_set_and_forgotten() -> None:
    cluster = Cluster(1)
    cluster.create(topic("t", configs={"retention.ms": "1"}))
    assert altered(cluster, "t", {"retention.ms": None, "segment.bytes": "2000000"}) == "NONE"
    assert cluster.image.topic_config("t") == {"segment.bytes": "2000000"}
    assert altered(cluster, "t", {"segment.bytes": "many"}) == "INVALID_CONFIG"
    assert altered(cluster, "t", {"no.such": "1"}) == "INVALID_CONFIG"
    assert altered(cluster, "missing", {"retention.ms": "1"}) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert cluster.image.topic_config("t") == {"segment.bytes": "2000000"}


def test_what_stays_as_it_was_is_not_told() -> None:
    cluster = Cluster(1)
    cluster.create(topic("t", configs={"retention.ms": "1"}))
    changes = {"retention.ms": "1", "segment.bytes": None}
    assert alter_config(cluster.image, TOPIC_RESOURCE, "t", changes, _any).records == []


def test_what_results_is_judged_as_a_whole() -> None:
    cluster = Cluster(1)
    cluster.create(topic("t", configs={"max.compaction.lag.ms": "10"}))
    assert altered(cluster, "t", {"min.compaction.lag.ms": "20"}) == "INVALID_CONFIG"
    assert altered(cluster, "t", {"min.compaction.lag.ms": "20", "max.compaction.lag.ms": "30"}) == "NONE"


def test_settings_of_brokers() -> None:
    cluster = Cluster(1)
    assert altered(cluster, "1", {"log.cleaner.threads": "2"}, BROKER_RESOURCE) == "NONE"
    assert altered(cluster, "", {"log.cleaner.threads": "3"}, BROKER_RESOURCE) == "NONE"
    assert altered(cluster, "one", {"log.cleaner.threads": "3"}, BROKER_RESOURCE) == "INVALID_REQUEST"
    assert altered(cluster, "1", {"log.cleaner.threads": "3"}, 8) == "INVALID_REQUEST"
    assert cluster.image.broker_config("1") == {"log.cleaner.threads": "2"}
    assert cluster.image.broker_config()["log.cleaner.threads"] == "3"


@pytest.mark.parametrize(("kind", "name"), [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")])
def test_another_minimum_of_replicas_starts_eligibility_over(kind: int, name: str) -> None:
    cluster = Cluster(1)
    cluster.create(topic("t"))
    changes: dict[str, str | None] = {"min.insync.replicas": "2"}
    records = alter_config(cluster.image, kind, name, changes, _any).records
    assert records == [
        ConfigRecord(resource_type=kind, resource_name=name, name="min.insync.replicas", value="2"),
        ClearElrRecord(topic_name=name),
    ]


def test_the_minimum_of_replicas_belongs_to_the_cluster_with_elr() -> None:
    cluster, without = Cluster(1), Cluster(1, has_elr=False)
    one, gone = {"min.insync.replicas": "1"}, {"min.insync.replicas": None}
    assert altered(cluster, "1", {**one}, BROKER_RESOURCE) == "INVALID_CONFIG"
    assert altered(cluster, "", {**gone}, BROKER_RESOURCE) == "INVALID_CONFIG"
    assert altered(without, "1", {**one}, BROKER_RESOURCE) == "NONE"


def test_an_empty_log_begins_with_the_levels_of_features() -> None:
    image = ClusterImage()
    records = activation_records(image, min_insync_replicas=2)
    assert isinstance(records[0], BeginTransactionRecord)
    assert records[1:4] == bootstrap_records()
    assert records[1] == FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert isinstance(records[-1], EndTransactionRecord)
    image = image_of(*records)
    assert image.features == FEATURE_LEVELS
    assert image.broker_config() == {"min.insync.replicas": "2"}
    assert activation_records(image) == []


def test_a_transaction_left_open_is_aborted() -> None:
    replayer = Replayer(ClusterImage())
    replayer.replay(0, 1, activation_records(replayer.image)[:-1])
    records = activation_records(replayer.image, in_transaction=replayer.in_transaction)
    assert isinstance(records[0], AbortTransactionRecord)
    replayer.replay(replayer.image.offset, 2, records)
    assert replayer.image.features == FEATURE_LEVELS
    assert not replayer.in_transaction


def test_levels_that_kafka_finalised_are_kept() -> None:
    image = image_of(*activation_records(ClusterImage(), levels={**FEATURE_LEVELS, "share.version": 1}))
    assert activation_records(image) == []
    assert image.features["share.version"] == 1
