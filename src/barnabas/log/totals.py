"""What a log directory has done by itself since the start, in numbers that only go up; for metrics alone."""

from __future__ import annotations

from barnabas.core.histogram import Histogram


class LogTotals:
    """Of one log directory."""

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
        self.recovered = 0  # of these, such as had not been closed cleanly
        self.recovery_seconds = 0.0
        # by the word of their leaders: cut at the end, and of these how many records; begun anew elsewhere
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
        # as the last round found it
        self.last_round_at: float | None = None  # monotonic
        self.dirtiest_ratio = 0.0
        self.uncleanable = 0  # logs that could not be compacted, and are left alone

    def partition_opened(self, seconds: float, *, is_recovery: bool) -> None:
        self.opened += 1
        self.opening_seconds += seconds
        if is_recovery:
            self.recovered += 1
            self.recovery_seconds += seconds
