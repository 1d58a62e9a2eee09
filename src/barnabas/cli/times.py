"""Times on a command line and in what is printed: milliseconds since 1970 inside, local time outside.

What is printed carries its distance from UTC, so that it can be pasted back and means the same anywhere.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_ISO_LENGTH = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
# what can be printed: datetime ends with the year 9999
_LAST_MS = 253_402_214_400_000


def time_text(time_ms: int) -> str:
    """`2026-01-01T10:00:00.000+01:00`; a plain number where it is no time that has such a form."""
    if not 0 <= time_ms < _LAST_MS:
        return str(time_ms)
    return (_EPOCH + timedelta(milliseconds=time_ms)).astimezone().isoformat(timespec="milliseconds")


def parse_time(text: str, now_ms: int) -> int | None:
    """`-90m` before now, a date, or a date and time (local if no zone is given); None for anything else.

    Never before 1970: Kafka takes such numbers for names, -1 for the end and -2 for the beginning.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, int(max(0.0, now_ms - float(ago[1]) * _UNITS_MS[ago[2]])))
    if text == "now":
        return now_ms
    if not re.match(r"\d{4}-\d\d-\d\d", text):  # a bare number is never taken for a year
        return None
    try:
        # a time without a zone is that of this machine
        parsed = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # no date, or one that another zone has no year for
        return None
    return max(0, (parsed - _EPOCH) // _MILLISECOND)


def parse_duration(text: str) -> int | None:
    """Milliseconds of `90m`, or of `PT1H30M` as ISO 8601 writes it; None for anything else."""
    plain = _LENGTH.fullmatch(text)
    if plain is not None:
        return _milliseconds(float(plain[1]) * _UNITS_MS[plain[2]])
    iso = _ISO_LENGTH.fullmatch(text)
    if iso is None or not any(iso.groups()):
        return None
    counts = zip(iso.groups(), ("d", "h", "m", "s"), strict=True)
    return _milliseconds(sum(float(count or 0) * _UNITS_MS[unit] for count, unit in counts))


def _milliseconds(length_ms: float) -> int:
    return int(min(length_ms, _LAST_MS))  # longer than that is for ever, too


def duration_text(length_ms: int) -> str:
    """`2.5 s`, `12 m`, `3.1 h`, `4.0 d`: one number that a glance takes in."""
    for unit, most in (("s", 60), ("m", 60), ("h", 24)):
        count = length_ms / _UNITS_MS[unit]
        if count < most:
            return f"{count:.1f} {unit}"
    return f"{length_ms / _UNITS_MS['d']:.1f} d"
