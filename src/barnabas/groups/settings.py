"""The broker's settings for all groups."""

from __future__ import annotations

from typing import NamedTuple


class GroupSettings(NamedTuple):
    """The present values of the broker's settings for groups."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_check_interval_ms: int = 600_000
