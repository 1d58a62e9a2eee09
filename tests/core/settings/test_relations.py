"""Settings that contradict each other; test_against_kafka.py holds the rules beside Kafka's."""

from __future__ import annotations

import pytest

from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.relations import Voter, connections_per_ip, read_voters
from barnabas.core.settings.sources import resolve


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ({"log.retention.ms": "0"}, "for ever, or at least 1"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be at least 1"),
        # Kafka refuses it, too, only later: when it makes its first log
        ({"log.flush.interval.ms": "-1"}, "log.flush.interval.ms must be at least 0"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes=5, socket.request.max.bytes=104857600"),
        (
            {"group.consumer.session.timeout.ms": "1"},
            "group.consumer.min.session.timeout.ms must not be above",
        ),
        ({"connections.max.idle.ms": "7"}, "must be above connection.failed.authentication.delay.ms"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "h:x"}, "a list of host:count"),
        ({"controller.quorum.voters": "2@h:1"}, "node.id=1, controller.quorum.voters=2@h:1"),
        ({"process.roles": "broker", "controller.quorum.voters": "1@h:1"}, "which is no controller"),
        ({"process.roles": "broker"}, "needs controller.quorum.bootstrap.servers"),
        (
            {
                "process.roles": "broker",
                "controller.quorum.bootstrap.servers": "h:1",
                "controller.quorum.auto.join.enable": "true",
            },
            "is for controllers",
        ),
    ],
)
def test_contradictions_name_their_settings(file: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        resolve(file=file)
    assert words in str(refusal.value)


def test_voters() -> None:
    assert read_voters(resolve()) == ()
    settings = resolve(file={"controller.quorum.voters": "1@a:9093, 2@[::1]:9094"})
    assert read_voters(settings) == (Voter(1, "a", 9093), Voter(2, "::1", 9094))


def test_limits_by_address() -> None:
    settings = resolve(file={"max.connections.per.ip.overrides": "host : 5, ::1:7"})
    assert connections_per_ip(settings) == {"host": 5, "::1": 7}
