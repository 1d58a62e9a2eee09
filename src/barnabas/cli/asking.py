"""Questions to whoever sits at the terminal, before something is done that cannot be undone."""

from __future__ import annotations

import sys

from barnabas.cli.failures import CommandFailed


def be_sure(question: str, *, is_sure: bool) -> None:
    """Ask, unless `--yes` was given or nobody is there to be asked; any answer but yes ends the command."""
    if is_sure or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was done")
