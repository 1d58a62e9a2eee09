"""Serves metrics over HTTP, on the node's own loop: /metrics, /health and /ready.

It implements only the part of HTTP that a scraper or a probe needs: one request a connection, GET and HEAD,
no body. /health means that the loop runs, /ready that the node does its part (otherwise 503 and the reason).
There is no authentication: bind it where only authorised clients can reach it.

The use of resources is limited: a request has a few kilobytes and seconds, a response seconds to be read, and
there are a few connections at most. A further connection replaces the oldest one that has not sent a whole
request, so that silent clients do not block a probe; if all others are being answered, it is closed. Clients
of the broker never wait: a page of many partitions is collected in many turns of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.metrics import OPENMETRICS_TYPE, TEXT_TYPE, Page
from barnabas.core.network import Address, Connection, Listener, Network
from barnabas.core.settings.definition import InvalidSetting

logger = logging.getLogger("barnabas.metrics")

MAX_HEAD_BYTES = 8192
MAX_CONNECTIONS = 16
REQUEST_SECONDS = 10.0
ANSWER_SECONDS = 30.0

_PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
_PATHS = "/metrics, /health and /ready are what there is here.\n"


class BadRequest(BarnabasError):
    """A request that is not valid or not supported."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class Answer:
    """Status, body and content type of a response."""

    def __init__(self, status: int, body: list[bytes], content_type: str = _PLAIN) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type

    def head(self) -> bytes:
        size = sum(map(len, self.body))
        lines = [
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {size}",
            "Connection: close",
        ]
        if self.status == 405:
            lines.append("Allow: GET, HEAD")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


