"""How a command runs: its failures told, its status given, Ctrl-C and closed pipes without a trace.

Exit status: 0 where it did what was asked, 1 where it could not (standard error says why and what to do
next), 2 for a wrong command line, 130 where it was interrupted. A reader that has seen enough and closed the
pipe (`| head`) ends a command quietly with 0.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Callable, Sequence

from barnabas.cli.failures import FAILED, INTERRUPTED, OK, CommandFailed, explained
from barnabas.cli.options import wants_json
from barnabas.cli.output import tell_failure
from barnabas.core.errors import BarnabasError

_OUTPUT_ERRORS = frozenset((errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT))


def run_command(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Parse a command line and do what its `run` does (set by `Actions.add` or `set_defaults`)."""
    options = parser.parse_args(joined(arguments))
    prog: str = getattr(options, "prog", parser.prog)
    return guarded(lambda: options.run(options), prog, as_json=wants_json(options))


def joined(arguments: Sequence[str]) -> list[str]:
    """`--at -2h` as `--at=-2h`: argparse would take the value for an option."""
    result: list[str] = []
    for argument in arguments:
        is_value = re.match(r"-\d", argument) and result and re.fullmatch(r"--[a-z-]+", result[-1])
        if is_value:
            result[-1] += f"={argument}"
        else:
            result.append(argument)
    return result


def guarded(work: Callable[[], int | None], prog: str, *, as_json: bool = False) -> int:
    """Do the work of a command; the exit status."""
    try:
        status = work()
        sys.stdout.flush()
    except BarnabasError as error:
        tell_failure(prog, explained(error), as_json=as_json)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return OK
    except UnicodeEncodeError as error:
        tell_failure(prog, _unwritable(error), as_json=as_json)
        return FAILED
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
            raise
        _silence_stdout()
        tell_failure(prog, CommandFailed(f"cannot write the output: {error.strerror}"), as_json=as_json)
        return FAILED
    return OK if status is None else status


def _unwritable(error: UnicodeEncodeError) -> CommandFailed:
    """A word of the command line that no request can hold, or a value that the terminal cannot show."""
    part = error.object[error.start : error.end]
    if any("\ud800" <= character <= "\udfff" for character in part):
        return CommandFailed(f"{error.object!a} is no text", "names and values are given in UTF-8")
    return CommandFailed(f"{part!a} cannot be written in {error.encoding}", "set PYTHONUTF8=1")


def _silence_stdout() -> None:
    """Let the interpreter's last flush go nowhere: the reader is gone."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # it is no file of this process
        return
