"""Which files a path stands for, and everything in them, one item after another.

An item is a kind and its facts. A file gives one `file` item; a `batch`, `record` or `entry` item for each
thing in it; a `problem` for whatever is wrong; and for batches a `total`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.dump.batches import Tail, walk
from barnabas.cli.dump.facts import Facts, batch_facts, records_facts
from barnabas.cli.dump.segments import Survey, batch_fault, check_index, survey
from barnabas.cli.dump.side_files import BY_NAME, BY_SUFFIX
from barnabas.core.errors import BarnabasError
from barnabas.log import names
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.raft.snapshot import CHECKPOINT

_INDEXES = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)
# behind a suffix: the file is on its way in or out, and is read as what it is besides
_ON_THE_WAY = (names.DELETED, names.CLEANED, names.SWAP)


class Item(NamedTuple):
    """One thing to tell of a file."""

    kind: str
    facts: Facts


class Wanted(NamedTuple):
    """How closely to look."""

    records: bool = False
    verify: bool = False
    topic: str | None = None  # decode as that topic's; None: to judge by the path


def files_of(path: Path) -> Iterator[Path]:
    """The files a path stands for: itself, those of a partition, or those of a whole log directory."""
    if not path.is_dir():
        yield path
        return
    try:
        entries = sorted(path.iterdir())
    except FileNotFoundError:  # a node that runs here has just removed it
        return
    yield from (each for each in entries if each.is_file() and what_is(each) is not None)
    yield from (
        file
        for each in entries
        if each.is_dir() and names.parse_partition_directory(each.name) is not None
        for file in files_of(each)
    )


def what_is(path: Path) -> str | None:
    """What a file is, by its name; None where it is none that is known."""
    if path.name in BY_NAME:
        return BY_NAME[path.name][0]
    suffix = _suffix(path)
    if suffix in BY_SUFFIX:
        return BY_SUFFIX[suffix][0]
    return {names.LOG: "segment", CHECKPOINT: "metadata snapshot"}.get(suffix)


def items_of(path: Path, wanted: Wanted) -> Iterator[Item]:
    """Everything there is to tell of a file, in its order."""
    kind = what_is(path)
    yield Item("file", {"file": str(path), "type": kind, "size": path.stat().st_size})
    if kind is None:
        yield _problem("this is none of Kafka's files, to judge by its name")
    elif kind in ("segment", "metadata snapshot"):
        yield from _batches(path, wanted)
    else:
        yield from _entries(path, wanted)


def _suffix(path: Path) -> str:
    name = path.name
    for mark in _ON_THE_WAY:
        name = name.removesuffix(mark)
    return Path(name).suffix


def _topic_of(path: Path) -> str | None:
    """Whose batches these are, by where they lie."""
    if _suffix(path) == CHECKPOINT:
        return CLUSTER_METADATA
    directory = names.parse_partition_directory(path.resolve().parent.name)
    return None if directory is None else directory.topic


def _problem(text: str) -> Item:
    return Item("problem", {"problem": text})


def _problems(texts: Iterable[str]) -> Iterator[Item]:
    return (_problem(text) for text in texts)


def _batches(path: Path, wanted: Wanted) -> Iterator[Item]:
    topic = wanted.topic if wanted.topic is not None else _topic_of(path)
    seen = Survey(names.parse_offset(path.name, names.LOG))
    told = 0
    for found in walk(path, bodies=wanted.records or wanted.verify):
        if isinstance(found, Tail):
            seen.take_tail(found)
            break
        seen.take(found.position, found.header)
        facts = batch_facts(found.position, found.header)
        fault = batch_fault(found.data, found.header) if wanted.verify else None
        if wanted.verify:
            facts["is_valid"] = fault is None
        if fault is not None:
            seen.problem(f"the batch at byte {found.position} (offset {found.header.base_offset}): {fault}")
        yield Item("batch", facts)
        if wanted.records and fault is None:
            try:
                yield from (Item("record", each) for each in records_facts(found, topic))
            except BarnabasError as error:  # without --verify nothing was checked before
                seen.problem(f"the records at byte {found.position} cannot be read: {error}")
        yield from _problems(seen.problems[told:])
        told = len(seen.problems)
    yield from _problems(seen.problems[told:])
    yield Item("total", seen.totals())


def _entries(path: Path, wanted: Wanted) -> Iterator[Item]:
    suffix = _suffix(path)
    _, read = BY_NAME[path.name] if path.name in BY_NAME else BY_SUFFIX[suffix]
    try:
        entries = read(path)
    except BarnabasError as error:
        yield _problem(str(error))
        return
    yield from (Item("entry", each) for each in entries)
    segment = path.with_name(path.name.removesuffix(suffix) + names.LOG)
    if wanted.verify and suffix in _INDEXES and path.suffix == suffix:
        if segment.exists():
            yield from _problems(check_index(path, survey(segment, verify=False)))
        else:
            yield _problem(f"there is no {segment.name} beside it")
