"""Topics created and deleted, cluster and settings described; `--target=kafka` says whether this is right.

What Kafka puts in other words is compared by its error code alone.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping

import pytest

from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.protocol.schema import NO_UUID
from barnabas.testing import Broker
from tests.support.raw_client import RawClient
from tests.support.targets import Target

TOPIC, BROKER, LOGGER = 2, 4, 8
UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS, INVALID_CONFIG, INVALID_REQUEST = 3, 17, 36, 40, 42
NOT_CONTROLLER, DELETION_DISABLED, UNKNOWN_ID, MISMATCHED_ENDPOINT, UNSUPPORTED_ENDPOINT = (
    41,
    73,
    100,
    114,
    115,
)
NewTarget = Callable[[Mapping[str, str]], Target]


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(int(bootstrap.rpartition(":")[2])) as connected:
        yield connected


def _create(
    client: RawClient,
    name: str,
    *,
    version: int = 7,
    partitions: int = 1,
    validate_only: bool = False,
    **configs: str,
) -> CreatableTopicResult:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=[
            CreatableTopicConfig(name=each.replace("_", "."), value=value) for each, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    (result,) = client.ask(request, version, CreateTopicsResponse).topics
    assert result.name == name
    return result


def _delete(
    client: RawClient, name: str | None, topic_id: bytes = NO_UUID, version: int = 6
) -> tuple[int, str | None, bytes]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id)], topic_names=[name or ""], timeout_ms=5000
    )
    (result,) = client.ask(request, version, DeleteTopicsResponse).responses
    return result.error_code, result.name, result.topic_id


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created(client: RawClient, version: int) -> None:
    name = f"created-{version}"
    result = _create(client, name, version=version, partitions=3, segment_bytes="1048576")
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.topic_id != NO_UUID) == (version >= 7)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {each.name: (each.value, each.config_source) for each in result.configs or ()}
        assert configs["segment.bytes"] == ("1048576", 1)
        assert configs["retention.ms"] == ("604800000", 5)
    again = _create(client, name, version=version)
    assert again.error_code == TOPIC_EXISTS
    assert name in (again.error_message or "")


def test_what_is_only_validated_is_not_created(client: RawClient) -> None:
    for _ in range(2):
        assert _create(client, "dry", validate_only=True).error_code == 0


def test_topics_that_cannot_be(client: RawClient) -> None:
    for name in ("", ".", "a b", "x" * 250):
        result = _create(client, name)
        assert (result.error_code, bool(result.error_message)) == (INVALID_TOPIC, True)
    result = _create(client, "bad", retention_ms="soon")
    assert (result.error_code, bool(result.error_message)) == (INVALID_CONFIG, True)


def test_a_topic_is_deleted_by_name_or_by_id(client: RawClient) -> None:
    for version in range(1, 7):
        name = f"deleted-{version}"
        _create(client, name)
        code, told, _ = _delete(client, name, version=version)
        assert (code, told) == (0, name)
        assert _delete(client, name, version=version)[:2] == (UNKNOWN_TOPIC, name)
    topic_id = _create(client, "by-id").topic_id
    assert _delete(client, None, topic_id) == (0, "by-id", topic_id)
    assert _delete(client, None, topic_id) == (UNKNOWN_ID, None, topic_id)


def test_deletions_that_are_refused(client: RawClient) -> None:
    _create(client, "named-twice")
    assert _delete(client, None)[0] == INVALID_REQUEST
    assert _delete(client, "named-twice", b"1" * 16)[0] == INVALID_REQUEST
    request = DeleteTopicsRequest(topics=[], topic_names=["named-twice", "named-twice"], timeout_ms=0)
    results = client.ask(request, 5, DeleteTopicsResponse).responses
    assert [one.error_code for one in results] == [INVALID_REQUEST]
    assert _delete(client, "named-twice")[0] == 0


def test_nothing_is_deleted_where_deletion_is_off(new_target: NewTarget) -> None:
    target = new_target({"delete.topic.enable": "false"})
    with RawClient(target.port) as client:
        topic_id = _create(client, "kept").topic_id
        assert _delete(client, "kept", version=2)[0] == INVALID_REQUEST
        assert _delete(client, "kept", version=3)[0] == DELETION_DISABLED
        assert _delete(client, None, topic_id) == (DELETION_DISABLED, None, topic_id)
        assert _create(client, "kept").error_code == TOPIC_EXISTS


def test_a_disk_that_fails_is_named(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    with RawClient(broker.port) as client:
        _create(client, "before")
        assert broker._memory is not None
        broker._memory.fail("append", errno.ENOSPC, path_glob="*__cluster_metadata*", times=2)
        result = _create(client, "after")
        assert result.error_code == NOT_CONTROLLER
        assert "__cluster_metadata" in (result.error_message or "")
        assert _delete(client, "before")[0] == NOT_CONTROLLER
        assert _create(client, "after").error_code == 0  # there is room again


# ---- cluster ---------------------------------------------------------------------------------------------


def _cluster(
    client: RawClient, version: int, endpoint_type: int = 1, *, operations: bool = False
) -> DescribeClusterResponse:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=False,
    )
    return client.ask(request, version, DescribeClusterResponse)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described(client: RawClient, bootstrap: str, version: int) -> None:
    answer = _cluster(client, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert len(answer.cluster_id) == 22
    assert answer.controller_id == 1
    (broker,) = answer.brokers
    assert (broker.broker_id, f"{broker.host}:{broker.port}", broker.rack) == (1, bootstrap, None)
    assert broker.is_fenced is False
    assert answer.cluster_authorized_operations == -(2**31)
    # create, alter, describe, cluster action, describe and alter configs, idempotent write, create tokens
    assert _cluster(client, version, operations=True).cluster_authorized_operations == 8096


def test_a_broker_does_not_answer_for_controllers(client: RawClient) -> None:
    for endpoint_type, code in (
        (2, MISMATCHED_ENDPOINT),
        (0, UNSUPPORTED_ENDPOINT),
        (3, UNSUPPORTED_ENDPOINT),
    ):
        answer = _cluster(client, 2, endpoint_type)
        assert (answer.error_code, bool(answer.error_message)) == (code, True)
        assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, [])


# ---- settings --------------------------------------------------------------------------------------------


def _describe(
    client: RawClient,
    kind: int,
    name: str,
    *keys: str,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = client.ask(request, version, DescribeConfigsResponse).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_topics_settings(client: RawClient, version: int) -> None:
    _create(client, "set", segment_ms="1234567")
    result = _describe(client, TOPIC, "set", "segment.ms", "nope", "segment.ms", version=version)
    assert (result.error_code, result.error_message) == (0, "")
    (one,) = result.configs
    assert (one.name, one.value, one.read_only, one.is_sensitive) == ("segment.ms", "1234567", False, False)
    assert (one.config_source, one.synonyms) == (1, [])
    assert one.config_type == (5 if version >= 3 else 0)
    assert not one.documentation


def test_all_settings_of_a_topic(client: RawClient) -> None:
    _create(client, "all")
    names = {one.name for one in _describe(client, TOPIC, "all").configs}
    assert {"cleanup.policy", "retention.ms", "segment.bytes", "min.insync.replicas"} <= names
    assert len(names) == 33
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="all", configuration_keys=[])]
    )
    (result,) = client.ask(request, 4, DescribeConfigsResponse).results
    assert {one.name for one in result.configs} == names


def test_synonyms_and_sentences_are_told_to_those_who_ask(client: RawClient) -> None:
    _create(client, "told", min_insync_replicas="2")
    (one,) = _describe(
        client, TOPIC, "told", "min.insync.replicas", synonyms=True, documentation=True
    ).configs
    # the topic's own, what was altered for all brokers when the cluster was made, the default
    assert [(each.value, each.source) for each in one.synonyms] == [("2", 1), ("1", 3), ("1", 5)]
    assert one.documentation


def test_a_brokers_settings(client: RawClient) -> None:
    result = _describe(client, BROKER, "1", "num.partitions", "node.id", "nope", synonyms=True)
    found = {one.name: one for one in result.configs}
    assert set(found) == {"num.partitions", "node.id"}
    assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("1", 5)
    assert (found["node.id"].value, found["node.id"].read_only) == ("1", True)
    assert [(each.name, each.source) for each in found["num.partitions"].synonyms] == [("num.partitions", 5)]
    assert len(_describe(client, BROKER, "1").configs) > 200
    assert _describe(client, BROKER, "01", "num.partitions").error_code == 0


def test_what_was_altered_for_all_brokers(client: RawClient) -> None:
    result = _describe(client, BROKER, "", synonyms=True)
    (one,) = result.configs
    assert (one.name, one.value, one.config_source) == ("min.insync.replicas", "1", 3)
    assert [(each.name, each.value, each.source) for each in one.synonyms] == [
        ("min.insync.replicas", "1", 3)
    ]
    assert _describe(client, BROKER, "", "num.partitions").configs == []


def test_the_loggers_of_a_broker(client: RawClient, target_kind: str) -> None:
    (root,) = _describe(client, LOGGER, "1", "root").configs
    assert root.config_source == 6
    assert root.value in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
    assert _describe(client, LOGGER, "1", "nope").configs == []
    if target_kind == "memory":
        logging.getLogger("barnabas.node").setLevel(logging.CRITICAL)
        try:
            (one,) = _describe(client, LOGGER, "1", "barnabas.node").configs
        finally:
            logging.getLogger("barnabas.node").setLevel(logging.NOTSET)
        assert one.value == "FATAL"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no-such-topic", UNKNOWN_TOPIC),
        (TOPIC, "", INVALID_TOPIC),
        (TOPIC, "a b", INVALID_TOPIC),
        (BROKER, "2", INVALID_REQUEST),
        (BROKER, "x", INVALID_REQUEST),
        (LOGGER, "", INVALID_REQUEST),
        (LOGGER, "2", INVALID_REQUEST),
        (0, "x", INVALID_REQUEST),
        (1, "x", INVALID_REQUEST),
        (99, "x", INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(client: RawClient, kind: int, name: str, code: int) -> None:
    result = _describe(client, kind, name)
    assert (result.error_code, result.configs) == (code, [])


def test_each_resource_is_answered_for_itself(client: RawClient) -> None:
    asked = [(TOPIC, "no-such-topic"), (BROKER, "1"), (BROKER, "1"), (BROKER, "7")]
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["node.id"])
        for kind, name in asked
    ]
    answer = client.ask(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse)
    told = sorted((one.resource_type, one.resource_name, one.error_code) for one in answer.results)
    assert told == [
        (TOPIC, "no-such-topic", UNKNOWN_TOPIC),
        (BROKER, "1", 0),
        (BROKER, "1", 0),
        (BROKER, "7", INVALID_REQUEST),
    ]
