"""The statistics of a Parquet file in the log of a Delta table: row count, and bounds of its plain columns.

Bounds only let readers skip files, so a wide or missing one is correct, but a narrow one loses rows. Times
are rounded outwards to the millisecond, long text has no upper bound, and floating-point numbers have none at
all, because NaN has no order. Spark's times have a larger range than Python's: a time in the year 60000
(microseconds taken for milliseconds) has no bound, instead of making the write fail.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Any

TEXT_CHARS = 32  # the length of a bound


def partition_text(value: Any) -> str | None:
    """A partition value in the spelling of the log."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def file_stats(metadata: Any) -> dict[str, Any]:
    """The statistics from a file's footer: numRecords, minValues, maxValues, nullCount."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        chunks = [group.column(index) for group in groups]
        if column.path != column.name or not all(each.is_stats_set for each in chunks):
            continue  # inside an array or a struct
        found = [each.statistics for each in chunks]
        if all(each.has_null_count for each in found):
            nulls[column.name] = sum(each.null_count for each in found)
        bounded = [each for each in found if each.has_min_max]
        if len(bounded) + sum(_is_all_null(each) for each in found if not each.has_min_max) < len(found):
            continue
        with suppress(OverflowError):
            _put(low, column.name, [each.min for each in bounded], min, _lower)
        with suppress(OverflowError):
            _put(high, column.name, [each.max for each in bounded], max, _upper)
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _is_all_null(statistics: Any) -> bool:
    return bool(statistics.has_null_count and statistics.num_values == 0)


def _put(
    bounds: dict[str, Any],
    name: str,
    values: list[Any],
    choose: Callable[[list[Any]], Any],
    spell: Callable[[Any], Any],
) -> None:
    if values and (bound := spell(choose(values))) is not None:
        bounds[name] = bound


def _lower(value: Any) -> Any:
    if isinstance(value, datetime):
        return _millis(value)
    return value[:TEXT_CHARS] if isinstance(value, str) else _exact(value)


def _upper(value: Any) -> Any:
    if isinstance(value, datetime):
        return _millis(value + timedelta(microseconds=-value.microsecond % 1000))
    return (value if len(value) <= TEXT_CHARS else None) if isinstance(value, str) else _exact(value)


def _exact(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _millis(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if value.tzinfo else text
