"""Questions to whoever sits at the terminal, before something is done that cannot be undone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.cli.failures import CommandFailed


def be_sure(question: str, *, is_sure: bool) -> None:
    """Ask, unless `--yes` was given or nobody is there to be asked; any answer but yes ends the command."""
    if is_sure or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    with _interrupted_at_once():
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was done")


@contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """asyncio would only cancel its task at the first Ctrl-C, which nobody notices while a line is read."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
