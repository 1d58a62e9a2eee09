"""What the command lines have in common: help with examples, `--bootstrap`, `--timeout`, `--json`.

The common options may stand before or after the name of what is to be done (`barnabas topic --json list`,
`barnabas topic list --json`), so both parsers know them and neither sets a default: `bootstrap_of` and the
others here tell what holds.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence

from barnabas.cli.times import parse_duration

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP"
DEFAULT_TIMEOUT_S = 30.0
# the largest numbers that requests have room for, and the longest time, of which they tell milliseconds
INT16, INT32, INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1
_LONGEST_S = INT32 // 1000
_MOST_NUMBERS = 1_000_000


def command_parser(
    prog: str,
    description: str,
    examples: str,
    *,
    is_connected: bool = True,
    json_help: str = "print JSON",
) -> argparse.ArgumentParser:
    """The parser of a command; one that is connected has `--bootstrap` and `--timeout`, all have `--json`."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=_epilog(examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_common(parser, is_connected=is_connected, json_help=json_help)
    return parser


class Actions:
    """What a command can do, each by a name of its own: `barnabas topic list`."""

    def __init__(
        self, parser: argparse.ArgumentParser, *, is_connected: bool = True, is_required: bool = True
    ) -> None:
        """A command that does something without an action has none that is required."""
        self._of_command = parser
        self._is_connected = is_connected
        self._parsers = parser.add_subparsers(metavar="ACTION", required=is_required, title="actions")

    def add(self, name: str, summary: str, examples: str, run: object) -> argparse.ArgumentParser:
        """One action; `run(options)` does it and gives the exit status."""
        parser = self._parsers.add_parser(
            name,
            prog=f"{self._of_command.prog} {name}",
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_epilog(examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        _add_common(parser, is_connected=self._is_connected)
        parser.set_defaults(run=run, prog=parser.prog)
        return parser


def _add_common(
    parser: argparse.ArgumentParser, *, is_connected: bool, json_help: str = "print JSON"
) -> None:
    common = parser.add_argument_group("common options")
    if is_connected:
        common.add_argument(
            "--bootstrap",
            metavar="H:P[,H:P]",
            default=argparse.SUPPRESS,
            help=f"a broker or some (default: ${BOOTSTRAP_VARIABLE}, else {DEFAULT_BOOTSTRAP})",
        )
        common.add_argument(
            "--timeout",
            metavar="S",
            type=seconds,
            default=argparse.SUPPRESS,
            help=f"how long to wait for an answer, in seconds (default: {DEFAULT_TIMEOUT_S:g})",
        )
    common.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=json_help)


def _epilog(examples: str) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines())


def bootstrap_of(options: argparse.Namespace) -> str:
    """Where the cluster is."""
    given: str | None = getattr(options, "bootstrap", None)
    return given or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP


def timeout_s_of(options: argparse.Namespace) -> float:
    """How long to wait for an answer."""
    given: float = getattr(options, "timeout", DEFAULT_TIMEOUT_S)
    return given


def wants_json(options: argparse.Namespace) -> bool:
    """Whether machines are to read the output."""
    return bool(getattr(options, "json", False))


# ---- types of arguments ----------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """A time in seconds, above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds, above 0 and up to {_LONGEST_S}")
    return value


def natural(text: str, most: int = INT64) -> int:
    """A number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    if len(text) > len(str(INT64)) or int(text) > most:
        raise argparse.ArgumentTypeError(f"at most {most}")
    return int(text)


def integer(text: str, most: int = INT64) -> int:
    """A number, which may be below 0."""
    number = natural(text.removeprefix("-").removeprefix("+"), most)
    return -number if text.startswith("-") else number


def positive(text: str, most: int = INT64) -> int:
    """A number from 1 on."""
    number = natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError("at least 1")
    if number > most:
        raise argparse.ArgumentTypeError(f"at most {most}")
    return number


def naturals(text: str) -> list[int]:
    """Numbers and ranges: `0,3,5-7`."""
    numbers: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        begin = natural(first)
        end = natural(last) if dash else begin
        if end < begin:
            raise argparse.ArgumentTypeError(f"{part!r} goes backwards")
        if end - begin >= _MOST_NUMBERS:
            raise argparse.ArgumentTypeError(f"{part!r} is more than a million")
        numbers.update(dict.fromkeys(range(begin, end + 1)))
    return list(numbers)


def setting(text: str) -> tuple[str, str]:
    """A setting and its value: `retention.ms=1000`."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r}: write it as name=value")
    return name.strip(), value


def some_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """A type of arguments: one of these names or several, capital or not, as it stands here."""
    by_small = {name.lower(): name for name in names}

    def parse(text: str) -> list[str]:
        parts = [part.strip().lower() for part in text.split(",")]
        for part in parts:
            if part not in by_small:
                raise argparse.ArgumentTypeError(f"{part!r} is none of {', '.join(names)}")
        return [by_small[part] for part in parts]

    return parse


def duration(text: str) -> int:
    """A type of arguments: a length of time, in milliseconds."""
    length_ms = parse_duration(text)
    if length_ms is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time; write 90m, or PT1H30M")
    return length_ms
