"""Listeners; what Kafka refuses of them is in test_against_kafka.py as well."""

from __future__ import annotations

import pytest

from barnabas.core.settings.broker_settings import Source
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.describe import describe_broker
from barnabas.core.settings.listeners import (
    Listener,
    Listeners,
    listen_advertised,
    listen_flags,
    read_listeners,
)
from barnabas.core.settings.sources import BUILT_IN, resolve


def listeners(**file: str) -> Listeners:
    return read_listeners(resolve(file={name.replace("_", "."): text for name, text in file.items()}))


def test_without_settings_it_listens_on_loopback() -> None:
    found = listeners()
    assert found.broker == (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert found.controller == (Listener("CONTROLLER", "127.0.0.1", 10092, "PLAINTEXT"),)
    assert found.advertised == found.broker
    assert found.inter_broker == "PLAINTEXT"
    assert all(each.is_loopback for each in found.broker + found.controller)


def test_a_controller_gets_its_listener_above_the_first() -> None:
    found = listeners(listeners="PLAINTEXT://h:19092")
    assert found.controller == (Listener("CONTROLLER", "h", 20092, "PLAINTEXT"),)
    assert listeners(listeners="PLAINTEXT://h:0").controller[0].port == 0
    with pytest.raises(InvalidSetting, match="no room"):
        listeners(listeners="PLAINTEXT://h:65000")


def test_names_chosen_on_purpose_must_be_listeners() -> None:
    with pytest.raises(InvalidSetting, match="a controller needs a listener named QUORUM"):
        listeners(listeners="PLAINTEXT://h:1", controller_listener_names="QUORUM")


def test_a_listener_at_any_port_is_advertised_at_its_own() -> None:
    found = listeners(listeners="PLAINTEXT://127.0.0.1:0")
    assert found.advertised_at({"PLAINTEXT": 4711}, "me") == (
        Listener("PLAINTEXT", "127.0.0.1", 4711, "PLAINTEXT"),
    )


def test_a_listener_without_a_host_is_advertised_at_this_machine() -> None:
    found = listeners(listeners="PLAINTEXT://:9092")
    assert not found.broker[0].is_loopback
    assert found.advertised_at({}, "me")[0].host == "me"


def test_several_listeners_and_what_is_advertised_of_them() -> None:
    found = listeners(
        listeners="inside://:9092,outside://0.0.0.0:9094,controller://:9093",
        advertised_listeners="INSIDE://b1:9092,OUTSIDE://kafka.example:19094",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    )
    assert [each.name for each in found.broker] == ["INSIDE", "OUTSIDE"]
    assert [each.endpoint for each in found.advertised] == [
        "INSIDE://b1:9092",
        "OUTSIDE://kafka.example:19094",
    ]
    assert found.inter_broker == "INSIDE"


def test_ipv6() -> None:
    found = listeners(listeners="PLAINTEXT://[::1]:9092")
    assert found.broker == (Listener("PLAINTEXT", "::1", 9092, "PLAINTEXT"),)
    assert found.broker[0].endpoint == "PLAINTEXT://[::1]:9092"
    assert found.broker[0].is_loopback


def test_a_listener_name_need_not_be_mapped_if_it_is_the_controllers() -> None:
    found = listeners(listeners="PLAINTEXT://h:1,QUORUM://h:2", controller_listener_names="quorum")
    assert found.controller == (Listener("QUORUM", "h", 2, "PLAINTEXT"),)


def test_what_is_advertised_must_be_reachable() -> None:
    for host in ("0.0.0.0", "[::]"):
        with pytest.raises(InvalidSetting, match=r"advertised\.listeners=PLAINTEXT://<a host"):
            listeners(listeners=f"PLAINTEXT://{host}:9092")


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:10092"),
        (":0", "PLAINTEXT://:0,CONTROLLER://:0"),
        ("::1:9092", "PLAINTEXT://[::1]:9092,CONTROLLER://[::1]:10092"),
        ("[::1]:9092", "PLAINTEXT://[::1]:9092,CONTROLLER://[::1]:10092"),
    ],
)
def test_listen_flags(endpoint: str, expected: str) -> None:
    flags = listen_flags(endpoint)
    assert flags["listeners"] == expected
    read_listeners(resolve(flags=flags, file={"controller.listener.names": "QUORUM"}))


