"""How other processes ask the supervisor of a local cluster to restart, add or remove a node.

The supervisor listens at a port of the loopback interface. The port, and a token without which nothing is
done, are in a file that only its user can read. A request is one JSON object in a line; what happens to nodes
meanwhile is answered as one object a line, and the last line is the result or the error. One request is
served at a time, and a client that goes away does not stop what it asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from barnabas.cli.failures import CommandFailed, explained
from barnabas.cli.local_cluster.plan import HOST
from barnabas.cli.local_cluster.supervisor import Event
from barnabas.core.errors import BarnabasError
from barnabas.core.random import Random, random_id
from barnabas.log.checkpoints import uuid_to_text

CONTROL = ".up.control"
_CONNECT_S = 10.0
_MOST_BYTES = 1 << 16

Handler = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


class ControlServer:
    """The supervisor's end: `handlers` by the name of what is asked for."""

    def __init__(self, directory: Path, handlers: Mapping[str, Handler], random: Random) -> None:
        self._path = directory / CONTROL
        self._handlers = handlers
        self._token = uuid_to_text(random_id(random))
        self._one_at_a_time = asyncio.Lock()
        self._listeners: set[asyncio.StreamWriter] = set()
        self._working: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, and say where."""
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=_MOST_BYTES)
        port = self._server.sockets[0].getsockname()[1]
        self._path.unlink(missing_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps({"port": port, "token": self._token}) + "\n")

    def tell(self, event: Event) -> None:
        """Pass an event of a node on to the requests that are under way."""
        node = None if event.node is None else event.node.node_id
        for writer in self._listeners:
            _send(writer, {"event": event.kind, "node": node, "text": event.text})

    async def close(self) -> None:
        """Refuse what comes now, and give up what is being done."""
        self._path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        try:
            line = await reader.readline()
            _send(writer, await self._answer(line, writer))
            await writer.drain()
        except (OSError, ValueError):
            return  # the other end is gone, or sends no lines
        except asyncio.CancelledError:
            _send(writer, {"error": "the cluster is being stopped"})
            raise
        finally:
            writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except ValueError:
            return {"error": "that is no request"}
        if not isinstance(request, dict) or request.get("token") != self._token:
            return {"error": "the token is wrong"}
        handler = self._handlers.get(str(request.get("ask")))
        if handler is None:
            return {"error": f"the supervisor does not know {request.get('ask')!r}"}
        async with self._one_at_a_time:
            self._listeners.add(writer)
            try:
                return {"result": await handler(request)}
            except BarnabasError as error:
                failure = explained(error)
                return {"error": str(failure), "next": failure.next_step}
            except OSError as error:  # of the handler's files and processes, not of this connection
                return {"error": f"{request['ask']} failed: {error}"}
            finally:
                self._listeners.discard(writer)


def _send(writer: asyncio.StreamWriter, told: Mapping[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(told).encode() + b"\n")


def ask_supervisor(
    directory: Path, what: str, told: Callable[[dict[str, Any]], None], **arguments: object
) -> dict[str, Any]:
    """Ask, and wait for the result; `told` is called with each event before it."""
    try:
        content = json.loads((directory / CONTROL).read_bytes())
        place, token = (HOST, int(content["port"])), str(content["token"])
    except FileNotFoundError:
        raise CommandFailed(
            f"no cluster is running in {directory}", f"`barnabas up --dir {directory}` starts it"
        ) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CommandFailed(f"cannot read {directory / CONTROL}: {error}") from error
    try:
        with contextlib.closing(socket.create_connection(place, _CONNECT_S)) as connected:
            connected.settimeout(None)  # a node may take long to stop and to start
            connected.sendall(json.dumps({"ask": what, "token": token, **arguments}).encode() + b"\n")
            return _result(connected, told)
    except OSError as error:
        raise CommandFailed(
            f"the supervisor of {directory} does not answer: {error.strerror or error}",
            f"`barnabas up status --dir {directory}` shows what runs",
        ) from error


def _result(connected: socket.socket, told: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    with connected.makefile("rb") as lines:
        for line in lines:
            answer: dict[str, Any] = json.loads(line)
            if "error" in answer:
                raise CommandFailed(answer["error"], answer.get("next"))
            if "result" in answer:
                result: dict[str, Any] = answer["result"]
                return result
            told(answer)
    raise CommandFailed("the supervisor has gone away before it was done")
