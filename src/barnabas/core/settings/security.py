"""Security settings that Barnabas cannot enforce yet: a node with one of them refuses to start.

A setting is refused if ignoring it would leave data open, admit clients that were to be kept out, or take the
reference of a secret for the secret; all such settings are named at once. A setting that would only affect
speed or measurement is a warning (`warnings_of`).
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.settings.broker_settings import BrokerSettings, setting_of
from barnabas.core.settings.definition import format_value
from barnabas.core.settings.listeners import PROTOCOLS, Listeners


class UnsupportedSetting(BarnabasError):
    """A setting that Kafka would enforce and Barnabas cannot; the message names it and the remedy."""

    wire = wire_error("INVALID_CONFIG")


_REFUSED = {
    "authorizer.class.name": "no access is checked yet",
    "principal.builder.class": "no principals are built yet",
    "delegation.token.secret.key": "there are no delegation tokens yet",
    "connections.max.reauth.ms": "connections are not authenticated yet",
    "create.topic.policy.class.name": "policies are not loaded",
    "alter.config.policy.class.name": "policies are not loaded",
    "client.quota.callback.class": "quotas are not enforced yet",
    "security.providers": "security providers are not loaded",
    "security.inter.broker.protocol": "there is neither TLS nor SASL yet",
    "config.providers": "references such as ${env:NAME} are not resolved",
    "remote.log.storage.system.enable": "there is no tiered storage yet",
    "transaction.two.phase.commit.enable": "transactions cannot be prepared for two-phase commit yet",
}
# May be ignored at the user's own risk: clients are admitted all the same, and nothing is misread.
_ALLOW = "barnabas.allow.unenforced.security"
_MAY_BE_ALLOWED = (
    "authorizer.class.name",
    "principal.builder.class",
    "delegation.token.secret.key",
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
    "client.quota.callback.class",
)
WARNED = {
    "replica.selector.class": "consumers read from the leader",
    "super.users": "no access is checked, so everybody is one",
    "metric.reporters": "reporters are not loaded",
    "kafka.metrics.reporters": "reporters are not loaded",
}


def refuse_unenforceable(settings: BrokerSettings) -> None:
    """UnsupportedSetting, with a line for each setting that would not be enforced.

    This runs before the listeners are read: its message should come before any other error in them.
    """
    allowed = settings.boolean(_ALLOW)
    lines = [
        *_protected_listeners(settings),
        *(told for name, told in _refusals(settings) if not (allowed and name in _MAY_BE_ALLOWED)),
    ]
    if lines:
        raise UnsupportedSetting(
            "Refusing to start, since this could not be enforced:\n  " + "\n  ".join(lines)
        )


def warnings_of(settings: BrokerSettings, listeners: Listeners) -> list[str]:
    """Warnings for the user who starts a node: settings without effect, listeners open to the network."""
    lines = [f"{name} has no effect: {why}" for name, why in WARNED.items() if settings.is_set(name)]
    if settings.boolean(_ALLOW):
        lines += [
            f"{name} is NOT enforced ({_ALLOW}=true): {_REFUSED[name]}"
            for name in _MAY_BE_ALLOWED
            if settings.is_set(name) and not _is_default(settings, name)
        ]
    idle = settings.without_effect
    if idle:
        lines.append(
            f"Accepted without effect, there being no such threads or reporters here: {', '.join(idle)}"
        )
    for each in (*listeners.broker, *listeners.controller):
        if not each.is_loopback:
            lines.append(
                f"{each.endpoint} listens beyond this machine, without authentication: whoever reaches it "
                "may read and write everything"
            )
    return lines


def _protected_listeners(settings: BrokerSettings) -> Iterator[str]:
    text = settings.string("listener.security.protocol.map") or ""
    pairs = (entry.rpartition(":") for entry in text.upper().replace(" ", "").split(","))
    protocols = {name: protocol for name, _, protocol in pairs}
    entries = (*settings.strings("listeners"), *settings.strings("controller.listener.names"))
    for name in dict.fromkeys(entry.partition("://")[0].strip().upper() for entry in entries):
        protocol = protocols.get(name, name)
        if protocol in PROTOCOLS[1:]:
            yield (
                f"listener {name}: its protocol is {protocol}, and there is neither TLS nor SASL yet; "
                "map it to PLAINTEXT in listener.security.protocol.map, or remove it from listeners"
            )


def _refusals(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    for name in settings.static | settings.dynamic | settings.dynamic_default:
        why = why_refused(name)
        if why is not None and not _is_default(settings, name):
            told = f"{name}: {why}; remove it, or set it back to its default"
            if name in _MAY_BE_ALLOWED:
                told += f", or go on without by {_ALLOW}=true"
            yield name, told


def why_refused(name: str) -> str | None:
    """What is missing to enforce a setting; None if it can be enforced, or protects nothing."""
    if name.startswith("listener.name."):
        name = name.split(".", 3)[-1]
    if name.startswith("ssl.") or ".ssl." in name:
        return "there is no TLS yet"
    if name.startswith("sasl.") or ".sasl." in name:
        return "there is no SASL yet"
    return _REFUSED.get(name)


def _is_default(settings: BrokerSettings, name: str) -> bool:
    setting = setting_of(name)
    return setting is not None and format_value(settings.get(name)) == format_value(setting.default_value())
