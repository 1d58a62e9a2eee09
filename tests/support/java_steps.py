"""Kafka's newest Java client in a process that is led step by step (tests/interop/java/Steps.java).

create HOST:PORT TOPIC TIMEOUT-MS       a topic of one partition
produce HOST:PORT TOPIC VALUE ...       into partition 0, with idempotence: ok OFFSET ...
consume HOST:PORT TOPIC GROUP COUNT     as a member of a group, which commits: ok VALUE ...
write HOST:PORT TOPIC TIMEOUT-MS        begin to write numbers from 0 on into partition 0
written                                 ok ACKNOWLEDGED, or the error of one that was not
finish                                  stop writing, and wait for all of them: as `written`
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.apache_kafka import java
from tests.support.java_clients import PROGRAMS
from tests.support.stepped import SteppedProcess


@contextmanager
def java_steps() -> Iterator[SteppedProcess]:
    """Such a process, until the end of the `with` block."""
    process = SteppedProcess(java(PROGRAMS / "Steps.java"), [])
    try:
        yield process
    finally:
        process.kill()
