"""The settings of a client metrics subscription: which metrics, how often, and of which clients."""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.core.settings.definition import InvalidAlteration, InvalidSetting
from barnabas.core.settings.table import Table

# name, kind, default, check: see definition.py
_ROWS = """\
interval.ms int 300000 -
match list '' [*]
metrics list '' [*]
"""

CLIENT_METRICS = Table(_ROWS)

_INTERVAL_MS = range(100, 3_600_001)
_MATCHED = (
    *("client_instance_id", "client_id", "client_software_name", "client_software_version"),
    *("client_source_address", "client_source_port"),
)
_JAVA_CLASSES = re.compile(r"\\[pP]\{\w+\}")


def validate_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """InvalidSetting if a subscription cannot have this name or these settings."""
    if not name:
        raise InvalidAlteration("Subscription name can't be empty")
    for setting in overrides:
        if setting not in CLIENT_METRICS:
            raise InvalidAlteration(f"Unknown client metrics configuration: {setting}")
    values = {setting: CLIENT_METRICS[setting].parse(text) for setting, text in overrides.items()}
    interval = values.get("interval.ms", _INTERVAL_MS.start)
    if interval not in _INTERVAL_MS:
        raise InvalidAlteration(
            f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        )
    patterns = values.get("match", ())
    assert isinstance(patterns, tuple)
    for pattern in patterns:
        if not _is_pattern(pattern):
            raise InvalidSetting(f"Illegal client matching pattern: {pattern}")


def _is_pattern(text: str) -> bool:
    parts = text.rstrip("=").split("=")
    if len(parts) != 2 or parts[0].strip() not in _MATCHED:
        return False
    try:
        # patterns are Java's, with character classes that Python does not have
        re.compile(_JAVA_CLASSES.sub(".", parts[1].strip()))
    except (re.error, RecursionError, OverflowError):  # invalid, too deep, or too many repetitions
        return False
    return True
