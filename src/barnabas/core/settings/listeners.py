"""Listeners: the addresses a node binds, the ones it advertises, and their security protocols.

A listener is `NAME://host:port`. Its name is upper case; `listener.security.protocol.map` maps it to its
protocol. No host means every interface; port 0 means any free one, and the listener is then advertised with
the bound port. Listeners named in `controller.listener.names` serve the quorum. They are never advertised to
clients; other nodes get them in the order of those names, and voters use the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.relations import read_voters

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CONTROLLER_PORT_DISTANCE = 1000
_WILDCARDS = ("0.0.0.0", "::")


class Listener(NamedTuple):
    """One endpoint; the host is empty for every interface, a port of 0 is any."""

    name: str
    host: str
    port: int
    protocol: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def endpoint(self) -> str:
        """`NAME://host:port`, as settings write it."""
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class Listeners(NamedTuple):
    """All listeners of a node, in the order of the settings; `inter_broker` is None without the broker role.
    `controller_advertised` are the endpoints under which other nodes reach the controller."""

    broker: tuple[Listener, ...]
    controller: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    inter_broker: str | None
    controller_advertised: tuple[Listener, ...] = ()

    def advertised_at(self, bound_ports: Mapping[str, int], own_host: str) -> tuple[Listener, ...]:
        """The listeners advertised to clients, with the bound ports; `own_host` replaces an empty host."""
        return _reachable(self.advertised, bound_ports, own_host)

    def controllers_at(self, bound_ports: Mapping[str, int], own_host: str) -> tuple[Listener, ...]:
        """The controller's listeners advertised to other nodes, with the bound ports."""
        return _reachable(self.controller_advertised, bound_ports, own_host)


def _reachable(
    listeners: tuple[Listener, ...], bound_ports: Mapping[str, int], own_host: str
) -> tuple[Listener, ...]:
    return tuple(
        each._replace(host=each.host or own_host, port=each.port or bound_ports[each.name])
        for each in listeners
    )


def listen_flags(endpoint: str) -> dict[str, str]:
    """The settings behind `--listen host:port`: a client listener, and the controller's at a higher port."""
    address, port = _parse_endpoint(endpoint)
    controller_port = int(port) + CONTROLLER_PORT_DISTANCE if int(port) else 0
    return {
        "listeners": f"PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
    }


def listen_advertised(endpoint: str, host_name: str) -> dict[str, str]:
    """The `advertised.listeners` that `--listen host:port` implies unless they are set."""
    address, port = _parse_endpoint(endpoint)
    return {"advertised.listeners": f"PLAINTEXT://{address or host_name}:{port}"}


def _parse_endpoint(endpoint: str) -> tuple[str, str]:
    """The address, empty for every interface, and the port."""
    host, colon, port = endpoint.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 - CONTROLLER_PORT_DISTANCE:
        highest = 65535 - CONTROLLER_PORT_DISTANCE
        raise InvalidSetting(f"--listen {endpoint}: must be host:port, with a port from 0 to {highest}")
    address = f"[{host}]" if ":" in host.strip("[]") and not host.startswith("[") else host
    # 0.0.0.0 is every interface, too: the machine's name is advertised
    return ("" if address == "0.0.0.0" else address), port


def read_listeners(settings: BrokerSettings) -> Listeners:
    """The listeners that the settings describe; InvalidSetting if they contradict each other."""
    protocols = _protocols(settings)
    controller_names = [name.upper() for name in settings.strings("controller.listener.names")]
    bound = _parse("listeners", settings.strings("listeners"), protocols)
    if not settings.is_set("listeners"):
        bound = tuple(each for each in bound if _is_for(settings.roles, each.name in controller_names))
    bound = _with_controller(settings, bound, controller_names, protocols)
    _check_ports(bound)
    broker = tuple(each for each in bound if each.name not in controller_names)
    controller = tuple(each for each in bound if each.name in controller_names)
    _check_roles(settings.roles, broker, controller, controller_names)
    _check_early_start(settings, {*controller_names, *(each.name for each in bound)})
    told = _told(settings, protocols)
    of_controller = _of_controller(settings, controller, controller_names, told)
    if "broker" not in settings.roles:
        return Listeners((), controller, (), None, of_controller)
    advertised = _advertised(broker, controller_names, told)
    return Listeners(broker, controller, advertised, _inter_broker(settings, advertised), of_controller)


