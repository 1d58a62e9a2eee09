"""Column names as the functions of this package take them, and the error for a missing one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def names(given: str | Sequence[str]) -> list[str]:
    """One name or several, as a list."""
    return [given] if isinstance(given, str) else list(given)


def require(df: DataFrame, wanted: Collection[str], who: str) -> None:
    """ValueError for a missing column, with the existing ones in the message."""
    missing = [each for each in wanted if each not in df.columns]
    if missing:
        raise ValueError(f"{who}: there is no column {', '.join(missing)}, only {', '.join(df.columns)}")


def without_clashes(
    right: DataFrame, left: Collection[str], shared: Collection[str], suffix: str
) -> DataFrame:
    """`right` with the suffix on every column that `left` has too, except for those that both share."""
    clashes = {name: name + suffix for name in right.columns if name in left and name not in shared}
    taken = [name for name in clashes.values() if name in left or name in right.columns]
    if taken:
        raise ValueError(f"both sides have {', '.join(taken)}; rename one, or give another suffix")
    return right.withColumnsRenamed(clashes)
