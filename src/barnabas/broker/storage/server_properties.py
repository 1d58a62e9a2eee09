"""The `server.properties` that is written beside new data: with it Apache Kafka runs on the directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.listeners import Listener, Listeners

VOTERS, BOOTSTRAP_SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
_BOTH = ("broker", "controller")
_CONTROLLER = {"CONTROLLER": "PLAINTEXT"}


def server_properties(
    places: Mapping[str, str],
    *,
    node_id: int,
    listeners: Sequence[Listener],
    controllers: Sequence[Listener],
    roles: Sequence[str] = _BOTH,
    quorum: Mapping[str, str] | None = None,
    protocols: Mapping[str, str] = _CONTROLLER,
) -> dict[str, str]:
    """The settings of a node with these listeners; `places` are those that say where its directories are.

    `quorum` says where the controllers are, which are this node alone unless it is given; `protocols` are
    those of the controllers' listeners, for a node that has none.
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
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def properties_of(
    settings: BrokerSettings, listeners: Listeners, places: Mapping[str, str]
) -> dict[str, str]:
    """Those of a node with these settings."""
    told = {name: settings.text(name) or "" for name in (VOTERS, BOOTSTRAP_SERVERS) if settings.is_set(name)}
    advertised = "advertised.listeners"
    if settings.is_set(advertised):
        places = {advertised: settings.text(advertised) or "", **places}
    return server_properties(
        places,
        node_id=settings.node_id,
        listeners=listeners.broker,
        controllers=listeners.controller,
        roles=settings.roles,
        quorum={name: text for name, text in told.items() if text},
        protocols={name.upper(): "PLAINTEXT" for name in settings.strings("controller.listener.names")},
    )


def address(listener: Listener) -> str:
    """Where the node itself reaches one of its listeners, which may be bound to every interface."""
    return listener._replace(host=listener.host or "localhost").endpoint.partition("://")[2]
