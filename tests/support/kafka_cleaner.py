"""Apache Kafka's own cleaner, run over copies of directories: the oracle of Barnabas's.

`KafkaCleaner` is one JVM (KafkaCleaner.java) that cleans one directory after another:

    with KafkaCleaner() as cleaner:
        cleaner.clean(partition_directory, now_ms=..., config={"delete.retention.ms": "1000"})
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, NamedTuple

from tests.support.apache_kafka import HERE, LEAN_JVM, KafkaFailed, java

SOURCE = HERE / "KafkaCleaner.java"


class Cleaned(NamedTuple):
    """What Kafka planned, and what came of it; `end_offset` is None where there was nothing to clean."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    segments: int
    log_end_offset: int
    end_offset: int | None = None
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0


class KafkaCleaner:
    """The process; started by `with`, ended with it."""

    def __init__(self, jvm: Sequence[str] = LEAN_JVM) -> None:
        self._jvm = tuple(jvm)
        self._process: subprocess.Popen[str] | None = None
        self._complaints: IO[str] | None = None

    def __enter__(self) -> KafkaCleaner:
        self._complaints = TemporaryFile("w+")
        self._process = subprocess.Popen(
            java(SOURCE, jvm=self._jvm),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._complaints is not None
        with self._process:  # its end of the pipe is closed, so it ends by itself
            pass
        self._complaints.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def clean(
        self,
        directory: Path,
        *,
        now_ms: int,
        config: Mapping[str, str],
        first_dirty_offset: int | None = None,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
        dedupe_bytes: int = 1 << 20,
        load_factor: float = 0.9,
        io_buffer_bytes: int = 512 << 10,
        producer_expiration_ms: int = 24 * 3600 * 1000,
        sweep: bool = True,
    ) -> Cleaned:
        """One pass of the cleaner over a partition's directory, at that time."""
        command = {
            "directory": str(directory),
            "now_ms": now_ms,
            "config": dict(config),
            "first_dirty_offset": first_dirty_offset,
            "log_start_offset": log_start_offset,
            "high_watermark": high_watermark,
            "dedupe_bytes": dedupe_bytes,
            "load_factor": load_factor,
            "io_buffer_bytes": io_buffer_bytes,
            "producer_expiration_ms": producer_expiration_ms,
            "sweep": sweep,
        }
        return Cleaned(**self._ask(command))

    def recover(self, directory: Path, *, now_ms: int, config: Mapping[str, str]) -> None:
        """Open a partition's directory as after a crash, all of it flushed before, and close it."""
        command = {"directory": str(directory), "now_ms": now_ms, "config": dict(config)}
        self._ask(command | {"only_open": True, "after_crash": True})

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise KafkaFailed(f"the cleaner has ended:\n{self.complaints()}") from None
        line = self._process.stdout.readline()
        if not line:
            raise KafkaFailed(f"the cleaner has ended:\n{self.complaints()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise KafkaFailed(f"cleaning {command['directory']}:\n{answer['error']}{self.complaints()}")
        return answer

    def complaints(self) -> str:
        """All that Kafka has logged so far at WARN or above."""
        assert self._complaints is not None
        self._complaints.seek(0)
        return self._complaints.read()
