"""The trace: a line for everything that happens, and a running hash over all lines.

Two runs of a seed went the same way if and only if their hashes are equal. A line is "time actor what", and
says nothing that differs between processes: no addresses, no real time, no order of sets. In a simulation of
several machines the actor of a machine's line names its host ("disk@broker-2"); where there is one machine
nothing names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b

# Adds a line: actor, what
AddLine = Callable[[str, str], None]


class Trace:
    """Written to by everything in a simulation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_line: Callable[[str], None] | None = None) -> None:
        self.lines = 0
        self._loop = loop
        self._on_line = on_line
        self._hash = blake2b(digest_size=16)

    def __call__(self, actor: str, what: str) -> None:
        line = f"{self._loop.time():.7f} {actor} {what}"
        self.lines += 1
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        if self._on_line is not None:
            self._on_line(line)

    def at(self, host: str) -> AddLine:
        """Adds the lines of one machine among several."""
        return lambda actor, what: self(f"{actor}@{host}", what)

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()
