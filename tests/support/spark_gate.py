"""A place in a Spark job where it stops until a test lets it go on: rows before it are on their way by then.

gate = Gate(tmp_path)
... gate.in_front_of(frame) ...     # elsewhere, in a thread or a query
gate.wait()                         # some rows are through
gate.open()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from tests.support.raw_client import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMEOUT_S = 120.0


class Gate:
    """Files in a directory: processes on this machine see them."""

    def __init__(self, directory: Path) -> None:
        self._reached, self._opened = directory / "reached", directory / "opened"

    def in_front_of(self, frame: DataFrame) -> DataFrame:
        """The same rows; one task stops after the second Arrow batch of its values, until the gate opens."""
        from pyspark.sql.pandas.functions import arrow_udf

        reached, opened, timeout_s = str(self._reached), str(self._opened), TIMEOUT_S

        def pass_through(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            import os
            import time

            for number, batch in enumerate(batches):
                yield batch
                if number == 0 or os.path.exists(opened):
                    continue  # what comes next takes the first batch when it asks for the second
                try:
                    open(reached, "x").close()
                except FileExistsError:  # another task stops already
                    continue
                deadline = time.monotonic() + timeout_s
                while not os.path.exists(opened):
                    assert time.monotonic() < deadline, "nobody opens the gate"
                    time.sleep(0.01)

        make: Any = arrow_udf
        pass_through.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
        through = make(pass_through, "binary").asNondeterministic()
        return frame.withColumn("value", through(frame.value.cast("binary")))

    def wait(self, is_hopeless: Callable[[], bool] = lambda: False) -> None:
        """Return when a task stands there."""
        wait_until(lambda: self._reached.exists() or is_hopeless(), "the gate is reached", TIMEOUT_S)
        assert self._reached.exists(), "the job ended before it came to the gate"

    def open(self) -> None:
        self._opened.touch()
