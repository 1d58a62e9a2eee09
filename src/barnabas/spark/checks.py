"""Checks settings that contradict exactly-once, in the tasks, where they are visible.

Spark passes every setting to the tasks as a local property. The number of tasks, and their rows, may change
from run to run (adaptive execution, shuffle partitions): see exactly_once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from barnabas.client.errors import BrokerError

_SPECULATION = "spark.speculation"
_CONTINUOUS = "__is_continuous_processing"
_TOO_LONG = "INVALID_TRANSACTION_TIMEOUT"


class SettingError(ValueError):
    """A setting contradicts the chosen guarantee."""


def check_task_settings(property_of: Callable[[str], str | None]) -> None:
    """SettingError if a task's settings contradict exactly-once."""
    if (property_of(_SPECULATION) or "").lower() == "true":
        raise SettingError(
            f"{_SPECULATION}=true: attempts of a task would fence each other; set it to false, or "
            f"deliveryGuarantee to at-least-once"
        )
    if (property_of(_CONTINUOUS) or "").lower() == "true":
        raise SettingError("exactly-once needs batches: use trigger(processingTime=...), not continuous")


@asynccontextmanager
async def check_transaction_timeout(timeout_ms: int) -> AsyncIterator[None]:
    """Translate a broker's error about the transaction timeout into the names of the options."""
    try:
        yield
    except BrokerError as error:
        if error.error.name != _TOO_LONG:
            raise
        raise SettingError(
            f"kafka.transaction.timeout.ms={timeout_ms} is longer than the brokers allow "
            f"(transaction.max.timeout.ms); lower the one, or raise the other. A batch has to be written and "
            f"committed within it, and a query that died to come back"
        ) from error
