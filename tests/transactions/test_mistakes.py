"""What every request is told in every state, by name; whatever is refused changes nothing.

The tables are Kafka's, as its coordinator decides; `tests/interop` asks the real one the same.
"""

from __future__ import annotations

import pytest

from barnabas.coordination.effects import Producer
from barnabas.transactions.states import NAMES, NEXT, ONGOING, PREPARED
from barnabas.transactions.transaction import Transaction
from tests.transactions.bench import NEW, OLD, T0, T1, Bench

CURRENT, BEFORE, AFTER = Producer(7, 5), Producer(7, 4), Producer(7, 6)
STRANGER = Producer(8, 5)

FENCED, MAPPING = "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"
STATE, WAIT = "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"
STATES = range(6)


def bench_in(state: int) -> Bench:
    bench = Bench()
    partitions = {T0: None} if state in (ONGOING, *PREPARED) else {}
    bench.put("a", Transaction(7, 5, 60_000, state, partitions, 1, 1, 7, client_version=2))
    return bench


def expect(bench: Bench, told: str, expected: str) -> None:
    """The answer; and where it is an error, that nothing was written, sent or changed."""
    assert told == expected
    if expected not in ("NONE",):
        assert len(bench.log) == 1
        assert bench.sent == []
        assert bench.shard.transactions == bench.replayed(bench.log).transactions


# rows: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort
END_NEW = {
    (CURRENT, True): (STATE, "NONE", WAIT, WAIT, STATE, STATE),
    (CURRENT, False): ("NONE", "NONE", WAIT, WAIT, "NONE", "NONE"),
    (BEFORE, True): (FENCED, FENCED, WAIT, WAIT, "NONE", STATE),
    (BEFORE, False): (FENCED, FENCED, WAIT, WAIT, STATE, "NONE"),
    (AFTER, True): (FENCED, FENCED, WAIT, WAIT, FENCED, FENCED),
    (AFTER, False): (FENCED, FENCED, WAIT, WAIT, FENCED, FENCED),
    (STRANGER, True): (MAPPING, MAPPING, WAIT, WAIT, MAPPING, MAPPING),
    (STRANGER, False): (MAPPING, MAPPING, WAIT, WAIT, MAPPING, MAPPING),
}
END_OLD = {
    (CURRENT, True): (STATE, "NONE", WAIT, WAIT, "NONE", STATE),
    (CURRENT, False): (STATE, "NONE", WAIT, WAIT, STATE, "NONE"),
    (BEFORE, True): (FENCED,) * 6,
    (BEFORE, False): (FENCED,) * 6,
    (AFTER, True): (FENCED,) * 6,
    (STRANGER, True): (MAPPING,) * 6,
    (STRANGER, False): (MAPPING,) * 6,
}
ADD = {
    CURRENT: ("NONE", "NONE", WAIT, WAIT, "NONE", "NONE"),
    BEFORE: (FENCED, FENCED, WAIT, WAIT, FENCED, FENCED),
    AFTER: (FENCED, FENCED, WAIT, WAIT, FENCED, FENCED),
    STRANGER: (MAPPING, MAPPING, WAIT, WAIT, MAPPING, MAPPING),
}
VERIFY = {
    CURRENT: ("TRANSACTION_ABORTABLE", "NONE", WAIT, WAIT, "TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE"),
    BEFORE: (FENCED,) * 6,
    AFTER: (FENCED,) * 6,
    STRANGER: (MAPPING,) * 6,
}
INIT = {
    None: ("NONE", WAIT, WAIT, WAIT, "NONE", "NONE"),
    CURRENT: ("NONE", WAIT, WAIT, WAIT, "NONE", "NONE"),
    BEFORE: (FENCED, WAIT, WAIT, WAIT, FENCED, FENCED),
    AFTER: (FENCED, WAIT, WAIT, WAIT, FENCED, FENCED),
    STRANGER: (FENCED, FENCED, WAIT, WAIT, FENCED, FENCED),
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: NAMES[state])
def test_end_in_every_state(state: int) -> None:
    for version, table in ((NEW, END_NEW), (2, END_OLD)):
        for (producer, commit), expected in table.items():
            bench = bench_in(state)
            expect(bench, bench.end(producer, commit=commit, version=version)[0], expected[state])


@pytest.mark.parametrize("state", STATES, ids=lambda state: NAMES[state])
def test_add_and_verify_in_every_state(state: int) -> None:
    for producer, expected in ADD.items():
        bench = bench_in(state)
        expect(bench, bench.add(producer, T1), expected[state])
    for producer, expected in VERIFY.items():
        bench = bench_in(state)
        (told,) = bench.verify(producer, T0).values()
        assert told == expected[state]
        assert len(bench.log) == 1


@pytest.mark.parametrize("state", STATES, ids=lambda state: NAMES[state])
def test_init_in_every_state(state: int) -> None:
    for producer, expected in INIT.items():
        bench = bench_in(state)
        told = bench.init(expected=producer or Producer(-1, -1))[0]
        assert told == expected[state]
        if expected[state] == WAIT and state == ONGOING:
            assert bench.state() == "PrepareAbort"  # it is being aborted meanwhile
        else:
            expect(bench, told, expected[state])


def test_requests_that_say_nothing_sensible() -> None:
    bench = Bench(max_timeout_ms=1000)
    assert bench.init("")[0] == "INVALID_REQUEST"
    assert bench.init(expected=Producer(5, -1), timeout_ms=5)[0] == "INVALID_REQUEST"
    assert bench.init(expected=Producer(-1, 5), timeout_ms=5)[0] == "INVALID_REQUEST"
    for timeout_ms in (0, -1, 1001):
        assert bench.init(timeout_ms=timeout_ms)[0] == "INVALID_TRANSACTION_TIMEOUT"
    assert bench.add(CURRENT, name="") == "INVALID_REQUEST"
    assert bench.verify(CURRENT, name="") == {T0: "INVALID_REQUEST"}
    assert bench.end(CURRENT, name="")[0] == "INVALID_REQUEST"
    assert bench.log == []


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_name_that_nobody_has(version: int) -> None:
    bench = Bench()
    assert bench.add(CURRENT, version=version) == MAPPING
    assert bench.end(CURRENT, version=version)[0] == MAPPING
    assert bench.verify(CURRENT) == {T0: MAPPING}
    assert bench.log == []


def test_every_state_leads_somewhere_and_comes_from_somewhere() -> None:
    assert sorted(NEXT) == list(STATES)
    assert {state for ways in NEXT.values() for state in ways} == set(STATES)
