"""A few thousand damaged batches in every test run; `make fuzz` tries 200,000."""

from __future__ import annotations

from tests.records.fuzz import READERS, mutants, run


def test_damaged_batches_are_read_or_refused_by_name() -> None:
    outcomes = run(seed=7, count=3000)
    assert sum(outcomes.values()) == 3000 * len(READERS)
    # the damage must reach every depth, or the fuzzer shows nothing
    assert {"read", "CorruptMessage", "InvalidRecord", "InvalidTimestamp", "UnsupportedCompression"} <= set(
        outcomes
    )


def test_one_seed_gives_the_same_batches() -> None:
    assert list(mutants(3, 50)) == list(mutants(3, 50))
    assert list(mutants(3, 50)) != list(mutants(4, 50))
