"""Settings of a consumer, share or streams group.

Without a setting of the group, the broker's setting of the same name under `group.` applies. The broker's
`group.<family>.min.` and `.max.` settings bound the values of a group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting, Value
from barnabas.core.settings.table import Table

# name, kind, default, check: see definition.py
_ROWS = """\
consumer.assignment.interval.ms int 1000 0..
consumer.heartbeat.interval.ms int 5000 1..
consumer.session.timeout.ms int 45000 1..
share.assignment.interval.ms int 1000 0..
share.auto.offset.reset string latest -
share.delivery.count.limit int 5 2..
share.heartbeat.interval.ms int 5000 1..
share.isolation.level string read_uncommitted {read_committed,read_uncommitted}
share.partition.max.record.locks int 2000 100..
share.record.lock.duration.ms int 30000 1000..
share.renew.acknowledge.enable boolean true -
share.session.timeout.ms int 45000 1..
streams.assignment.interval.ms int 1000 0..
streams.heartbeat.interval.ms int 5000 1..
streams.initial.rebalance.delay.ms int 3000 0..
streams.num.standby.replicas int 0 0..
streams.session.timeout.ms int 45000 1..
"""

GROUP = Table(_ROWS)

_RESET = "share.auto.offset.reset"
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNIT_SECONDS = (24 * 3600, 3600, 60, 1)


def broker_synonym(name: str) -> str | None:
    """The broker's setting that is a group setting's default."""
    synonym = f"group.{name}"
    return synonym if synonym in BROKER else None


def group_default(name: str, broker: BrokerSettings) -> Value:
    """The value for groups without a setting of their own."""
    synonym = broker_synonym(name)
    return GROUP[name].default_value() if synonym is None else broker.get(synonym)


def validate_group_overrides(overrides: Mapping[str, str], broker: BrokerSettings) -> None:
    """InvalidSetting if a group cannot have these settings."""
    for name in overrides:
        if name not in GROUP:
            raise InvalidSetting(f"Unknown group config name: {name}")
    values = {name: GROUP[name].parse(text) for name, text in overrides.items()}
    if _RESET in overrides:
        _check_reset(overrides[_RESET].strip())
    for name, value in values.items():
        _check_bounds(name, value, broker)
    for family in ("consumer", "share", "streams"):
        timeout, interval = f"{family}.session.timeout.ms", f"{family}.heartbeat.interval.ms"
        if (timeout in values or interval in values) and not (
            _number(interval, values, broker) < _number(timeout, values, broker)
        ):
            raise InvalidSetting(f"{timeout} must be greater than {interval}")


def _number(name: str, values: Mapping[str, Value], broker: BrokerSettings) -> int:
    value = values[name] if name in values else group_default(name, broker)
    assert isinstance(value, int)
    return value


def _check_bounds(name: str, value: Value, broker: BrokerSettings) -> None:
    family, _, rest = name.partition(".")
    low, high = f"group.{family}.min.{rest}", f"group.{family}.max.{rest}"
    if name == "streams.num.standby.replicas":
        high = "group.streams.max.standby.replicas"
    if low in BROKER and isinstance(value, int) and value < broker.integer(low):
        raise InvalidSetting(f"{name} must be greater than or equal to {low}")
    if high in BROKER and isinstance(value, int) and value > broker.integer(high):
        raise InvalidSetting(f"{name} must be less than or equal to {high}")


def _check_reset(text: str) -> None:
    strategy, separator, duration = text.partition(":")
    if text in ("earliest", "latest") or (strategy == "by_duration" and separator and _is_duration(duration)):
        return
    raise InvalidSetting(
        f"Invalid value {text} for configuration {_RESET}: Invalid value `{text}` for configuration {_RESET}."
        " The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


def _is_duration(text: str) -> bool:
    """Whether it is a duration of ISO 8601 as Java reads it (in 64 bits of seconds), and not negative."""
    found = _DURATION.fullmatch(text)
    if found is None or text[-1:] in "Tt" or not any(found.groups()[1:]):
        return False
    amounts = [float((amount or "0").replace(",", ".")) for amount in found.groups()[1:]]
    seconds = sum(amount * unit for amount, unit in zip(amounts, _UNIT_SECONDS, strict=True))
    return 0 <= (-seconds if found[1] == "-" else seconds) < 2**63
