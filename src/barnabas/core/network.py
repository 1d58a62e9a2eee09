"""The network seam: listeners, and connections that carry bytes and ranges of files.

The rules every implementation keeps (tests/core holds them to it):

- Bytes arrive in the order of the `write` calls, whole, or the connection is lost; one task reads at a time.
- `write` queues its parts at once, and returns when no more than WRITE_LIMIT_BYTES are still waiting: a peer
  that does not read stops its writer, and costs a bounded amount of memory. Cancelled, it stays queued.
- A range of a file is pinned from `write` until it is sent, so the file may be renamed or removed meanwhile.
- `read` gives b"" once the peer has ended its side; the other direction goes on.
- Anything else that ends a connection is a `ConnectionLost`, to all reads and writes from then on. Only an
  `InvariantViolation`, such as the use of a closed file, is raised as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from barnabas.core.disk import Buffer, FileRange
from barnabas.core.errors import BarnabasError, wire_error

WRITE_LIMIT_BYTES = 1024 * 1024

Part = Buffer | FileRange


class Address(NamedTuple):
    """One end of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection(Protocol):
    """A stream of bytes in both directions."""

    @property
    def peer(self) -> Address:
        """Who is at the other end."""

    @property
    def unsent_bytes(self) -> int:
        """How much of what was written is still waiting here."""

    async def read(self, max_bytes: int) -> bytes:
        """The next bytes, at least one and at most that many; b"" once the peer has ended its side."""

    async def readinto(self, buffer: bytearray | memoryview) -> int:
        """The same, into a buffer that is not empty; gives the number of bytes, 0 at the end."""

    async def write(self, parts: Sequence[Part]) -> None:
        """Send buffers and ranges of files, in this order; buffers must not change until they are sent."""

    def flush(self) -> None:
        """Send what was written in this turn of the loop now; it leaves at the end of the turn anyway."""

    def write_eof(self) -> None:
        """End this side, once everything written is sent; reading goes on."""

    def close(self) -> None:
        """Read no more, and close once everything written is sent; harmless when repeated."""

    def abort(self) -> None:
        """Close at once, throwing away what is not sent; the peer finds the connection lost."""

    async def wait_closed(self) -> None:
        """Return when the connection is closed, or lost."""


class Listener(Protocol):
    """An address at which connections are accepted."""

    @property
    def address(self) -> Address:
        """Where it listens; the port is the real one where 0 was asked for."""

    def close(self) -> None:
        """Accept no more; accepted connections go on. Harmless when repeated."""


class Network(Protocol):
    """The way out of a node, and into it."""

    async def listen(self, host: str, port: int, on_connection: Callable[[Connection], None]) -> Listener:
        """Accept connections at that address; port 0 takes any that is free."""

    async def connect(self, host: str, port: int) -> Connection:
        """A connection to the process that listens there; ConnectionRefused where none does."""


class ConnectionLost(BarnabasError):
    """The connection is gone: reset by the peer, broken on the way, or closed on this side."""

    wire = wire_error("NETWORK_EXCEPTION")


class CannotConnect(ConnectionLost):
    """Nobody answers at that address."""


class ConnectionRefused(CannotConnect):
    """The machine answers, and says that nothing listens at that port: at every address of its name."""


class CannotListen(BarnabasError):
    """An address cannot be listened at."""
