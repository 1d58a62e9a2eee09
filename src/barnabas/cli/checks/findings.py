"""What a check has found: in order, worth a look, or wrong; and then what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """One thing found; `next_step` says what to do where something is to be done."""

    level: Level
    what: str
    next_step: str | None = None


class Section(NamedTuple):
    """What was found of one thing that was looked at."""

    subject: str
    findings: list[Finding]


def ok(what: str) -> Finding:
    """In order."""
    return Finding(Level.OK, what)


def warning(what: str, next_step: str | None = None) -> Finding:
    """It works, but not as one might think."""
    return Finding(Level.WARNING, what, next_step)


def problem(what: str, next_step: str | None = None) -> Finding:
    """It does not work, or will not for long."""
    return Finding(Level.PROBLEM, what, next_step)
