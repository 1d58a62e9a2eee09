"""What a run is asked to measure."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """`small` runs everything on tiny input: it shows that it works, and its numbers mean nothing."""

    small: bool = False
    # in the order in which they take turns
    systems: tuple[str, ...] = ("barnabas", "kafka")
    clients: tuple[str, ...] = ("confluent", "java")
    rounds: int = 3
    # only those cells of produce, consume, replication and spark whose names contain this
    match: str = ""
