"""Every deliberate bug is caught, by a checker that is expected to, and the same seed is clean without it.

The seeds are pinned in bugs_pins.json; `python -m tests.sim.bugs --pin` chooses them anew, which is needed
when scenarios or clients have changed so much that a seed has become another one. With another kernel, whose
compressed batches have other sizes, it is another one, too.
"""

from __future__ import annotations

from functools import cache

import pytest

from barnabas.log import producer
from barnabas.log.partition import PartitionLog
from barnabas.records import kernel
from barnabas.sim.checkers import CHECKERS
from barnabas.sim.replication.checkers import NAMES
from tests.sim.bugs import BUGS, SEEN, Pin, checkers_of, pins, run
from tests.sim.bugs_switch import switched_on
from tests.sim.replication.directed_bugs import DIRECTED

TAKEN_APART = True  # by processes that share the tests (tools/shared_lane.py)
CLUSTER_CHECKERS = {
    "leaders",
    "images",
    "prefix",
    "committed",
    "changes",
    "seen",
    "topics",
    "errors",
    "reads",
    "producer-ids",
    "fenced",
    "superseded",
    "calm",
    "prompt",
    "drill",
}
PIN_AGAIN = "if scenarios or clients have changed: python -m tests.sim.bugs --pin"


@cache
def _said_without_any(seed: int, seconds: float | None, kind: str) -> list[str]:
    return [str(violation) for violation in run(None, seed, seconds, kind).violations]


@pytest.mark.slow  # two simulations for each of many bugs
@pytest.mark.skipif(kernel.NAME != "c", reason="the seeds are those of the compiled kernel")
@pytest.mark.parametrize("pin", pins(), ids=[pin.bug for pin in pins()])
def test_it_is_caught(pin: Pin) -> None:
    bug = BUGS[pin.bug]
    found = checkers_of(run(bug, pin.seed, pin.seconds, pin.kind))
    assert set(found) & set(bug.checkers), f"{bug.what}: {found or 'nobody'} says so; {PIN_AGAIN}"
    assert _said_without_any(pin.seed, pin.seconds, pin.kind) == []


def test_every_bug_has_its_seed() -> None:
    assert [pin.bug for pin in pins()] == SEEN, PIN_AGAIN


def test_every_checker_has_caught_something() -> None:
    spoke = {checker for pin in pins() for checker in pin.checkers}
    spoke |= {checker for _, checker in DIRECTED.values()}
    assert CHECKERS.keys() | CLUSTER_CHECKERS | NAMES <= spoke, PIN_AGAIN


def test_a_switch_leaves_nothing_behind() -> None:
    flush, kept = PartitionLog.flush, producer.BATCHES_KEPT
    for bug in BUGS.values():
        with switched_on(bug):
            pass
    assert PartitionLog.flush is flush
    with switched_on(BUGS["duplicate-window-of-one"]):
        assert producer.BATCHES_KEPT == 1
    assert kept == producer.BATCHES_KEPT
