"""The `server.properties` that is written beside new data: with it Apache Kafka runs on the directories.

Kafka refuses to create an internal topic with more replicas than there are brokers, so a cluster of one or
two brokers sets fewer than the default of three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.listeners import Listener, Listeners

VOTERS, BOOTSTRAP_SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
_BOTH = ("broker", "controller")
_CONTROLLER = {"CONTROLLER": "PLAINTEXT"}
_REPLICAS, _IN_SYNC = 3, 2  # of internal topics, by default


def server_properties(
    places: Mapping[str, str],
    *,
    node_id: int,
    listeners: Sequence[Listener],
    controllers: Sequence[Listener],
    roles: Sequence[str] = _BOTH,
    quorum: Mapping[str, str] | None = None,
    protocols: Mapping[str, str] = _CONTROLLER,
    brokers: int | None = 1,
) -> dict[str, str]:
    """The settings of a node with these listeners; `places` are the settings that name its directories.

    `brokers` is how many there will be, None where that is not known. `quorum` are the settings that name the
    controllers, by default only this node; `protocols` are those of the controllers' listeners, for a node
    that has none.
    """
    both = (*listeners, *controllers)
    names = {each.name: each.protocol for each in controllers} or protocols
    protocols = {**{each.name: each.protocol for each in both}, **names}
    return {
        "process.roles": ",".join(roles),
        "node.id": str(node_id),
        **(quorum or {BOOTSTRAP_SERVERS: ",".join(address(each) for each in controllers)}),
        "listeners": ",".join(each.endpoint for each in both),
        "controller.listener.names": ",".join(names),
        "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items()),
        **places,
        **_internal_topics(brokers),
    }


def _internal_topics(brokers: int | None) -> dict[str, str]:
    if brokers is None or brokers >= _REPLICAS:
        return {}  # Kafka's defaults
    replicas, in_sync = str(brokers), str(min(brokers, _IN_SYNC))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def properties_of(
    settings: BrokerSettings, listeners: Listeners, places: Mapping[str, str]
) -> dict[str, str]:
    """The properties of a node with these settings."""
    told = {name: settings.text(name) or "" for name in (VOTERS, BOOTSTRAP_SERVERS) if settings.is_set(name)}
    advertised = "advertised.listeners"
    if settings.is_set(advertised):
        places = {advertised: settings.text(advertised) or "", **places}
    servers = max((text.count(",") + 1 for text in told.values() if text), default=1)
    is_alone = servers == 1 and set(settings.roles) == set(_BOTH)
    return server_properties(
        places,
        node_id=settings.node_id,
        listeners=listeners.broker,
        controllers=listeners.controller,
        roles=settings.roles,
        quorum={name: text for name, text in told.items() if text},
        protocols={name.upper(): "PLAINTEXT" for name in settings.strings("controller.listener.names")},
        brokers=1 if is_alone else None,
    )


def address(listener: Listener) -> str:
    """The address by which the node itself reaches its listener, which may be bound to every interface."""
    return listener._replace(host=listener.host or "localhost").endpoint.partition("://")[2]
