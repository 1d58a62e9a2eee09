"""The initial voters of a quorum whose voters are in the metadata log (kraft.version 1).

All nodes of a cluster are formatted with the same voters, written as in Kafka: `id@host:port:directory-id`. A
controller that is formatted without voters joins an existing quorum; a broker needs none. With
`controller.quorum.voters`, the voters are in the settings and not in the log.
"""

from __future__ import annotations

from barnabas.broker.storage.formatting import InitialVoter
from barnabas.broker.storage.founding import sole_voter
from barnabas.broker.storage.server_properties import BOOTSTRAP_SERVERS, VOTERS
from barnabas.core.random import Random, random_id
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.listeners import Listeners
from barnabas.core.settings.relations import read_voters
from barnabas.log.checkpoints import uuid_from_text, uuid_to_text

MAX_ID, MAX_PORT = 2**31 - 1, 65535


def parse_voters(text: str) -> tuple[InitialVoter, ...]:
    """The voters in `id@host:port:directory-id,...`, sorted by id."""
    voters = sorted(_parse(entry.strip()) for entry in text.split(",") if entry.strip())
    ids = [voter.node_id for voter in voters]
    if not voters or len(set(ids)) < len(ids):
        raise InvalidSetting(f"{text!r} names no voter, or one twice: name each once, by its node.id")
    return tuple(voters)


def _parse(entry: str) -> InitialVoter:
    node_id, _, rest = entry.partition("@")
    address, _, directory_id = rest.rpartition(":")
    host, _, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_right = (
        _is_number(node_id, MAX_ID) and _is_number(port, MAX_PORT) and host and is_bracketed == (":" in host)
    )
    try:
        if not is_right:
            raise ValueError
        return InitialVoter(int(node_id), host.strip("[]"), int(port), uuid_from_text(directory_id))
    except ValueError:
        raise InvalidSetting(
            f"{entry!r} is no voter: write id@host:port:directory-id, such as "
            "1@example.com:9093:JEXY6aqzQY-32P5TStzaFg"
        ) from None


def _is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdecimal() and int(text) <= most


def format_voters(voters: tuple[InitialVoter, ...]) -> str:
    """The voters in the form that `parse_voters` reads."""
    return ",".join(
        f"{each.node_id}@{f'[{each.host}]' if ':' in each.host else each.host}:{each.port}:"
        f"{uuid_to_text(each.directory_id)}"
        for each in voters
    )


def choose_voters(
    settings: BrokerSettings,
    listeners: Listeners,
    *,
    standalone: bool,
    initial: tuple[InitialVoter, ...] | None,
    no_initial: bool,
    random: Random,
) -> tuple[InitialVoter, ...]:
    """The voters to write into the log of a new directory, by the given options: this node alone, `initial`,
    or none. InvalidSetting where the options contradict the settings."""
    is_controller = "controller" in settings.roles
    if read_voters(settings):
        if standalone or initial:
            raise InvalidSetting(
                f"{VOTERS} names the voters, so they cannot be given again: leave out --standalone and "
                f"--initial-controllers, or set {BOOTSTRAP_SERVERS} in its place"
            )
        return ()
    if standalone:
        if not is_controller:
            raise InvalidSetting(
                f"process.roles={','.join(settings.roles)}: --standalone is for a controller"
            )
        return (sole_voter(settings.node_id, listeners.controller_advertised[0], random_id(random)),)
    if initial:
        if not is_controller and any(voter.node_id == settings.node_id for voter in initial):
            raise InvalidSetting(
                f"--initial-controllers names node {settings.node_id}, which is no controller "
                f"(process.roles={','.join(settings.roles)})"
            )
        return initial
    if is_controller and not no_initial:
        raise InvalidSetting(
            "say who votes: --standalone (this controller alone), --initial-controllers "
            "id@host:port:directory-id,... (the same for all nodes), or --no-initial-controllers (it joins a "
            "quorum that there is already)"
        )
    return ()
