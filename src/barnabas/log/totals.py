"""Counters of a log directory's background work since the start, for metrics."""

from __future__ import annotations

from barnabas.core.histogram import Histogram


class LogTotals:
    """The counters of one log directory."""

    __slots__ = (
        "compaction_bytes_read",
        "compaction_bytes_written",
        "compaction_records_kept",
        "compaction_records_read",
        "compaction_rounds",
        "compaction_seconds",
        "compactions",
        "compactions_failed",
        "dirtiest_ratio",
        "flushes",
        "last_compaction_seconds",
        "last_round_at",
        "opened",
        "opening_seconds",
        "recovered",
        "recovery_seconds",
        "restarts",
        "truncated_records",
        "truncations",
        "uncleanable",
    )

    def __init__(self) -> None:
        self.opened = 0  # partitions, recovered or not
        self.opening_seconds = 0.0
        self.recovered = 0  # of these, those that had not been closed cleanly
        self.recovery_seconds = 0.0
        # as a follower: truncations, the records cut by them, and logs restarted at another offset
        self.truncations = 0
        self.truncated_records = 0
        self.restarts = 0
        self.flushes = Histogram()
        self.compaction_rounds = 0
        self.compactions = 0
        self.compactions_failed = 0
        self.compaction_seconds = 0.0
        self.compaction_bytes_read = 0
        self.compaction_bytes_written = 0
        self.compaction_records_read = 0
        self.compaction_records_kept = 0
        self.last_compaction_seconds = 0.0
        # as of the last round
        self.last_round_at: float | None = None  # monotonic
        self.dirtiest_ratio = 0.0
        self.uncleanable = 0  # logs whose compaction failed, which are skipped

    def partition_opened(self, seconds: float, *, is_recovery: bool) -> None:
        self.opened += 1
        self.opening_seconds += seconds
        if is_recovery:
            self.recovered += 1
            self.recovery_seconds += seconds
