"""A compaction by Apache Kafka, cut short between any two renames: Barnabas recovers what Kafka recovers.

Kafka renames the finished segment's files from `.cleaned` to `.swap`, those of the segments that it replaces
to `.deleted`, and then takes the `.swap` away, one file at a time. Until all are `.swap` the originals count,
from then on what has become of them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.core.clock import ManualClock
from tests.interop.barnabas_log import log_directory
from tests.interop.compaction_same import batches_of, different
from tests.interop.compaction_twins import FOLDER, TOPIC, append, clean_by_kafka
from tests.interop.compaction_workload import Settings, Writers, settings_of
from tests.support.kafka_cleaner import KafkaCleaner

pytestmark = pytest.mark.java

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
SEEDS = [*range(3), *(pytest.param(each, marks=pytest.mark.long) for each in range(3, 6))]


class Rename(NamedTuple):
    old: str
    new: str


def renames(originals: list[str], cleaned: str, folder: Path) -> list[Rename]:
    """What Kafka renames, in its order; `folder` has the originals and the `.cleaned` files."""
    finished = [
        f"{cleaned}{suffix}" for suffix in SUFFIXES if (folder / f"{cleaned}{suffix}.cleaned").exists()
    ]
    replaced = [f"{stem}{suffix}" for stem in originals for suffix in SUFFIXES]
    found = [Rename(f"{name}.cleaned", f"{name}.swap") for name in finished]
    found += [Rename(name, f"{name}.deleted") for name in replaced if (folder / name).exists()]
    found += [Rename(f"{name}.swap", name) for name in finished]
    return found


def merging(settings: Settings) -> Settings:
    """The same with several small segments that become one."""
    written = replace(settings.written, segment_bytes=1500, segment_index_bytes=4096, min_compaction_lag_ms=0)
    cleaned = replace(written, segment_bytes=6000)
    return replace(settings, written=written, cleaned=cleaned, dedupe_bytes=24_000, appends_a_round=60)


def stems(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.log"))


def unfinished(before: Path, after: Path, to: Path) -> tuple[list[Rename], list[str], str]:
    """A data directory as it was just before the renames of the first group that merges several segments."""
    shutil.copytree(before, to)
    (to / ".kafka_cleanshutdown").unlink()
    kept = [*stems(after / FOLDER), "9" * 20]
    groups = {
        first: [stem for stem in stems(before / FOLDER) if first <= stem < following]
        for first, following in pairwise(kept)
    }
    cleaned, originals = next(item for item in groups.items() if len(item[1]) > 1)
    for suffix in SUFFIXES:
        if (after / FOLDER / f"{cleaned}{suffix}").exists():
            shutil.copy2(after / FOLDER / f"{cleaned}{suffix}", to / FOLDER / f"{cleaned}{suffix}.cleaned")
    return renames(originals, cleaned, to / FOLDER), originals, cleaned


async def recover_by_barnabas(data: Path, settings: Settings, now_ms: int) -> None:
    async with log_directory(data, ManualClock(now_ms)) as directory:
        await directory.partition(TOPIC, 0, config=settings.cleaned)


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCleaner]:
    with KafkaCleaner() as cleaner:
        yield cleaner


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_under_way_is_ended_or_undone_as_kafka_does(
    seed: int, kafka: KafkaCleaner, tmp_path: Path
) -> None:
    settings = merging(settings_of(seed))
    writers = Writers(settings)
    before, after, state = tmp_path / "before", tmp_path / "after", tmp_path / "state"
    asyncio.run(append(before, list(writers.round()), settings))
    shutil.copytree(before, after)
    clean_by_kafka(kafka, after, settings, writers.now_ms, None)
    steps, originals, cleaned = unfinished(before, after, state)
    outcomes = []
    for number, step in enumerate([None, *steps]):
        if step is not None:
            (state / FOLDER / step.old).rename(state / FOLDER / step.new)
        theirs, ours = (
            Path(shutil.copytree(state, tmp_path / f"{who}-{number}")) for who in ("kafka", "barnabas")
        )
        kafka.recover(theirs / FOLDER, now_ms=writers.now_ms, config=settings.kafkas())
        asyncio.run(recover_by_barnabas(ours, settings, writers.now_ms))
        found = different(theirs / FOLDER, ours / FOLDER)
        assert [line for line in found if ".snapshot" not in line] == [], (number, step)
        outcomes.append(batches_of(ours / FOLDER / f"{cleaned}.log"))
    finished = sum(step.new.endswith(".swap") for step in steps)
    assert all(outcome == batches_of(before / FOLDER / f"{cleaned}.log") for outcome in outcomes[:finished])
    assert all(outcome == batches_of(after / FOLDER / f"{cleaned}.log") for outcome in outcomes[finished:])
    assert set(originals) - {cleaned} == set(originals) & (
        set(stems(before / FOLDER)) - set(stems(ours / FOLDER))
    )
