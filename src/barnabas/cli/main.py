"""`barnabas <command>`: finds the command and hands over; nothing else is imported for it.

`serve` must be up in a blink, so every command's module is imported only when it is asked for.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from barnabas.core.errors import BarnabasError

# command -> its module, and what it does in a line
COMMANDS = {
    "serve": ("barnabas.cli.serve", "run a node: a broker and controller, a cluster of one"),
    "up": (
        "barnabas.cli.up",
        "run a cluster on this machine, its nodes supervised: add, remove, restart, kill",
    ),
    "format": ("barnabas.cli.format", "make the directories of a node ready for a cluster of several"),
    "topic": ("barnabas.cli.topic", "list, create, describe, alter, trim and delete topics"),
    "produce": ("barnabas.cli.produce", "write records: lines, files, JSON with keys"),
    "consume": ("barnabas.cli.consume", "read records: from the start, from a time, as they come"),
    "group": ("barnabas.cli.group", "groups: their lag, their members, offsets reset and deleted"),
    "txn": ("barnabas.cli.txn", "transactions: list, describe, find those that hang, abort them"),
    "config": ("barnabas.cli.config", "settings of topics and brokers, where they come from, what they mean"),
    "cluster": ("barnabas.cli.cluster", "brokers, controllers, features, log directories"),
    "log": ("barnabas.cli.log", "look into the files of a partition"),
    "doctor": ("barnabas.cli.doctor", "say what is wrong with a machine, a directory, settings or a cluster"),
    "story": ("barnabas.cli.story", "failures played on real nodes: what happens, and why nothing is lost"),
    "sim": ("barnabas.cli.sim", "a broker and its clients in virtual time, under faults, from a seed"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    _open_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in COMMANDS:
        module, _ = COMMANDS[given[0]]
        try:
            command = _import(module)
        except BarnabasError as error:  # of the import alone: what a command does it tells itself
            sys.stderr.write(f"barnabas {given[0]}: {error}\n")
            return 1
        status: int = command.main(given[1:])
        return status
    if given[:1] == ["--version"]:
        from barnabas import __version__

        sys.stdout.write(f"barnabas {__version__}\n")
        return 0
    wrong = bool(given) and given[0] not in ("-h", "--help", "help")
    stream = sys.stderr if wrong or not given else sys.stdout
    if wrong:
        stream.write(f"barnabas: there is no command {given[0]!r}\n\n")
    stream.write("usage: barnabas <command> [options]\n\n")
    for name, (_, summary) in COMMANDS.items():
        stream.write(f"  {name:<10} {summary}\n")
    stream.write("\n`barnabas <command> --help` tells more; `barnabas --version` which one this is.\n")
    return 2 if wrong or not given else 0


def _import(module: str) -> Any:
    """The module of a command. The objects that imports make stay, so the collector would go through them in
    vain, again and again: it is off meanwhile, and leaves them alone later."""
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def _open_closed_streams() -> None:
    """Let standard streams that a supervisor closed lead nowhere: a socket would get their numbers, and the
    event loop, which never closes those, would end the process."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
