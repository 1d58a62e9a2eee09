"""The lag of a query, from the progress that Spark reports: a Python source cannot add metrics to it.

    lag(query.lastProgress).total
    lag(progress).metrics()         with the names of Spark's own connector

Offsets are counted, not records: after compaction, or with transactions, there are fewer records than that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.spark.offsets import read_offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


class Lag(NamedTuple):
    """The number of offsets in each partition that the query has not read."""

    partitions: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.partitions.values())

    def metrics(self) -> dict[str, str]:
        """The lag with the names of Spark's own connector."""
        behind = self.partitions.values()
        if not behind:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(self.total / len(behind)),
        }


def lag(progress: StreamingQueryProgress | Mapping[str, Any] | None, source: int = 0) -> Lag:
    """The lag of one source of a query when this progress was made; empty if none is known."""
    if progress is None:
        return Lag({})
    reported = progress["sources"][source]
    latest, end = (read_offsets(_parsed(reported[name])) for name in ("latestOffset", "endOffset"))
    return Lag({each: max(0, at - end.get(each, 0)) for each, at in latest.items()})


def _parsed(offsets: Any) -> Any:
    return (json.loads(offsets) if isinstance(offsets, str) else offsets) or {}