@pytest.mark.parametrize("endpoint", ["localhost", "localhost:", "localhost:65000", "h:-1", "9092"])
def test_listen_flags_refuse(endpoint: str) -> None:
    with pytest.raises(InvalidSetting, match="--listen"):
        listen_flags(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092"),
        ("0.0.0.0:9092", "PLAINTEXT://me:9092"),
        (":9092", "PLAINTEXT://me:9092"),
        ("::1:0", "PLAINTEXT://[::1]:0"),
    ],
)
def test_what_listen_advertises_is_described_as_static(endpoint: str, expected: str) -> None:
    built_in = {**BUILT_IN, **listen_advertised(endpoint, "me")}
    settings = resolve(flags=listen_flags(endpoint), built_in=built_in)
    for name in ("advertised.listeners", "listeners", "controller.listener.names"):
        (described,) = describe_broker(settings, [name])
        assert described.source is Source.STATIC_BROKER
    assert settings.text("advertised.listeners") == expected
    found = read_listeners(settings)
    assert found.advertised == found.broker


def test_what_listen_advertises_gives_way_to_settings() -> None:
    built_in = {**BUILT_IN, **listen_advertised("0.0.0.0:9092", "me")}
    given = {"advertised.listeners": "PLAINTEXT://proxy:1234"}
    for settings in (
        resolve(flags=listen_flags("0.0.0.0:9092"), file=given, built_in=built_in),
        resolve(flags={**listen_flags("0.0.0.0:9092"), **given}, built_in=built_in),
    ):
        assert [each.endpoint for each in read_listeners(settings).advertised] == ["PLAINTEXT://proxy:1234"]


def test_other_nodes_are_told_where_the_controller_is() -> None:
    def told(**file: str) -> list[str]:
        found = listeners(**file).controllers_at({"CONTROLLER": 7}, "me")
        return [each.endpoint for each in found]

    assert told(listeners="PLAINTEXT://h:1,CONTROLLER://h:2") == ["CONTROLLER://h:2"]
    assert told(listeners="PLAINTEXT://:1,CONTROLLER://:0", advertised_listeners="PLAINTEXT://h:1") == [
        "CONTROLLER://me:7"
    ]
    advertised = "PLAINTEXT://h:1,CONTROLLER://proxy:3"
    assert told(listeners="PLAINTEXT://:1,CONTROLLER://:2", advertised_listeners=advertised) == [
        "CONTROLLER://proxy:3"
    ]
    voters = {"controller_quorum_voters": "1@c1:93,2@c2:93", "listeners": "PLAINTEXT://h:1,CONTROLLER://:2"}
    assert told(**voters) == ["CONTROLLER://c1:93"]
    alone = {"process_roles": "controller", "listeners": "CONTROLLER://0.0.0.0:2"}
    assert told(**alone) == ["CONTROLLER://me:2"]
    assert told(process_roles="controller", listeners="CONTROLLER://[::]:2") == ["CONTROLLER://me:2"]
    with pytest.raises(InvalidSetting, match=r"nobody can connect to 0\.0\.0\.0"):
        told(**alone, advertised_listeners="CONTROLLER://0.0.0.0:2")


def test_first_name_is_the_listener_of_the_voters() -> None:
    found = listeners(
        listeners="PLAINTEXT://h:1,B://h:2,A://h:3",
        controller_listener_names="A,B",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT",
    )
    assert [each.name for each in found.controller_advertised] == ["A", "B"]
    assert [each.name for each in found.controller] == ["B", "A"]


def test_listeners_that_are_built_in_are_those_of_the_roles() -> None:
    broker = listeners(process_roles="broker", controller_quorum_bootstrap_servers="c:1")
    assert ([each.name for each in broker.broker], broker.controller) == (["PLAINTEXT"], ())
    controller = listeners(process_roles="controller")
    assert (controller.broker, [each.name for each in controller.controller]) == ((), ["CONTROLLER"])
