"""Settings altered, listed and described over the wire; `--target=kafka` says whether this is right.

Kafka answers before its broker has heeded a change: what it comes to is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.configs import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    DONE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    Answer,
    Change,
    alter,
    alter_several,
    described,
    listed,
    replace,
    value_of,
)
from tests.support.raw_client import RawClient, wait_until
from tests.support.targets import make_target

# ruff: noqa: E501


@pytest.fixture(scope="module")
def port(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A broker whose settings may be altered, with a topic t."""
    target = make_target(target_kind, tmp_path_factory.mktemp("target"), {"log.roll.hours": "100"})
    target.start()
    new = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[new], timeout_ms=10_000, validate_only=False)
    with RawClient(target.port) as client:
        client.ask(request, 7, CreateTopicsResponse)
        wait_until(lambda: described(client, TOPIC, "t")[0].error == "NONE", "the topic")
    yield target.port
    target.stop()


@pytest.fixture
def client(port: int) -> Iterator[RawClient]:
    with RawClient(port) as connected:
        yield connected


def becomes(client: RawClient, kind: int, name: str, setting: str, value: str | None) -> None:
    wait_until(lambda: value_of(client, kind, name, setting) == value, f"{setting}={value}")


REFUSED: list[tuple[int, str, list[Change], str, str]] = [
    (TOPIC, "t", [("segment.bytes", SET, "x")], "INVALID_CONFIG", "Invalid value x for configuration segment.bytes: Not a number of type INT"),
    (TOPIC, "t", [("segment.bytes", SET, "1")], "INVALID_CONFIG", "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
    (TOPIC, "t", [("segment.bytes", SET, None)], "INVALID_REQUEST", "Null value not supported for : segment.bytes"),
    (TOPIC, "t", [("segment.bytes", APPEND, "1")], "INVALID_CONFIG", "Can't APPEND to key segment.bytes because its type is not LIST."),
    (TOPIC, "t", [("nope", SET, "1")], "INVALID_CONFIG", "Unknown topic config name: nope"),
    (TOPIC, "t", [("flush.ms", SET, "-1"), ("not", SET, "1")], "INVALID_CONFIG", "Unknown topic config name: not"),
    (TOPIC, "t", [("segment.ms", SET, "1"), ("segment.ms", SET, "1")], "INVALID_REQUEST", "Error due to duplicate config keys"),
    (TOPIC, "nope", [("segment.ms", SET, "1")], "UNKNOWN_TOPIC_OR_PARTITION", "The topic 'nope' does not exist."),
    (TOPIC, "", [("segment.ms", SET, "1")], "INVALID_REQUEST", "Default topic resources are not allowed."),
    (TOPIC, "t", [("preallocate", SET, "yes")], "INVALID_CONFIG", "Invalid value yes for configuration preallocate: Expected value to be either true or false"),
    (TOPIC, "t", [("cleanup.policy", SET, "delete,,compact")], "INVALID_CONFIG", "Configuration 'cleanup.policy' values must not be empty."),
    (TOPIC, "t", [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "1")], "INVALID_CONFIG", "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (1)"),
    (TOPIC, "t", [("remote.storage.enable", SET, "true")], "INVALID_CONFIG", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."),
    (BROKER, "1", [("node.id", SET, "1")], "INVALID_REQUEST", "Cannot update these configs dynamically: [node.id]"),
    (BROKER, "", [("num.partitions", SET, "3")], "INVALID_REQUEST", "Cannot update these configs dynamically: [num.partitions]"),
    (BROKER, "", [("listeners", SET, "PLAINTEXT://:1")], "INVALID_REQUEST", "Cannot update these configs at default cluster level, broker id must be specified: [listeners]"),
    (BROKER, "1", [("ssl.keystore.location", SET, "/x")], "INVALID_REQUEST", "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]"),
    (BROKER, "1", [("log.segment.bytes", SET, "5")], "INVALID_REQUEST", "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576"),
    (BROKER, "1", [("log.segment.bytes", APPEND, "5")], "INVALID_CONFIG", "Config value append is not allowed for config key: log.segment.bytes"),
    (BROKER, "1", [("nope", SUBTRACT, "5")], "INVALID_CONFIG", "Unknown config name: nope"),
    (BROKER, "1", [("log.segment.bytes", 7, "5")], "INVALID_REQUEST", "Unknown operations type 7"),
    (BROKER, "2", [("log.retention.ms", SET, "1")], "INVALID_REQUEST", "Unexpected broker id, expected 1, but received 2"),
    (BROKER, "x", [("log.retention.ms", SET, "1")], "INVALID_REQUEST", "Node id must be an integer, but it is: x"),
    (BROKER, "1", [("min.insync.replicas", SET, "2")], "INVALID_CONFIG", "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
    (BROKER, "", [("min.insync.replicas", DELETE, None)], "INVALID_CONFIG", "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
    (BROKER, "1", [("leader.replication.throttled.rate", SET, "x")], "INVALID_REQUEST", "Invalid value x for configuration leader.replication.throttled.rate: Not a number of type LONG"),
    (LOGGER, "1", [("root", SET, "OFF")], "INVALID_CONFIG", "Cannot set the log level of root to OFF as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
    (LOGGER, "1", [("root", DELETE, None)], "INVALID_REQUEST", "Removing the log level of the root logger is not allowed"),
    (LOGGER, "1", [("root", APPEND, "INFO")], "INVALID_REQUEST", "APPEND operation is not allowed for the BROKER_LOGGER resource"),
    (LOGGER, "1", [("nope", SET, "INFO")], "INVALID_CONFIG", "Logger nope does not exist!"),
    (LOGGER, "2", [("root", SET, "INFO")], "INVALID_REQUEST", "Unexpected node id. Expected 1, but received 2"),
    (LOGGER, "", [("root", SET, "INFO")], "INVALID_REQUEST", "Node id must be an integer, but it is: "),
    (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], "INVALID_REQUEST", "Default group resources are not allowed."),
    (GROUP, "g", [("nope", SET, "1")], "INVALID_CONFIG", "Unknown group config name: nope"),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "1")], "INVALID_CONFIG", "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"),
    (CLIENT_METRICS, "", [("metrics", SET, "*")], "INVALID_REQUEST", "Subscription name can't be empty"),
    (CLIENT_METRICS, "m", [("nope", SET, "1")], "INVALID_REQUEST", "Unknown client metrics configuration: nope"),
    (CLIENT_METRICS, "m", [("metrics", APPEND, "a")], "INVALID_CONFIG", "Can't APPEND to key metrics because its type is not LIST."),
    (CLIENT_METRICS, "m", [("interval.ms", SET, "99")], "INVALID_REQUEST", "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
    (1, "x", [("a", SET, "1")], "INVALID_REQUEST", "Unknown resource type 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "changes", "error", "message"), REFUSED, ids=[f"{one[0]}-{one[4]}" for one in REFUSED]
)
def test_what_is_refused(
    client: RawClient, kind: int, name: str, changes: list[Change], error: str, message: str
) -> None:
    assert alter(client, kind, name, *changes) == Answer(error, message)
    assert alter(client, kind, name, *changes, validate_only=True, version=0) == Answer(error, message)


def test_a_list_grows_and_shrinks(client: RawClient) -> None:
    name = "cleanup.policy"
    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (DELETE, None, "delete"),
    ):
        assert alter(client, TOPIC, "t", (name, operation, value)) == DONE
        becomes(client, TOPIC, "t", name, expected)


def test_texts_are_no_longer_than_kafka_reads_them(client: RawClient, port: int) -> None:
    """A longer one would keep Kafka from starting with what was stored."""
    assert alter(client, BROKER, "1", ("of.a.plug.in", SET, "x" * 32_767)) == DONE
    assert alter(client, BROKER, "1", ("of.a.plug.in", DELETE, None)) == DONE
    with RawClient(port) as other, pytest.raises((EOFError, ConnectionError)):
        alter(other, BROKER, "1", ("of.a.plug.in", SET, "x" * 32_768))


def test_only_judged_is_not_done(client: RawClient) -> None:
    assert alter(client, TOPIC, "t", ("retention.ms", SET, "77"), validate_only=True) == DONE
    assert replace(client, TOPIC, "t", [("retention.ms", "77")], validate_only=True) == DONE
    assert alter(client, TOPIC, "t", ("segment.ms", SET, "7777")) == DONE
    becomes(client, TOPIC, "t", "segment.ms", "7777")
    assert value_of(client, TOPIC, "t", "retention.ms") == "604800000"
    assert alter(client, TOPIC, "t", ("segment.ms", DELETE, None)) == DONE


def test_a_resource_that_stands_there_twice_is_refused_both_times(client: RawClient) -> None:
    twice = [(TOPIC, "t", [("segment.ms", SET, "5000")])] * 2
    other = (GROUP, "other", [("share.isolation.level", SET, "read_committed")])
    refused = Answer("INVALID_REQUEST", "Each resource must appear at most once.")
    assert alter_several(client, [twice[0], other, twice[1]]) == [refused, DONE, refused]
    becomes(client, GROUP, "other", "share.isolation.level", "read_committed")
    assert alter(client, GROUP, "other", ("share.isolation.level", DELETE, None)) == DONE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_all_settings_are_replaced(client: RawClient, version: int) -> None:
    both = [("retention.ms", "5000"), ("segment.ms", "70000")]
    assert replace(client, TOPIC, "t", both, version=version) == DONE
    becomes(client, TOPIC, "t", "segment.ms", "70000")
    assert replace(client, TOPIC, "t", [("retention.ms", " 6000 ")], version=version) == DONE
    becomes(client, TOPIC, "t", "retention.ms", "6000")
    assert value_of(client, TOPIC, "t", "segment.ms") == "360000000"
    assert replace(client, TOPIC, "t", [], version=version) == DONE
    becomes(client, TOPIC, "t", "retention.ms", "604800000")
    nulls = Answer("INVALID_REQUEST", "Null value not supported for : segment.ms")
    assert replace(client, TOPIC, "t", [("segment.ms", None)], version=version) == nulls
    unknown = Answer("INVALID_REQUEST", "Unknown resource type 8")
    assert replace(client, LOGGER, "1", [("root", "INFO")], version=version) == unknown


def synonyms(client: RawClient, kind: int, name: str, setting: str) -> list[tuple[str, str | None, int]]:
    found = described(client, kind, name, setting)[1][setting]
    return [(each.name, each.value, each.source) for each in found.synonyms]


def test_one_broker_over_all_over_static_over_default(client: RawClient) -> None:
    name = "log.roll.ms"
    assert synonyms(client, BROKER, "1", name) == []  # set under another name, and so left out
    assert alter(client, BROKER, "", (name, SET, "50000")) == DONE
    assert alter(client, BROKER, "1", (name, SET, "60000")) == DONE
    becomes(client, BROKER, "1", name, "60000")
    everywhere = [
        (name, "60000", 2),
        (name, "50000", 3),
        ("log.roll.hours", "100", 4),
        ("log.roll.hours", "168", 5),
    ]
    assert synonyms(client, BROKER, "1", name) == everywhere
    assert synonyms(client, BROKER, "", name) == [(name, "50000", 3)]
    assert synonyms(client, TOPIC, "t", "segment.ms") == everywhere
    assert described(client, TOPIC, "t", "segment.ms")[1]["segment.ms"].config_source == 2
    for broker in ("", "1"):
        assert alter(client, BROKER, broker, (name, DELETE, None)) == DONE
    becomes(client, TOPIC, "t", "segment.ms", "360000000")


def test_what_is_set_for_all_brokers_is_shown_as_it_was_written(client: RawClient) -> None:
    name = "log.cleaner.io.max.bytes.per.second"
    assert alter(client, BROKER, "", (name, SET, "1000000")) == DONE
    becomes(client, BROKER, "1", name, "1000000.0")
    assert value_of(client, BROKER, "", name) == "1000000"
    assert alter(client, BROKER, "", (name, DELETE, None)) == DONE


@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [
        ("of.a.plug.in", "1", (None, True, True, 0)),
        ("leader.replication.throttled.rate", "1000", ("1000", False, False, 5)),
        ("listener.name.plaintext.max.connections", "50", ("50", True, False, 3)),
        ("log.cleanup.policy", "compact, delete", ("compact,delete", False, False, 7)),
    ],
)
def test_what_else_brokers_may_have(
    client: RawClient, setting: str, value: str, shown: tuple[str | None, bool, bool, int]
) -> None:
    assert alter(client, BROKER, "1", (setting, SET, value)) == DONE
    wait_until(lambda: synonyms_are_dynamic(client, setting), setting)
    found = described(client, BROKER, "1", setting)[1][setting]
    assert (found.value, found.read_only, found.is_sensitive, found.config_type) == shown
    assert alter(client, BROKER, "1", (setting, DELETE, None)) == DONE


