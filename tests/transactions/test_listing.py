"""ListTransactions' filters, and DescribeTransactions."""

from __future__ import annotations

import pytest

from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.transactions.listing import InvalidPattern, filter_of
from tests.transactions.bench import T0, T1, U0, Bench


def request(
    *,
    states: list[str] | None = None,
    producers: list[int] | None = None,
    duration_ms: int = -1,
    pattern: str | None = None,
) -> ListTransactionsRequest:
    return ListTransactionsRequest(
        state_filters=states or [],
        producer_id_filters=producers or [],
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    for name in ("empty", "open", "done"):
        _, producer = bench.init(name)
        if name != "empty":
            bench.add(producer, name=name)
        if name == "done":
            bench.end(producer, name=name)
    bench.mark()
    return bench


def listed(bench: Bench, asked: ListTransactionsRequest) -> list[str]:
    chosen, _ = filter_of(asked)
    found = chosen.listed(bench.shard.transactions, bench.now.wall_ms)
    return sorted(one.transactional_id for one in found)


def test_filters(bench: Bench) -> None:
    assert listed(bench, request()) == ["done", "empty", "open"]
    assert listed(bench, request(states=["Ongoing", "Empty"])) == ["empty", "open"]
    assert listed(bench, request(states=["Whatever"])) == []
    assert listed(bench, request(states=["Whatever", "CompleteCommit"])) == ["done"]
    assert listed(bench, request(producers=[1002, 5])) == ["open"]
    assert listed(bench, request(pattern="o.*")) == ["open"]
    assert listed(bench, request(pattern="o")) == []  # the whole id
    assert listed(bench, request(pattern="")) == ["done", "empty", "open"]


def test_how_long_a_transaction_is_open(bench: Bench) -> None:
    bench.advance(1000)
    assert listed(bench, request(duration_ms=1000)) == ["empty"]  # it never began: since the year 1970
    assert listed(bench, request(duration_ms=999)) == ["done", "empty", "open"]
    assert listed(bench, request(duration_ms=999, states=["Ongoing"])) == ["open"]


def test_states_that_there_are_not_come_back() -> None:
    _, unknown = filter_of(request(states=["Whatever", "Ongoing", "ongoing", "Whatever", "Dead"]))
    assert unknown == ["Whatever", "ongoing"]


@pytest.mark.parametrize("pattern", ["((", "a{3,2}", "(?<=a)b", "\\1"])
def test_patterns_that_are_none(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        filter_of(request(pattern=pattern))


def test_a_pattern_that_would_keep_others_busy_for_hours(bench: Bench) -> None:
    bench.init("a" * 5000)
    assert listed(bench, request(pattern="(a+)+b")) == []


def test_describe() -> None:
    bench = Bench()
    _, producer = bench.init(timeout_ms=1234)
    bench.add(producer, T0, U0)
    bench.add(producer, T1)
    state = bench.describe()
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", 1234)
    assert (state.producer_id, state.producer_epoch) == producer
    assert state.transaction_start_time_ms == bench.now.wall_ms
    assert [(one.topic, one.partitions) for one in state.topics] == [("t", [0, 1]), ("u", [0])]
    assert bench.describe("nobody").error_code == 105
    assert bench.describe("").error_code == 42
