"""Requests to the supervisor of a local cluster: what the handler raises is what the command tells."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.failures import CommandFailed
from barnabas.cli.local_cluster.control import ControlServer, ask_supervisor
from barnabas.core.random import SeededRandom


def ask(directory: Path, error: Exception) -> dict[str, Any]:
    async def fail(request: Mapping[str, Any]) -> dict[str, Any]:
        raise error

    async def scenario() -> dict[str, Any]:
        server = ControlServer(directory, {"add": fail}, SeededRandom(1))
        await server.start()
        try:
            return await asyncio.to_thread(ask_supervisor, directory, "add", lambda event: None)
        finally:
            await server.close()

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device", "/here"), "add failed: .*No space left on device: '/here'"),
        (CommandFailed("no ports are left"), "no ports are left"),
    ],
)
def test_error_of_a_handler_is_told(tmp_path: Path, error: Exception, told: str) -> None:
    with pytest.raises(CommandFailed, match=told):
        ask(tmp_path, error)