def synonyms_are_dynamic(client: RawClient, setting: str) -> bool:
    found = described(client, BROKER, "1", setting)[1].get(setting)
    return found is not None and found.config_source == 2


def test_groups_and_subscriptions_are_listed_while_something_is_set(client: RawClient) -> None:
    assert alter(client, GROUP, "of-mine", ("consumer.session.timeout.ms", SET, "50000")) == DONE
    assert replace(client, CLIENT_METRICS, "sub", [("interval.ms", "1000"), ("metrics", "a,b")]) == DONE
    wait_until(lambda: (CLIENT_METRICS, "sub") in listed(client)[1], "the subscription")
    assert listed(client) == ("NONE", [(2, "t"), (4, "1"), (8, "1"), (16, "sub"), (32, "of-mine")])
    assert listed(client, TOPIC, GROUP, TOPIC) == ("NONE", [(2, "t"), (32, "of-mine")])
    assert listed(client, version=0) == ("NONE", [(16, "sub")])
    assert listed(client, GROUP, 99) == ("UNSUPPORTED_VERSION", [])
    shown = described(client, GROUP, "of-mine")[1]
    assert len(shown) == 17
    timeout = shown["consumer.session.timeout.ms"]
    assert (timeout.value, timeout.config_source, timeout.config_type) == ("50000", 8, 3)
    assert timeout.documentation
    interval = described(client, CLIENT_METRICS, "sub")[1]["interval.ms"]
    assert (interval.value, interval.config_source, len(interval.synonyms)) == ("1000", 7, 1)
    assert alter(client, GROUP, "of-mine", ("consumer.session.timeout.ms", DELETE, None)) == DONE
    assert replace(client, CLIENT_METRICS, "sub", []) == DONE
    wait_until(lambda: listed(client, GROUP, CLIENT_METRICS) == ("NONE", []), "nothing to be set")


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (GROUP, "", "Group name must not be empty"),
        (CLIENT_METRICS, "", "Client metrics subscription name must not be empty"),
        (LOGGER, "", "Broker id must not be empty"),
        (LOGGER, "2", "Unexpected broker id, expected 1 but received 2"),
        (BROKER, "x", "Broker id must be an integer, but it is: x"),
        (BROKER, "2", "Unexpected broker id, expected 1 or empty string, but received 2"),
    ],
)
def test_what_cannot_be_described(client: RawClient, kind: int, name: str, message: str) -> None:
    assert described(client, kind, name) == (Answer("INVALID_REQUEST", message), {})


def test_levels_of_loggers_take_effect_at_once(client: RawClient) -> None:
    before = value_of(client, LOGGER, "1", "root")
    for level in ("TRACE", "FATAL", before or "WARN"):
        assert alter(client, LOGGER, "1", ("root", SET, level)) == DONE
        assert value_of(client, LOGGER, "1", "root") == level
