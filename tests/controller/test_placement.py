"""Where replicas go: evenly over the brokers, from a random start, fenced ones last."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.decisions import Refused
from barnabas.controller.placement import place
from barnabas.core.random import SeededRandom
from barnabas.metadata.parts import BrokerImage


def broker(
    broker_id: int, *, rack: str | None = None, fenced: bool = False, stopping: bool = False
) -> BrokerImage:
    return BrokerImage(broker_id, 1, bytes(16), {}, {}, rack, fenced, stopping, (), None)


@given(count=st.integers(1, 7), partitions=st.integers(1, 50), seed=st.integers(0, 1 << 32), data=st.data())
def test_leaders_and_replicas_are_spread(count: int, partitions: int, seed: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, count))
    brokers = [broker(broker_id) for broker_id in range(10, 10 + count)]
    placed = place(brokers, partitions, factor, SeededRandom(seed))
    assert len(placed) == partitions
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[each.id] for each in brokers]
    assert max(counts) - min(counts) <= 1
    everywhere = Counter(each for replicas in placed for each in replicas)
    counts = [everywhere[each.id] for each in brokers]
    # a round over all brokers is even; the last one may be cut short
    assert max(counts) - min(counts) <= factor


def test_the_start_is_random_and_the_seed_decides_it() -> None:
    brokers = [broker(each) for each in range(5)]
    starts = {place(brokers, 1, 1, SeededRandom(seed))[0][0] for seed in range(100)}
    assert starts == set(range(5))
    assert place(brokers, 9, 3, SeededRandom(7)) == place(brokers[::-1], 9, 3, SeededRandom(7))


def test_brokers_that_do_not_serve_come_last_and_only_if_needed() -> None:
    brokers = [broker(1), broker(2, fenced=True), broker(3), broker(4, stopping=True)]
    assert {frozenset(replicas) for replicas in place(brokers, 8, 2, SeededRandom(1))} == {frozenset((1, 3))}
    for replicas in place(brokers, 8, 3, SeededRandom(1)):
        assert set(replicas[:2]) == {1, 3}
        assert replicas[2] in (2, 4)


@pytest.mark.parametrize("brokers", [[], [broker(1)], [broker(1, fenced=True), broker(2, fenced=True)]])
def test_too_few_brokers(brokers: list[BrokerImage]) -> None:
    with pytest.raises(Refused) as caught:
        place(brokers, 1, 2, SeededRandom(1))
    assert caught.value.error.name == "INVALID_REPLICATION_FACTOR"


@given(
    racks=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 1 << 32),
    data=st.data(),
)
def test_racks_share_the_replicas_of_a_partition(
    racks: list[int], partitions: int, seed: int, data: st.DataObject
) -> None:
    rack_of = {10 * rack + number: rack for rack, size in enumerate(racks) for number in range(size)}
    brokers = [broker(each, rack=f"rack-{rack}") for each, rack in rack_of.items()]
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, partitions, factor, SeededRandom(seed))
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = Counter(rack_of[each] for each in replicas)
        fullest = max(used.values())
        # a rack has one replica less than another only where it has no more brokers
        assert all(used[rack] >= min(size, fullest - 1) for rack, size in enumerate(racks))


def test_racks_take_turns_in_leading() -> None:
    brokers = [broker(each, rack=f"rack-{each % 3}") for each in range(9)]
    placed = place(brokers, 9, 3, SeededRandom(3))
    assert Counter(replicas[0] % 3 for replicas in placed) == {0: 3, 1: 3, 2: 3}


def test_a_rack_whose_brokers_are_all_fenced_does_not_lead() -> None:
    brokers = [broker(1, rack="a"), broker(2, rack="b", fenced=True), broker(3, rack="a")]
    for replicas in place(brokers, 6, 2, SeededRandom(5)):
        assert replicas[0] in (1, 3)
        assert replicas[1] == 2
