"""One segment against itself and its indexes.

`survey` reads the batches and says what they come to and what is wrong with them; `check_index` says where an
index leads astray. An index that lags behind is right: it is sparse, and that of an active segment is in part
still in the node's memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from barnabas.cli.dump.batches import Tail, walk
from barnabas.cli.dump.facts import Facts
from barnabas.cli.dump.side_files import BY_SUFFIX
from barnabas.core.errors import BarnabasError
from barnabas.log import names
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import read_batch

_MAX_PROBLEMS_OF_A_FILE = 10


class Survey:
    """What was seen of a segment: totals, what is wrong, and each batch's place, to hold indexes against."""

    def __init__(self, base_offset: int | None) -> None:
        self.base_offset = base_offset
        self.batches = 0
        self.records = 0
        self.valid_bytes = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.tail: Tail | None = None
        self.problems: list[str] = []
        self.positions = array("q")
        self.last_offsets = array("q")
        self.largest_timestamps = array("q")  # up to and including each batch
        self.markers: dict[int, int] = {}  # offset of a control batch -> its producer

    def take(self, position: int, header: BatchHeader) -> None:
        """Note a batch, and what its header alone shows to be wrong."""
        if self.last_offset is not None and header.base_offset <= self.last_offset:
            order = f"begins with {header.base_offset}, after {self.last_offset}"
            self.problem(f"the batch at byte {position} {order}")
        if self.base_offset is not None and header.base_offset < self.base_offset:
            self.problem(f"the batch at byte {position} begins with {header.base_offset}, before the segment")
        if self.first_offset is None:
            self.first_offset = header.base_offset
        self.last_offset = header.last_offset
        self.batches += 1
        self.records += header.record_count
        self.valid_bytes = position + header.size_bytes
        largest = max(self.largest_timestamps[-1] if self.largest_timestamps else -1, header.max_timestamp)
        self.positions.append(position)
        self.last_offsets.append(header.last_offset)
        self.largest_timestamps.append(largest)
        if header.is_control:
            self.markers[header.last_offset] = header.producer_id

    def take_tail(self, tail: Tail) -> None:
        """Note what stands at the end and is no batch."""
        self.tail = tail
        if not tail.is_zeros:
            self.problem(f"{tail.size_bytes} bytes at byte {tail.position} are no batch: {tail.reason}")

    def totals(self) -> Facts:
        """What all batches come to."""
        facts: Facts = {
            "batches": self.batches,
            "records": self.records,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "valid_bytes": self.valid_bytes,
        }
        if self.tail is not None:
            facts["tail_bytes"] = self.tail.size_bytes
        return facts

    def problem(self, text: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS_OF_A_FILE:
            self.problems.append(text)


def batch_fault(data: bytes, header: BatchHeader) -> str | None:
    """What is wrong with a batch's bytes: its checksum, its fields, its records."""
    try:
        kernel.check_batch(data, 0, len(data))
        found = sum(1 for _ in read_batch(data, 0, header))
    except BarnabasError as error:
        return str(error)
    if found != header.record_count:
        return f"{header.record_count} records are announced, {found} found"
    return None


def survey(path: Path, *, verify: bool) -> Survey:
    """All batches of a segment, with their checksums and records if `verify`."""
    seen = Survey(names.parse_offset(path.name, names.LOG))
    for found in walk(path, bodies=verify):
        if isinstance(found, Tail):
            seen.take_tail(found)
            break
        seen.take(found.position, found.header)
        fault = batch_fault(found.data, found.header) if verify else None
        if fault is not None:
            seen.problem(f"the batch at byte {found.position} (offset {found.header.base_offset}): {fault}")
    return seen


def check_index(path: Path, seen: Survey) -> list[str]:
    """Where an index of the surveyed segment leads astray, or why it cannot be read."""
    _, read = BY_SUFFIX[path.suffix]
    try:
        entries = read(path)
    except BarnabasError as error:
        return [str(error)]
    segment = path.with_suffix(names.LOG)
    if segment.exists() and segment.stat().st_size > seen.valid_bytes:  # it has grown, and the index with it
        last = -1 if seen.last_offset is None else seen.last_offset
        name = "last_offset" if path.suffix == names.TXN_INDEX else "offset"
        entries = [entry for entry in entries if entry[name] <= last]
    judge = {names.INDEX: _check_offset, names.TIME_INDEX: _check_time, names.TXN_INDEX: _check_aborted}
    problems = (problem for entry in entries if (problem := judge[path.suffix](entry, seen)) is not None)
    return [problem for problem, _ in zip(problems, range(_MAX_PROBLEMS_OF_A_FILE), strict=False)]


def _check_offset(entry: Facts, seen: Survey) -> str | None:
    offset, position = entry["offset"], entry["position"]
    at = bisect_left(seen.positions, position)
    if at == len(seen.positions) or seen.positions[at] != position:
        return f"offset {offset} leads to byte {position}, where no batch begins"
    before = seen.last_offsets[at - 1] if at else -1
    if not before < offset <= seen.last_offsets[at]:
        return f"offset {offset} leads to byte {position}, where the batch ends with {seen.last_offsets[at]}"
    return None


def _check_time(entry: Facts, seen: Survey) -> str | None:
    offset, timestamp = entry["offset"], entry["timestamp"]
    at = bisect_left(seen.last_offsets, offset)
    if at == len(seen.last_offsets):
        # an empty active segment's own entry in Kafka is (its last timestamp, the base offset)
        return f"time {timestamp} leads to offset {offset}, behind the last batch" if seen.batches else None
    if seen.largest_timestamps[at] > timestamp:
        return (
            f"time {timestamp} leads to offset {offset}, but a record of {seen.largest_timestamps[at]} "
            "stands before it"
        )
    return None


def _check_aborted(entry: Facts, seen: Survey) -> str | None:
    first, last = entry["first_offset"], entry["last_offset"]
    if not 0 <= first < last:
        return f"a transaction from {first} to {last} cannot be"
    if seen.markers.get(last) != entry["producer_id"]:
        return f"producer {entry['producer_id']} is said to have aborted at {last}, where it has no marker"
    return None


def segment_files(directory: Path) -> Iterator[Path]:
    """The segments of a partition, in order."""
    yield from sorted(
        each for each in directory.iterdir() if names.parse_offset(each.name, names.LOG) is not None
    )