class MetricsEndpoint:
    """Made by `open`, before there are metrics; `serve` connects them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._collect: Callable[[], Awaitable[Page]] | None = None
        self._what_is_missing: Callable[[], str | None] = lambda: "the node is starting"
        self._at_end: Callable[[], None] = lambda: None
        self._tasks: dict[Connection, asyncio.Task[None]] = {}
        self._silent: dict[Connection, None] = {}  # of these, clients that have not sent a whole request
        self._listener: Listener | None = None
        self._scrapes = 0

    @classmethod
    async def open(cls, address: str, network: Network, clock: Clock) -> MetricsEndpoint:
        """Listen at `host:port`; port 0 is any free one."""
        host, port = read_address(address)
        endpoint = cls(clock)
        endpoint._listener = await network.listen(host, port, endpoint._accept)
        if not (host in ("localhost", "::1") or host.startswith("127.")):
            logger.warning(
                "metrics are told at %s to whoever can reach it: nobody is asked who they are",
                endpoint.address,
            )
        return endpoint

    @property
    def address(self) -> Address:
        assert self._listener is not None
        return self._listener.address

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._tasks)

    def serve(
        self,
        collect: Callable[[], Awaitable[Page]],
        *,
        what_is_missing: Callable[[], str | None],
        at_end: Callable[[], None],
    ) -> None:
        """Serve metrics from now on. `what_is_missing` returns why the node is not ready, None if it is;
        `at_end` is called at the close."""
        self._collect, self._what_is_missing, self._at_end = collect, what_is_missing, at_end

    async def close(self) -> None:
        """Stop listening, and abort all connections."""
        if self._listener is not None:
            self._listener.close()
        self._at_end()
        tasks = list(self._tasks.values())
        for connection in list(self._tasks):
            self._cut_off(connection)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, connection: Connection) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS and not self._make_room():
            logger.warning("turned %s away: %d ask for metrics already", connection.peer, MAX_CONNECTIONS)
            connection.abort()
            return
        self._silent[connection] = None
        self._tasks[connection] = asyncio.get_running_loop().create_task(self._talk(connection))

    def _make_room(self) -> bool:
        oldest = next(iter(self._silent), None)
        if oldest is not None:
            self._cut_off(oldest)
        return oldest is not None

    def _cut_off(self, connection: Connection) -> None:
        self._tasks[connection].cancel()
        self._forget(connection)  # a cancelled task that has not begun would not do it

    def _forget(self, connection: Connection) -> None:
        connection.abort()
        self._tasks.pop(connection, None)
        self._silent.pop(connection, None)

    async def _talk(self, connection: Connection) -> None:
        try:
            answer, is_head = await self._read(connection)
            async with asyncio.timeout(ANSWER_SECONDS):
                await connection.write([answer.head(), *([] if is_head else answer.body)])
                connection.write_eof()
                # until the other end has read everything: closing with unread bytes would reset the
                # connection
                while await connection.read(MAX_HEAD_BYTES):
                    pass
            connection.close()
            await connection.wait_closed()
        except (BarnabasError, TimeoutError) as error:
            logger.debug("gave up on %s, which asked for metrics: %r", connection.peer, error)
        except Exception:
            logger.exception("a request for metrics ended by an unexpected error")
        finally:
            self._forget(connection)

    async def _read(self, connection: Connection) -> tuple[Answer, bool]:
        """The response to the request, and whether only its head is sent."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                method, path, headers = await read_request(connection)
        except BadRequest as error:
            return Answer(error.status, [f"{error}\n".encode()]), False
        finally:
            self._silent.pop(connection, None)
        return await self._answer(path, headers), method == "HEAD"

    async def _answer(self, path: str, headers: dict[str, str]) -> Answer:
        if path == "/health":
            return Answer(200, [b"the loop turns\n"])
        if path == "/ready":
            missing = self._what_is_missing()
            return Answer(200, [b"ready\n"]) if missing is None else Answer(503, [f"{missing}\n".encode()])
        if path != "/metrics":
            return Answer(404, [_PATHS.encode()])
        if self._collect is None:
            return Answer(503, [b"the node is starting\n"])
        self._scrapes += 1
        began = self._clock.monotonic()
        try:
            page = await self._collect()
        except Exception:  # for any error, the response points to the log
            logger.exception("the metrics could not be gathered")
            return Answer(500, [b"the metrics could not be gathered; the node's log says why\n"])
        page.add("barnabas_scrapes_total", self._scrapes)
        page.add("barnabas_scrape_seconds", self._clock.monotonic() - began)
        openmetrics = "application/openmetrics-text" in headers.get("accept", "")
        content_type = OPENMETRICS_TYPE if openmetrics else TEXT_TYPE
        return Answer(200, [piece async for piece in _rendered(page, openmetrics)], content_type)


async def _rendered(page: Page, openmetrics: bool) -> AsyncIterator[bytes]:
    for piece in page.render(openmetrics=openmetrics):
        yield piece
        await asyncio.sleep(0)


async def read_request(connection: Connection) -> tuple[str, str, dict[str, str]]:
    """Read a request: method, path without its query, and headers with names in lower case."""
    head = b""
    while b"\r\n\r\n" not in head:
        more = await connection.read(MAX_HEAD_BYTES)
        if not more:
            raise BadRequest(400, "the request ends before its headers do")
        head += more
        if len(head) > MAX_HEAD_BYTES:
            raise BadRequest(431, f"a request may have {MAX_HEAD_BYTES} bytes of headers")
    first, *lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise BadRequest(400, "this is no request of HTTP")
    method, target, version = words
    if not version.startswith("HTTP/1."):
        raise BadRequest(505, "HTTP/1.1 is spoken here")
    if method not in ("GET", "HEAD"):
        raise BadRequest(405, "only GET and HEAD are answered here")
    split = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): text.strip() for name, _, text in split}
    return method, target.partition("?")[0], headers


def read_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, with or without brackets around an IPv6 address; no host is every interface."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidSetting(f"barnabas.metrics.listen={text}: it must be host:port, the port up to 65535")
    return host.strip("[]"), int(port)
