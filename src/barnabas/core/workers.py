"""The workers seam: where calls run that would hold up the event loop.

Only calls that release the GIL belong here (fsync, reads, writes, kernel passes): a Python thread that
computes costs the loop milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Protocol):
    """A small pool that runs blocking calls beside the loop."""

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `call`, or the exception it raised."""

    def close(self) -> None:
        """Wait for what is running, take no more."""
