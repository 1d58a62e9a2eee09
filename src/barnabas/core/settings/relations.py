"""Checks between settings, for values that are valid alone and not together. Kafka refuses them too."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting

_MIB = 1 << 20
_CODECS = range(5)  # none, gzip, snappy, lz4, zstd

_NOT_ABOVE = [
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    *(
        pair
        for family, name in (
            *(("consumer", "heartbeat.interval.ms"), ("consumer", "session.timeout.ms")),
            *(("share", "heartbeat.interval.ms"), ("share", "session.timeout.ms")),
            *(("streams", "heartbeat.interval.ms"), ("streams", "session.timeout.ms")),
            *((each, "assignment.interval.ms") for each in ("consumer", "share", "streams")),
            *(("share", "delivery.count.limit"), ("share", "record.lock.duration.ms")),
            ("share", "partition.max.record.locks"),
        )
        for pair in (
            (f"group.{family}.min.{name}", f"group.{family}.{name}"),
            (f"group.{family}.{name}", f"group.{family}.max.{name}"),
        )
    ),
]
_BELOW = [
    (f"group.{family}.heartbeat.interval.ms", f"group.{family}.session.timeout.ms")
    for family in ("consumer", "share", "streams")
]


_AUTO_JOIN = "auto.join.enable"


class Voter(NamedTuple):
    """One member of the metadata quorum, from `controller.quorum.voters`."""

    node_id: int
    host: str
    port: int


def read_voters(settings: BrokerSettings) -> tuple[Voter, ...]:
    """The static quorum; empty if the voters are stored in the data directory."""
    voters = []
    for entry in settings.strings("controller.quorum.voters"):
        node_id, _, endpoint = entry.partition("@")
        host, _, port = endpoint.rpartition(":")
        voters.append(Voter(int(node_id), host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(voters)


def connections_per_ip(settings: BrokerSettings) -> dict[str, int]:
    """The hosts with a connection limit of their own, from `max.connections.per.ip.overrides`."""
    limits = {}
    entries = (settings.string("max.connections.per.ip.overrides") or "").split(",")
    for entry in filter(None, map(str.strip, entries)):
        host, _, count = (part.strip() for part in entry.rpartition(":"))
        limits[host] = int(count)
    return limits


def check_relations(settings: BrokerSettings) -> None:
    """InvalidSetting for the first contradiction."""
    for low, high in _NOT_ABOVE:
        _require(
            settings.integer(low) <= settings.integer(high), settings, f"{low} must not be above", low, high
        )
    for low, high in _BELOW:
        _require(settings.integer(low) < settings.integer(high), settings, f"{low} must be below", low, high)
    _check_log(settings)
    _check_connections(settings)
    _check_groups(settings)
    _check_quorum(settings)


def _check_log(settings: BrokerSettings) -> None:
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = settings.optional_integer(name)
        if value is not None:
            _require(value != 0, settings, f"{name} must be -1, for ever, or at least 1", name)
            break
    roll_ms, jitter_ms = (
        settings.optional_integer("log.roll.ms"),
        settings.optional_integer("log.roll.jitter.ms"),
    )
    _require(roll_ms is None or roll_ms >= 1, settings, "log.roll.ms must be at least 1", "log.roll.ms")
    _require(jitter_ms is None or jitter_ms >= 0, settings, "log.roll.jitter.ms must be at least 0")
    name = "log.flush.interval.ms"
    flush_ms = settings.optional_integer(name)
    _require(flush_ms is None or flush_ms >= 0, settings, f"{name} must be at least 0", name)
    size, threads = "log.cleaner.dedupe.buffer.size", max(1, settings.integer("log.cleaner.threads"))
    _require(settings.integer(size) // threads > _MIB, settings, f"{size} must be above 1 MiB a thread", size)
    unknown = set(settings.strings("cordoned.log.dirs")) - {*settings.log_dirs, "*"}
    _require(not unknown, settings, "cordoned.log.dirs must be some of", "log.dirs")


def _check_connections(settings: BrokerSettings) -> None:
    queued, request = "queued.max.request.bytes", "socket.request.max.bytes"
    if settings.integer(queued) > 0:
        fits = settings.integer(queued) >= settings.integer(request)
        _require(fits, settings, f"{queued} must not be below", queued, request)
    idle_ms, delay = settings.integer("connections.max.idle.ms"), "connection.failed.authentication.delay.ms"
    if idle_ms >= 0:
        _require(
            settings.integer(delay) < idle_ms, settings, f"connections.max.idle.ms must be above {delay}"
        )
    overrides = connections_per_ip(settings)
    name = "max.connections.per.ip"
    _require(
        settings.integer(name) > 0 or bool(overrides),
        settings,
        f"{name} can be 0 only with {name}.overrides for those who may connect",
        name,
    )


def _check_groups(settings: BrokerSettings) -> None:
    codec = "offsets.topic.compression.codec"
    _require(settings.integer(codec) in _CODECS, settings, f"{codec} must be from 0 to 4", codec)
    protocols = "group.coordinator.rebalance.protocols"
    _require(
        "classic" in settings.strings(protocols), settings, f"{protocols} must contain classic", protocols
    )


def _check_quorum(settings: BrokerSettings) -> None:
    name, servers, joins = (
        f"controller.quorum.{each}" for each in ("voters", "bootstrap.servers", _AUTO_JOIN)
    )
    ids = [voter.node_id for voter in read_voters(settings)]
    is_voter = settings.node_id in ids
    if "controller" in settings.roles:
        complaint = f"{name} must contain this controller, node.id"
        _require(is_voter or not ids, settings, complaint, "node.id", name)
        return
    _require(not is_voter, settings, f"{name} must not contain node.id, which is no controller", name)
    is_told = bool(ids or settings.strings(servers))
    _require(is_told, settings, f"a broker alone needs {servers}, or {name}", "process.roles")
    _require(not settings.boolean(joins), settings, f"{joins} is for controllers", "process.roles")


def _require(holds: bool, settings: BrokerSettings, complaint: str, *names: str) -> None:
    if not holds:
        shown = ", ".join(f"{name}={settings.text(name) or settings.get(name)}" for name in names)
        raise InvalidSetting(f"{complaint} ({shown})" if shown else complaint)
