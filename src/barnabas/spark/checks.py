"""Settings that exactly-once cannot live with, looked at where they can be seen: in the tasks.

Spark hands every setting that was given to it to the tasks as a local property. How many tasks there are, and
which rows they get, may change from run to run (adaptive execution, shuffle partitions): see exactly_once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from barnabas.client.errors import BrokerError

_SPECULATION = "spark.speculation"
_CONTINUOUS = "__is_continuous_processing"
_TOO_LONG = "INVALID_TRANSACTION_TIMEOUT"


class SettingError(ValueError):
    """A setting that does not go with what is asked for."""


def check_task_settings(property_of: Callable[[str], str | None]) -> None:
    """SettingError where a task's surroundings are not what exactly-once needs."""
    if (property_of(_SPECULATION) or "").lower() == "true":
        raise SettingError(
            f"{_SPECULATION}=true: attempts of a task would fence each other; set it to false, or "
            f"deliveryGuarantee to at-least-once"
        )
    if (property_of(_CONTINUOUS) or "").lower() == "true":
        raise SettingError("exactly-once needs batches: use trigger(processingTime=...), not continuous")


@asynccontextmanager
async def check_transaction_timeout(timeout_ms: int) -> AsyncIterator[None]:
    """What a broker says of a transaction's timeout, in the words of the options."""
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
