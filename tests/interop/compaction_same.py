"""Whether two directories of a partition, cleaned by different cleaners, hold the same.

Batches are compared field by field, and to the byte where they are not compressed: of a compressed batch that
was written anew only what the compressor decides may differ, which is its size and its checksum. Where all of
a segment is the same to the byte, so are its indexes.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.log.snapshots import decode_snapshot
from barnabas.log.txn_index import ENTRY
from barnabas.records.batch import HEADER_BYTES
from barnabas.records.compression import Codec
from barnabas.records.reader import read_batch, read_batches
from tests.interop.barnabas_log import Batch

EPOCHS = "leader-epoch-checkpoint"


def different(theirs: Path, ours: Path, *, with_times: bool = False) -> list[str]:
    """What differs, in a line each; with times, also when segments were last written."""
    found = _names(theirs, ours)
    for log in sorted(theirs.glob("*.log")):
        if (ours / log.name).exists():
            found += _segment(log, ours / log.name)
            one, other = (file.stat().st_mtime_ns // 1_000_000 for file in (log, ours / log.name))
            if with_times and one != other:
                found.append(f"{log.name}: last modified at {one}, not {other}")
    found += _snapshots(theirs, ours)
    if (theirs / EPOCHS).read_bytes() != (ours / EPOCHS).read_bytes():
        found.append(f"{EPOCHS}: {(theirs / EPOCHS).read_text()!r}, not {(ours / EPOCHS).read_text()!r}")
    return found


def _names(theirs: Path, ours: Path) -> list[str]:
    """Segments and snapshots that only one has, and files that neither should have any more."""
    found = []
    for pattern in ("*.log", "*.snapshot"):
        one, other = ({file.name for file in folder.glob(pattern)} for folder in (theirs, ours))
        found += [f"{name}: only in {'theirs' if name in one else 'ours'}" for name in sorted(one ^ other)]
    for suffix in (".cleaned", ".swap", ".deleted", ".tmp"):
        found += [f"{file.name}: left behind in ours" for file in sorted(ours.glob(f"*{suffix}"))]
    return found


def _segment(theirs: Path, ours: Path) -> list[str]:
    name = theirs.name
    one, other = (batches_of(log) for log in (theirs, ours))
    found = [
        f"{name}, batch {number}: {difference}"
        for number, (their, our) in enumerate(zip(one, other, strict=False))
        if (difference := _batch(their, our)) is not None
    ]
    if len(one) != len(other):
        found.append(f"{name}: {_describe(one)}, not {_describe(other)}")
    compared = [".txnindex"]
    if theirs.read_bytes() == ours.read_bytes():
        compared += [".index", ".timeindex"]
    for suffix in compared:
        their, our = (_contents(log.with_suffix(suffix)) for log in (theirs, ours))
        if their != our:
            found.append(f"{theirs.stem}{suffix}: {_entries(suffix, their)}, not {_entries(suffix, our)}")
    return found


def batches_of(log: Path) -> list[Batch]:
    """The batches of one file; its last byte is the end of the last one."""
    contents = log.read_bytes()
    batches = [Batch(header, contents[at : at + header.size_bytes]) for header, at in read_batches(contents)]
    assert sum(len(batch.data) for batch in batches) == len(contents), f"{log.name} does not end with a batch"
    return batches


def _batch(theirs: Batch, ours: Batch) -> str | None:
    if theirs.data == ours.data:
        return None
    if theirs.header.codec == Codec.NONE or ours.header.codec == Codec.NONE:
        return (
            f"{theirs.header} {theirs.data[HEADER_BYTES:]!r}, not {ours.header} {ours.data[HEADER_BYTES:]!r}"
        )
    one, other = (batch.header._replace(batch_length=0, crc=0) for batch in (theirs, ours))
    if one != other:
        return f"{one}, not {other}"
    their, our = (list(read_batch(batch.data)) for batch in (theirs, ours))
    return None if their == our else f"{their}, not {our}"


def _describe(batches: list[Batch]) -> str:
    return " ".join(f"{batch.header.base_offset}-{batch.header.last_offset}" for batch in batches) or "none"


def _contents(file: Path) -> bytes:
    """An index without entries may as well not be there."""
    return file.read_bytes() if file.exists() else b""


def _entries(suffix: str, contents: bytes) -> object:
    return list(ENTRY.iter_unpack(contents)) if suffix == ".txnindex" else contents.hex()


def _snapshots(theirs: Path, ours: Path) -> list[str]:
    found = []
    for snapshot in sorted(theirs.glob("*.snapshot")):
        name = snapshot.name
        if (ours / name).exists():
            one, other = (
                set(decode_snapshot((folder / name).read_bytes(), name)) for folder in (theirs, ours)
            )
            found += [
                f"{name}: {entry} only in {'theirs' if entry in one else 'ours'}"
                for entry in sorted(one ^ other)
            ]
    return found