def _is_for(roles: tuple[str, ...], is_controllers: bool) -> bool:
    """Whether a node with these roles has that kind of listener."""
    return ("controller" if is_controllers else "broker") in roles


def _protocols(settings: BrokerSettings) -> dict[str, str]:
    text = settings.string("listener.security.protocol.map") or ""
    protocols: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = (part.strip().upper() for part in entry.rpartition(":"))
        if not colon or not name or protocol not in PROTOCOLS or name in protocols:
            raise InvalidSetting(
                f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL with one of "
                f"{', '.join(PROTOCOLS)}, each name once"
            )
        protocols[name] = protocol
    if not settings.is_set("listener.security.protocol.map"):
        _assume_plaintext(settings, protocols)
    return protocols


def _assume_plaintext(settings: BrokerSettings, protocols: dict[str, str]) -> None:
    """Controller listeners default to PLAINTEXT, unless a listener is named after a protected protocol."""
    names = [name.upper() for name in settings.strings("controller.listener.names")]
    used = [*names, *(entry.partition("://")[0].upper() for entry in settings.strings("listeners"))]
    if not any(name in PROTOCOLS[1:] for name in used):
        for name in names:
            protocols.setdefault(name, "PLAINTEXT")


def _parse(setting: str, entries: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    listeners = tuple(_parse_one(setting, entry, protocols) for entry in entries)
    for at, each in enumerate(listeners):
        if any(other.name == each.name for other in listeners[:at]):
            raise InvalidSetting(f"{setting}: two listeners are named {each.name}; each needs its own name")
    return listeners


def _parse_one(setting: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    name, separator, address = entry.partition("://")
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not (name and separator and colon and port.isdecimal() and int(port) <= 65535 and _is_host(host)):
        raise InvalidSetting(
            f"{setting}: {entry!r} is not NAME://host:port, such as PLAINTEXT://localhost:9092"
        )
    name = name.upper()
    if name not in protocols:
        raise InvalidSetting(
            f"{setting}: no protocol is known for the listener {name}; "
            f"add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    return Listener(name, host, int(port), protocols[name])


def _is_host(text: str) -> bool:
    return all(character.isalnum() or character in "-%._:" for character in text)


def _check_ports(listeners: tuple[Listener, ...]) -> None:
    """A port belongs to one listener, or to a pair for IPv4 and IPv6; several may request any port (0)."""
    for at, each in enumerate(listeners):
        twins = [other for other in listeners[:at] if each.port and other.port == each.port]
        if twins and not (len(twins) == 1 and _are_families(each, twins[0])):
            raise InvalidSetting(f"listeners: two listeners use port {each.port}; each needs its own port")


def _are_families(one: Listener, other: Listener) -> bool:
    """Whether one is an IPv4 address and the other an IPv6 address at the same port."""
    hosts = sorted((one.host, other.host), key=lambda host: ":" in host)
    return one.port == other.port and ":" in hosts[1] and hosts[0].replace(".", "").isdecimal()


def _with_controller(
    settings: BrokerSettings,
    bound: tuple[Listener, ...],
    controller_names: list[str],
    protocols: Mapping[str, str],
) -> tuple[Listener, ...]:
    """Add a controller listener above the first port, unless there is one or its names were set."""
    is_asked_for = settings.is_set("controller.listener.names") or "controller" not in settings.roles
    if is_asked_for or not controller_names or any(each.name in controller_names for each in bound):
        return bound
    name, first = controller_names[0], bound[0]
    if name not in protocols:
        raise InvalidSetting(
            f"listeners: no protocol is known for the listener {name}; "
            f"add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    port = first.port + CONTROLLER_PORT_DISTANCE if first.port else 0
    if port > 65535:
        raise InvalidSetting(f"listeners: there is no room for {name} at port {port}; name it in listeners")
    return (*bound, Listener(name, first.host, port, protocols[name]))


def _check_roles(
    roles: tuple[str, ...],
    broker: tuple[Listener, ...],
    controller: tuple[Listener, ...],
    controller_names: list[str],
) -> None:
    names = ", ".join(controller_names)
    if "controller" in roles and not controller:
        raise InvalidSetting(f"listeners: a controller needs a listener named {names}")
    if "controller" not in roles and controller:
        raise InvalidSetting(f"listeners: {names} is for controllers, and process.roles has none")
    if "broker" in roles and not broker:
        raise InvalidSetting(
            f"listeners: a broker needs a listener beside {names}, such as PLAINTEXT://:9092"
        )
    if "broker" not in roles and broker:
        raise InvalidSetting(f"listeners: without the role of a broker, only {names} can be a listener")


def _check_early_start(settings: BrokerSettings, names: set[str]) -> None:
    unknown = sorted({name.upper() for name in settings.strings("early.start.listeners")} - names)
    if unknown:
        raise InvalidSetting(f"early.start.listeners: {', '.join(unknown)} is not one of listeners")


def _told(settings: BrokerSettings, protocols: Mapping[str, str]) -> tuple[Listener, ...] | None:
    """`advertised.listeners`, None if not set."""
    if not settings.is_set("advertised.listeners"):
        return None
    return _parse("advertised.listeners", settings.strings("advertised.listeners"), protocols)


def _advertised(
    broker: tuple[Listener, ...], controller_names: list[str], told: tuple[Listener, ...] | None
) -> tuple[Listener, ...]:
    advertised = broker
    if told is not None:
        advertised = tuple(each for each in told if each.name not in controller_names)
    names = [each.name for each in broker]
    for each in advertised:
        if each.name not in names:
            raise InvalidSetting(
                f"advertised.listeners: {each.name} is not one of listeners ({', '.join(names)})"
            )
        _refuse_wildcard(each)
    if not advertised:
        raise InvalidSetting("advertised.listeners: a broker needs a listener that clients are told of")
    return advertised


def _of_controller(
    settings: BrokerSettings,
    controller: tuple[Listener, ...],
    controller_names: list[str],
    told: tuple[Listener, ...] | None,
) -> tuple[Listener, ...]:
    """The endpoints under which other nodes reach the controller: as advertised, else as bound. If the
    voters' listener is bound to every interface, this node's entry in `controller.quorum.voters` applies."""
    bound = {each.name: each for each in controller}
    advertised = {each.name: each for each in told or () if each.name in bound}
    found = []
    for name in controller_names:
        if name in advertised:
            _refuse_wildcard(advertised[name])
            found.append(advertised[name])
        elif name in bound:
            found.append(_unless_everywhere(settings, bound[name], is_voters=name == controller_names[0]))
    return tuple(found)


def _unless_everywhere(settings: BrokerSettings, listener: Listener, *, is_voters: bool) -> Listener:
    if listener.host not in ("", *_WILDCARDS):
        return listener
    for voter in read_voters(settings) if is_voters else ():
        if voter.node_id == settings.node_id:
            return listener._replace(host=voter.host, port=voter.port)
    return listener._replace(host="")


def _refuse_wildcard(advertised: Listener) -> None:
    if advertised.host in _WILDCARDS:
        raise InvalidSetting(
            f"advertised.listeners: nobody can connect to {advertised.host}; set advertised.listeners="
            f"{advertised.name}://<a host that clients reach>:{advertised.port}"
        )


def _inter_broker(settings: BrokerSettings, advertised: tuple[Listener, ...]) -> str:
    name = settings.string("inter.broker.listener.name")
    if name is not None and settings.is_set("security.inter.broker.protocol"):
        raise InvalidSetting(
            "Set one of inter.broker.listener.name and security.inter.broker.protocol, not both"
        )
    chosen = (name or settings.string("security.inter.broker.protocol") or "").upper()
    names = [each.name for each in advertised]
    if chosen not in names:
        raise InvalidSetting(
            f"inter.broker.listener.name: {chosen} is not advertised; choose one of {', '.join(names)}"
        )
    return chosen
