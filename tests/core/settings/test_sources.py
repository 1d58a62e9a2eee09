"""Layers: who wins, what is warned of, what is refused."""

from __future__ import annotations

import pytest

from barnabas.core.settings.broker_settings import Source
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.sources import name_of_variable, resolve


def test_flags_over_environment_over_file_over_default() -> None:
    name, variable = "log.segment.bytes", "KAFKA_LOG_SEGMENT_BYTES"
    file, environment, flags = {name: "2000000"}, {variable: "3000000"}, {name: "4000000"}
    assert resolve().integer(name) == 1 << 30
    assert resolve(file=file).integer(name) == 2_000_000
    assert resolve(file=file, environment=environment).integer(name) == 3_000_000
    settings = resolve(file=file, environment=environment, flags=flags)
    assert settings.integer(name) == 4_000_000
    assert settings.text(name) == "4000000"
    assert settings.source(name) is Source.STATIC_BROKER
    assert settings.is_set(name)
    assert not resolve().is_set(name)
    assert resolve().text(name) is None
    assert resolve().source(name) is Source.DEFAULT


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_SEGMENT_BYTES", "log.segment.bytes"),
        ("KAFKA_SOME__NAME", "some_name"),
        ("KAFKA_SOME___NAME_X", "some-name.x"),
        ("KAFKA_LISTENER_NAME_A__B_SCRAM___SHA___256_SASL", "listener.name.a_b.scram-sha-256.sasl"),
    ],
)
def test_names_of_variables(variable: str, name: str) -> None:
    assert name_of_variable(variable) == name


def test_what_belongs_to_kafkas_scripts_is_no_setting() -> None:
    environment = {"KAFKA_HEAP_OPTS": "-Xmx1G", "KAFKA_OPTS": "", "KAFKA_VERSION": "4.3.0", "HOME": "/root"}
    settings = resolve(environment=environment | {"KAFKA_": "", "KAFKA_BOOTSTRAP_SERVERS": "h:1"})
    assert settings.warnings == ()
    assert all(given.is_built_in for given in settings.static.values())


def test_without_settings_it_is_a_cluster_of_one() -> None:
    settings = resolve()
    assert settings.node_id == 1
    assert settings.roles == ("broker", "controller")
    assert settings.log_dirs == ("barnabas-data",)
    assert not settings.is_set("node.id")
    assert settings.source("node.id") is Source.STATIC_BROKER
    assert settings.integer("broker.id") == 1


def test_an_unknown_name_is_a_warning_with_the_nearest() -> None:
    settings = resolve(file={"log.segmet.bytes": "5"})
    (warning,) = settings.warnings
    assert "log.segmet.bytes" in warning
    assert "did you mean log.segment.bytes?" in warning
    (warning,) = resolve(file={"entirely.else": "5"}).warnings
    assert "did you mean" not in warning


def test_an_unknown_name_is_an_error_under_strict() -> None:
    with pytest.raises(InvalidSetting, match=r"log\.segment\.bytes"):
        resolve(flags={"log.segmet.bytes": "5"}, strict=True)
    # the environment belongs to other programs, too
    assert len(resolve(environment={"KAFKA_MY_APP": "5"}, strict=True).warnings) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zookeeper.connect", "no ZooKeeper"),
        ("rsm.config.bucket", "plug-in"),
        ("config.providers.env.class", "plug-in"),
    ],
)
def test_names_that_kafka_knows_otherwise(name: str, words: str) -> None:
    (warning,) = resolve(file={name: "x"}).warnings
    assert words in warning


def test_settings_of_a_listener_are_known_and_checked() -> None:
    settings = resolve(
        file={
            "listener.name.internal.max.connections": "10",
            "listener.name.internal.plain.sasl.jaas.config": "x",
        },
        strict=True,
    )
    assert settings.integer("listener.name.internal.max.connections") == 10
    with pytest.raises(InvalidSetting, match=r"listener\.name\.internal\.max\.connections"):
        resolve(file={"listener.name.internal.max.connections": "-1"})


def test_an_invalid_value_names_where_it_was_written() -> None:
    with pytest.raises(
        InvalidSetting, match=r"value 5 .*log\.segment\.bytes.*1048576.*KAFKA_LOG_SEGMENT_BYTES"
    ):
        resolve(environment={"KAFKA_LOG_SEGMENT_BYTES": "5"})
    with pytest.raises(InvalidSetting, match="--set"):
        resolve(flags={"auto.create.topics.enable": "maybe"})
    with pytest.raises(InvalidSetting, match="configuration file"):
        resolve(file={"node.id": "-1"})


def test_broker_id_is_node_id() -> None:
    assert resolve(file={"broker.id": "5"}).node_id == 5
    assert resolve(file={"node.id": "6"}).integer("broker.id") == 6
    with pytest.raises(InvalidSetting, match="the same"):
        resolve(file={"node.id": "6"}, flags={"broker.id": "5"})


def test_log_dir_and_log_dirs() -> None:
    assert resolve(file={"log.dir": "/a"}).log_dirs == ("/a",)
    assert resolve(file={"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")


def test_typed_access() -> None:
    settings = resolve(file={"broker.rack": "r1"})
    assert settings.boolean("auto.create.topics.enable") is True
    assert settings.double("log.cleaner.min.cleanable.ratio") == 0.5
    assert settings.string("broker.rack") == "r1"
    assert settings.optional_integer("log.retention.ms") is None
    assert settings.strings("advertised.listeners") == ()
    with pytest.raises(KeyError):
        settings.get("no.such.name")
    with pytest.raises(AssertionError):
        settings.integer("broker.rack")


def test_altered_settings_lie_above_static_ones() -> None:
    name = "message.max.bytes"
    static = resolve(file={name: "1"})
    for_all = static.with_dynamic({}, {name: "2"})
    for_one = static.with_dynamic({name: "3"}, {name: "2"})
    assert (static.integer(name), for_all.integer(name), for_one.integer(name)) == (1, 2, 3)
    assert for_all.source(name) is Source.DYNAMIC_DEFAULT_BROKER
    assert for_one.source(name) is Source.DYNAMIC_BROKER


def test_settings_of_threads_are_accepted_without_effect() -> None:
    settings = resolve(
        file={"num.network.threads": "8", "num.io.threads": "16", "num.partitions": "3"}, strict=True
    )
    assert settings.integer("num.network.threads") == 8
    assert settings.without_effect == ("num.network.threads", "num.io.threads")
