"""Compaction against a dictionary, through whatever Hypothesis thinks of.

Records with and without producers, transactions, tombstones; rounds with a map that holds everything or next
to nothing; clocks that pass the horizons or do not; starts after a stop or a crash in between.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.random import SeededRandom
from barnabas.log import trimming
from barnabas.records.compression import Codec
from tests.log.compaction.life import COMPACTED, Life, Story

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
VALUES = st.one_of(st.none(), st.binary(max_size=60))
ENTRIES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)
PRODUCERS = st.sampled_from([-1, 1, 2, 10, 11])
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4])

STEPS = st.one_of(
    st.tuples(st.just("put"), ENTRIES, PRODUCERS, CODECS),
    st.tuples(st.just("put"), ENTRIES, PRODUCERS, CODECS),
    st.tuples(st.just("put"), ENTRIES, PRODUCERS, CODECS),
    st.tuples(st.just("end"), st.sampled_from([10, 11]), st.booleans()),
    st.tuples(st.just("clean"), st.sampled_from([2, 4, 1000]), st.sampled_from([1, 300, 1 << 20])),
    st.tuples(st.just("wait"), st.sampled_from([1, 400, 1_000, 5_000])),
    st.tuples(st.just("reopen"), st.booleans(), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("epoch")),
    st.tuples(st.just("sweep")),
)
CONFIGS = st.builds(
    replace,
    st.just(COMPACTED),
    segment_bytes=st.sampled_from([200, 500, 1500]),
    segment_index_bytes=st.sampled_from([24, 1 << 20]),
    index_interval_bytes=st.sampled_from([0, 60, 4096]),
    log_append_time=st.booleans(),
)


async def take(life: Life, step: tuple[object, ...]) -> None:
    match step:
        case ("put", list(entries), int(producer_id), int(codec)):
            await life.put(entries, producer_id, codec)
        case ("end", int(producer_id), bool(commit)):
            await life.end(producer_id, commit=commit)
        case ("clean", int(slots), int(buffer_bytes)):
            await clean_and_check(life, slots, buffer_bytes)
        case ("wait", int(wait_ms)):
            life.clock.advance(wait_ms / 1000)
        case ("reopen", bool(is_clean), bool(without_snapshots)):
            await life.reopen(is_clean=is_clean, without_snapshots=without_snapshots)
            await life.check()
        case ("roll",):
            await life.log.roll()
        case ("epoch",):
            life.epoch += 1
        case ("sweep",):
            await trimming.sweep(life.log)


async def clean_and_check(life: Life, slots: int, buffer_bytes: int) -> None:
    """One round; with a small map it takes in less, and the next round goes on."""
    bases, end_offset = list(life.log.bases), life.log.end_offset
    cleaned = await life.clean(slots, buffer_bytes)
    await life.check(is_clean_below=cleaned.end_offset if cleaned else 0)
    await life.check_names()
    assert life.log.bases[0] == bases[0]
    assert life.log.bases[-1] == bases[-1]
    assert life.log.end_offset == end_offset


@settings(max_examples=60)
@given(CONFIGS, st.lists(STEPS, min_size=5, max_size=40))
def test_what_is_kept_and_what_goes(config: object, steps: list[tuple[object, ...]]) -> None:
    async def scenario() -> None:
        life = Life(config=config)  # type: ignore[arg-type]
        await life.open()
        for step in steps:
            await take(life, step)
        await life.log.roll()
        await clean_and_check(life, 1000, 300)
        await life.reopen(is_clean=False, without_snapshots=True)
        await life.check()

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("slots", [3, 7, 1000])
def test_long_lives(seed: int, slots: int) -> None:
    async def scenario() -> None:
        random = SeededRandom(seed)
        life = Life()
        story = Story(life, random)
        await life.open()
        for _ in range(6):
            await story.write(12)
            life.clock.advance(0.3 * random.below(8))
            await clean_and_check(life, slots, 1 << random.below(12))
            if random.below(3) == 0:
                await life.reopen(is_clean=bool(random.below(2)), without_snapshots=bool(random.below(2)))
        # in the end nothing is left over, however many rounds that takes
        await life.end(10, commit=True)
        await life.end(11, commit=False)
        await life.log.roll()
        for _ in range(100):
            if await life.clean(slots) is None:
                break
        assert life.log.cleaned_offset == life.log.active.base_offset
        await life.check(is_clean_below=life.log.active.base_offset)
        await life.reopen(is_clean=True)
        await life.check(is_clean_below=life.log.active.base_offset)

    asyncio.run(scenario())
