"""The settings of the broker, and of the cluster's features, for all transactions."""

from __future__ import annotations

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """The present values of the broker's settings for transactions."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    timeout_check_interval_ms: int = 10_000
    expiration_check_interval_ms: int = 3_600_000
    transaction_version: int = 2
