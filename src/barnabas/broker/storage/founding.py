"""Founds a new cluster: a node with empty directories becomes a cluster of one.

The node is broker and controller, and the only voter. If the settings name other nodes, or give it only one
role, it is meant for a larger cluster: then its directories must first be formatted with the id of that
cluster (`NotFormatted`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from barnabas.broker.storage.formatting import DirectoryRefused, InitialVoter, format_directory
from barnabas.broker.storage.server_properties import BOOTSTRAP_SERVERS, VOTERS, properties_of
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.random import Random, random_id
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.listeners import Listener, Listeners
from barnabas.core.settings.relations import read_voters
from barnabas.log.checkpoints import MetaProperties, uuid_to_text

logger = logging.getLogger("barnabas.node")

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NotFormatted(DirectoryRefused):
    """The directory is empty, and the settings describe a larger cluster."""


async def found_cluster(
    disk: Disk,
    places: Mapping[str, str],
    *,
    settings: BrokerSettings,
    listeners: Listeners,
    host_name: str,
    clock: Clock,
    random: Random,
) -> MetaProperties:
    """Format the empty metadata directory for this node, as a new cluster."""
    if (reason := larger_cluster(settings, listeners, host_name)) is not None:
        raise NotFormatted(
            f"{disk.describe('')} is empty, and {reason}: this node is part of a larger cluster. Format the "
            "directories of each node with one id before its first start: "
            "barnabas format --cluster-id ID --config FILE"
        )
    meta = MetaProperties(uuid_to_text(random_id(random)), settings.node_id, random_id(random))
    assert meta.directory_id is not None
    logger.info("a new directory: %s becomes that of cluster %s", disk.describe(""), meta.cluster_id)
    first = listeners.controller_advertised[0]
    voter = sole_voter(settings.node_id, first, meta.directory_id)
    return await format_directory(
        disk,
        meta,
        bootstrap=bootstrap_records(),
        voters=() if read_voters(settings) else (voter,),  # those in the settings count, as in Kafka
        listener=first.name,
        properties=properties_of(settings, listeners, places),
        now_ms=clock.wall_ms(),
    )


def larger_cluster(settings: BrokerSettings, listeners: Listeners, host_name: str) -> str | None:
    """The setting by which a node belongs to a larger cluster; None for a cluster of one."""
    if set(settings.roles) != {"broker", "controller"}:
        return f"process.roles={','.join(settings.roles)}"
    if any(voter.node_id != settings.node_id for voter in read_voters(settings)):
        return f"{VOTERS}={settings.text(VOTERS)} names other nodes"
    own = _own_addresses(listeners, host_name)
    for server in settings.strings(BOOTSTRAP_SERVERS):
        host, _, port = server.rpartition(":")
        if (host.strip("[]"), port) not in own:
            return f"{BOOTSTRAP_SERVERS} names {server}, where this node has no controller listener"
    return None


def _own_addresses(listeners: Listeners, host_name: str) -> set[tuple[str, str]]:
    """Every address that the settings give for this node's controller."""
    hosts = {*_LOOPBACK, host_name, *(each.host for each in (*listeners.controller, *listeners.advertised))}
    ports = {str(each.port) for each in listeners.controller}
    advertised = {(each.host, str(each.port)) for each in listeners.controller_advertised}
    return advertised | {(host, port) for host in hosts for port in ports}


def sole_voter(node_id: int, listener: Listener, directory_id: UUID) -> InitialVoter:
    """The only voter of a new quorum, reached at its controller's listener."""
    return InitialVoter(node_id, listener.host or "localhost", listener.port, directory_id)
