"""The record kernel in use: the compiled one if it could be built, otherwise the pure twin.

`BARNABAS_KERNEL` is read once, at import: `c` requires the compiled one, `pure` selects the twin, `auto` (the
default) takes the compiled one if it exists. All other modules import from here and never from a twin.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError


class NoSuchKernel(BarnabasError):
    """BARNABAS_KERNEL selects a kernel that does not exist."""


_CHOICES = ("c", "pure", "auto")
_choice = os.environ.get("BARNABAS_KERNEL", "auto")
if _choice not in _CHOICES:
    raise NoSuchKernel(f"BARNABAS_KERNEL={_choice!r}: must be one of {', '.join(_CHOICES)}")

# Why the pure twin is in use, or None if the compiled kernel is.
PURE_REASON: str | None = "BARNABAS_KERNEL=pure asks for it" if _choice == "pure" else None
if PURE_REASON is None:
    try:
        import barnabas.records._kernel  # noqa: F401
    except ImportError as error:
        if _choice == "c":
            raise NoSuchKernel(
                f"BARNABAS_KERNEL=c, but the compiled kernel cannot be loaded ({error}); "
                "install Barnabas anew where there is a C compiler, or unset BARNABAS_KERNEL"
            ) from error
        PURE_REASON = f"the compiled kernel cannot be loaded ({error})"

if TYPE_CHECKING or PURE_REASON is None:
    from barnabas.records._kernel import (
        NAME,
        BatchFilter,
        ColumnDecoder,
        ColumnEncoder,
        OffsetMap,
        admit,
        append_record,
        assign,
        check_batch,
        check_records,
        crc32c,
        group_rows,
        iterate,
        key_hashes,
        murmur2,
        partition_column,
        scan,
        scan_headers,
        set_max_timestamp,
        stamp,
    )
else:
    from barnabas.records._pure import (
        NAME,
        admit,
        append_record,
        assign,
        check_batch,
        check_records,
        crc32c,
        iterate,
        scan,
        scan_headers,
        set_max_timestamp,
        stamp,
    )
    from barnabas.records._pure_columns import (
        ColumnDecoder,
        ColumnEncoder,
        group_rows,
        key_hashes,
        murmur2,
        partition_column,
    )
    from barnabas.records._pure_compact import BatchFilter, OffsetMap

__all__ = [
    "NAME",
    "PURE_REASON",
    "BatchFilter",
    "ColumnDecoder",
    "ColumnEncoder",
    "NoSuchKernel",
    "OffsetMap",
    "admit",
    "announce",
    "append_record",
    "assign",
    "check_batch",
    "check_records",
    "crc32c",
    "group_rows",
    "iterate",
    "key_hashes",
    "murmur2",
    "partition_column",
    "scan",
    "scan_headers",
    "set_max_timestamp",
    "stamp",
]


def announce() -> None:
    """Log, when a node starts, that the slow twin is in use, and why."""
    if PURE_REASON is not None:
        logging.getLogger("barnabas.records").warning(
            "record kernel: the pure-Python twin serves, many times slower than the compiled one: %s",
            PURE_REASON,
        )
