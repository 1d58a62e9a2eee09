"""The loggers of this process, as the resource BROKER_LOGGER: their levels under Kafka's names.

Levels take effect at once and are stored nowhere: after a restart they are those of the command line. A
logger exists once its module was first imported. All of them are below `barnabas` and `root`, whose levels
hold for loggers without one of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.controller.configs import APPEND, DELETE, SET, SUBTRACT, Change
from barnabas.controller.decisions import Refused

ROOT = "root"

_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
_NOT_ALLOWED = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def levels() -> dict[str, str]:
    """The level in effect of every logger, root first."""
    known = logging.root.manager.loggerDict
    named = ((name, known[name]) for name in sorted(known))
    loggers = [(ROOT, logging.root), *((n, each) for n, each in named if isinstance(each, logging.Logger))]
    return {name: _level_name(each.getEffectiveLevel()) for name, each in loggers}


def _level_name(level: int) -> str:
    """The most severe of Kafka's levels that lets this one through."""
    return next((name for name, least in reversed(_LEVELS.items()) if level >= least), "TRACE")


def alter_levels(changes: Sequence[Change], *, validate_only: bool) -> None:
    """Set and reset levels: all of them, or none if one is Refused."""
    known = levels()
    for change in changes:
        _check(change, known)
    if validate_only:
        return
    for name, operation, value in changes:
        logger = logging.root if name == ROOT else logging.getLogger(name)
        logger.setLevel(_LEVELS[value] if operation == SET and value else logging.NOTSET)


def _check(change: Change, known: dict[str, str]) -> None:
    name, operation, value = change
    if operation in _NOT_ALLOWED:
        raise Refused(
            "INVALID_REQUEST",
            f"{_NOT_ALLOWED[operation]} operation is not allowed for the BROKER_LOGGER resource",
        )
    if operation not in (SET, DELETE):
        raise Refused("INVALID_REQUEST", f"Unknown operations type {operation}")
    if name not in known:
        raise Refused("INVALID_CONFIG", f"Logger {name} does not exist!")
    if operation == DELETE and name == ROOT:
        raise Refused("INVALID_REQUEST", "Removing the log level of the root logger is not allowed")
    if operation == SET and value not in _LEVELS:
        raise Refused(
            "INVALID_CONFIG",
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}",
        )
