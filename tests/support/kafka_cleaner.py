"""Apache Kafka's own cleaner, run over copies of directories: the oracle of Barnabas's.

`KafkaCleaner` is one JVM (KafkaCleaner.java) that cleans one directory after another:

    with KafkaCleaner() as cleaner:
        cleaner.clean(partition_directory, now_ms=..., config={"delete.retention.ms": "1000"})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.apache_kafka import HERE, LEAN_JVM, KafkaFailed
from tests.support.java_driver import JavaDriver

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


class KafkaCleaner(JavaDriver):
    """The process; started by `with`, ended with it."""

    def __init__(self, jvm: Sequence[str] = LEAN_JVM) -> None:
        super().__init__(SOURCE, jvm)

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

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        answer = super()._ask(command)
        if "error" in answer:
            raise KafkaFailed(f"cleaning {command['directory']}:\n{answer['error']}{self.complaints()}")
        return answer
