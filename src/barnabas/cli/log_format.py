"""How `barnabas serve` writes its log: lines for people, or one JSON object a line for whoever collects them.

An object has `time` (UTC), `level`, `logger`, `message`; what was logged with `extra` comes as fields of its
own, an exception as `exception`. Levels are those of the loggers, by name, whatever the format.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from time import gmtime, strftime

TEXT = "%(asctime)s %(levelname)-7s %(message)s"

# Kafka's names of levels, as its settings and its container image write them
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
# what every record has
_USUAL = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def __init__(self) -> None:
        super().__init__()
        from json import dumps  # 2 ms, for those who want it

        self._dumps = dumps

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in _USUAL:
                fields.setdefault(name, value)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return self._dumps(fields, default=str, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    seconds, milliseconds = divmod(round(record.created * 1000), 1000)
    return f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(seconds))}.{milliseconds:03d}Z"


def set_up_logging(log_format: str | None, level: str | None, environment: Mapping[str, str]) -> None:
    """Log to standard error, unless somebody has set that up already.

    `level`, where given, is that of all loggers, and wins over `KAFKA_LOG4J_ROOT_LOGLEVEL`;
    `KAFKA_LOG4J_LOGGERS` has those of single ones.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    told = level or environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL", "")
    logging.basicConfig(handlers=[handler], level=_LEVELS.get(told.strip().upper(), logging.INFO))
    for name, number in levels_of(environment.get("KAFKA_LOG4J_LOGGERS", "")):
        logging.getLogger(name).setLevel(number)


def levels_of(text: str) -> Iterator[tuple[str, int]]:
    """`name=LEVEL,...` as Kafka's container image has it; what is no level is passed over, as there."""
    for entry in text.split(","):
        name, _, level = entry.partition("=")
        number = _LEVELS.get(level.strip().upper())
        if name.strip() and number is not None:
            yield name.strip(), number
