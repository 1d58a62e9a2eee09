"""The network interface: listeners, and connections that carry bytes and ranges of files.

Every implementation keeps these rules (tests/core checks them):

- Bytes arrive in the order of the `write` calls, whole, or the connection is lost; one task reads at a time.
- `write` queues its parts at once, and returns when no more than WRITE_LIMIT_BYTES are still unsent: a peer
  that does not read blocks its writer, and costs a bounded amount of memory. The parts of a cancelled `write`
  stay queued.
- A range of a file is pinned from `write` until it is sent, so the file may be renamed or removed meanwhile.
- `read` gives b"" once the peer has ended its side; the other direction goes on.
- Every other end of a connection is a `ConnectionLost`, raised by all reads and writes from then on. Only an
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
        """The address of the other end."""

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that were written and not yet sent."""

    async def read(self, max_bytes: int) -> bytes:
        """The next bytes, at least one and at most `max_bytes`; b"" once the peer has ended its side."""

    async def readinto(self, buffer: bytearray | memoryview) -> int:
        """As `read`, into a buffer that is not empty; returns the number of bytes, 0 at the end."""

    async def write(self, parts: Sequence[Part]) -> None:
        """Send buffers and ranges of files, in this order; buffers must not change until they are sent."""

    def flush(self) -> None:
        """Send what was written in this turn of the loop now, rather than at the end of the turn."""

    def write_eof(self) -> None:
        """End this side once everything written is sent; reading goes on."""

    def close(self) -> None:
        """Stop reading, and close once everything written is sent; harmless when repeated."""

    def abort(self) -> None:
        """Close at once and drop unsent bytes; the peer sees a lost connection."""

    async def wait_closed(self) -> None:
        """Return when the connection is closed, or lost."""


class Listener(Protocol):
    """An address at which connections are accepted."""

    @property
    def address(self) -> Address:
        """The bound address, with the real port if 0 was requested."""

    def close(self) -> None:
        """Accept no more; accepted connections go on. Harmless when repeated."""


class Network(Protocol):
    """A node's network: it connects and accepts connections."""

    async def listen(self, host: str, port: int, on_connection: Callable[[Connection], None]) -> Listener:
        """Accept connections at that address; port 0 takes any that is free."""

    async def connect(self, host: str, port: int) -> Connection:
        """A connection to the listener at that address; ConnectionRefused if there is none."""


class ConnectionLost(BarnabasError):
    """The connection is gone: reset by the peer, broken on the way, or closed on this side."""

    wire = wire_error("NETWORK_EXCEPTION")


class CannotConnect(ConnectionLost):
    """No connection could be made to that address."""


class ConnectionRefused(CannotConnect):
    """Every address of that name refused the connection: no process listens at that port."""


class CannotListen(BarnabasError):
    """The node cannot listen at an address."""
