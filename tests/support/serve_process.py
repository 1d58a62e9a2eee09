"""`barnabas serve` as a process of its own: started, asked, killed. It never outlives the `with` block."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from tests.support.raw_client import RawClient, metadata_request, produce_request

START_DEADLINE_S = 180.0
STOP_DEADLINE_S = 180.0
POLL_S = 0.005


class ServeProcess:
    """One node. What it writes goes to `<directory>.log`, of all its lives."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        listen: str | None = "127.0.0.1:0",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.log_file = directory.with_name(directory.name + ".log")
        self.port = 0
        self._arguments = ["--dir", str(directory), *(["--listen", listen] if listen else []), *arguments]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __enter__(self) -> ServeProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        """Start, and do not wait."""
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas", "serve", *self._arguments],
                stdout=log,
                stderr=log,
                env=self._environment,
            )

    def start(self) -> None:
        """Start; returns when it says that it serves, and knows its port."""
        self.spawn()
        self._wait_for(lambda: " serves at " in self.log())
        found = re.search(r" serves at \S*?:(\d+)", self.log())
        assert found is not None
        self.port = int(found[1])

    def wait_until_answered(self, port: int) -> None:
        """Wait until a request is answered at that port."""
        self._wait_for(lambda: _is_answered(port))

    def _wait_for(self, condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + START_DEADLINE_S
        while not condition():
            status = None if self._process is None else self._process.poll()
            if status is not None:
                raise AssertionError(f"ended with {status} while starting:\n{self.log()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"does not serve:\n{self.log()}")
            time.sleep(POLL_S)

    def log(self) -> str:
        """What this life of it has written."""
        return self.log_file.read_bytes()[self._log_start :].decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; the exit status."""
        assert self._process is not None
        status = self._process.wait(STOP_DEADLINE_S)
        self._process = None
        return status

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _is_answered(port: int) -> bool:
    try:
        with RawClient(port) as client:
            return client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0
    except (OSError, EOFError):
        return False


def acknowledge_one(port: int, topic: str = "probe") -> int:
    """Have one record acknowledged, by a client that makes its topic first; its offset."""
    with RawClient(port) as client:
        metadata = client.ask(metadata_request(topic), 9, MetadataResponse)
        assert metadata.topics[0].error_code == 0
        produced = client.ask(produce_request(topic, [b"x"]), 9, ProduceResponse)
        (done,) = produced.responses[0].partition_responses
        assert done.error_code == 0, done
        return done.base_offset
