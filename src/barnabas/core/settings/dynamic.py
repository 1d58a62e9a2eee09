"""Dynamic settings: which ones can be altered, for one broker or for all, and to which values.

`check_alteration` checks all dynamic settings as they would be afterwards: names and values first, then their
relations with all other settings. A refusal is an invalid request, in Kafka's words where Kafka refuses it,
too. Unknown names are accepted and stored, as in Kafka, where plug-ins may use them.

Kafka can change listeners and load classes while it runs. Here that needs a restart, or is not supported; it
is refused, so that no setting is accepted and then ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.broker_settings import BrokerSettings, base_name
from barnabas.core.settings.definition import InvalidAlteration, InvalidSetting, Update, format_value
from barnabas.core.settings.relations import check_relations
from barnabas.core.settings.security import why_refused

_ONLY_OF_LISTENERS = (
    *("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password"),
    *("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.truststore.certificates"),
    *("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password"),
)
# listener settings that may be set for all brokers
_CLUSTER_WIDE_OF_LISTENERS = ("max.connections", "max.connection.creation.rate", "num.network.threads")
_THREADS = (
    *("background.threads", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir"),
    *("num.replica.fetchers", "remote.log.manager.copier.thread.pool.size", "remote.log.reader.threads"),
    *("remote.log.manager.expiration.thread.pool.size", "remote.log.manager.follower.thread.pool.size"),
)
# at zero nobody could connect any more, not even to alter it again
_NEVER_NONE = ("max.connections", "max.connection.creation.rate")
_NEED_A_RESTART = ("listeners", "listener.security.protocol.map")


def check_alteration(new: Mapping[str, str], settings: BrokerSettings, *, of_one_broker: bool) -> None:
    """InvalidAlteration if `new` cannot be the dynamic settings of this broker, or of all brokers.

    `settings` are the broker's current ones.
    """
    _refuse("Cannot update these configs dynamically", (name for name in new if _is_fixed(name)))
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        (name for name in new if name in _ONLY_OF_LISTENERS),
    )
    for name, text in new.items():
        _check_value(name, text)
    if not of_one_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            filter(_is_of_one_broker, new),
        )
    if of_one_broker:
        after = settings.with_dynamic(new, settings.dynamic_default)
    else:
        after = settings.with_dynamic(settings.dynamic, new)
    for name in new:
        _refuse_what_cannot_be_done(name, settings, after)
    try:
        check_relations(after)
    except InvalidSetting as error:
        raise InvalidAlteration(str(error)) from None
    _check_threads(settings, after)
    _check_local_retention(after)


def _refuse(problem: str, names: Iterable[str]) -> None:
    refused = list(names)
    if refused:
        raise InvalidAlteration(f"{problem}: [{', '.join(refused)}]")


def _is_fixed(name: str) -> bool:
    known = BROKER.get(name)
    return known is not None and known.update is Update.READ_ONLY


def _is_of_one_broker(name: str) -> bool:
    base = base_name(name)
    if base != name:
        return base not in _CLUSTER_WIDE_OF_LISTENERS
    known = BROKER.get(name)
    return known is not None and known.update is Update.PER_BROKER


def _check_value(name: str, text: str) -> None:
    base = base_name(name)
    setting = BROKER.get(base)
    if setting is None:
        return
    try:
        value = setting.parse(text)
    except InvalidSetting as error:
        raise InvalidAlteration(str(error)) from None
    if base in _NEVER_NONE and value == 0:
        raise InvalidAlteration(f"Invalid {base} 0")


def _refuse_what_cannot_be_done(name: str, now: BrokerSettings, after: BrokerSettings) -> None:
    if name in _NEED_A_RESTART:
        if after.get(name) != now.get(name):
            raise InvalidAlteration(
                f"{name} cannot be altered while the broker runs: set it where the broker is started, and "
                "start it anew"
            )
        return
    why = why_refused(name)
    setting = BROKER.get(base_name(name))
    if why is None or (setting and format_value(after.get(name)) == format_value(setting.default_value())):
        return
    raise InvalidAlteration(f"{name} could not be enforced: {why}")


def _check_threads(now: BrokerSettings, after: BrokerSettings) -> None:
    """There are no thread pools here, but Kafka must be able to use the stored values."""
    for name in _THREADS:
        old, new = now.integer(name), after.integer(name)
        problem = f"Dynamic thread count update validation failed for {name}={new}, value should"
        if new * 2 < old:
            raise InvalidAlteration(f"{problem} be at least half the current value {old}")
        if new > old * 2:
            raise InvalidAlteration(f"{problem} not be greater than double the current value {old}")
    name = "log.cleaner.threads"
    old, new = now.integer(name), after.integer(name)
    if new == old:
        return
    if new < 1:
        raise InvalidAlteration("Log cleaner threads should be at least 1")
    if new * 2 < old:
        raise InvalidAlteration(
            f"Log cleaner threads cannot be reduced to less than half the current value {old}"
        )
    if new > old * 2:
        raise InvalidAlteration(
            f"Log cleaner threads cannot be increased to more than double the current value {old}"
        )


def _check_local_retention(after: BrokerSettings) -> None:
    hours, minutes = after.integer("log.retention.hours"), after.optional_integer("log.retention.minutes")
    given_ms = after.optional_integer("log.retention.ms")
    coarse_ms = hours * 3_600_000 if minutes is None else minutes * 60_000
    whole = {
        "log.retention.ms": coarse_ms if given_ms is None else given_ms,
        "log.retention.bytes": after.integer("log.retention.bytes"),
    }
    for name, retention in whole.items():
        local_name = name.replace("log.", "log.local.")
        local = after.integer(local_name)
        if retention < 0 or local == -2 or 0 <= local <= retention:
            continue
        problem = (
            f"Value must not be -1 as {name} value is set as {retention}."
            if local == -1
            else f"Value must not be more than {name} property value: {retention}"
        )
        raise InvalidAlteration(f"Invalid value {local} for configuration {local_name}: {problem}")
