"""How fast the raft core is in its simulator: elections a second on one core, and seeds as they are drawn.

The elections are those of three voters whose leader's process dies again and again, with all that belongs to
it: notices of the socket, pre-votes, votes, fetches, records that commit. At least 300 a second are wanted on
one core; time is that of the processor, so that what else runs on the machine counts for little.

Fail-overs are in virtual time: from the loss of the leader of three voters to the moment when the other two
and two brokers know the next one, on a network and disks that take a millisecond.
"""

from __future__ import annotations

import time
from collections import Counter
from statistics import median

from barnabas.sim.quorum.failover import LOSSES, lose_leader
from barnabas.sim.quorum.plan import QuorumPlan
from barnabas.sim.quorum.world import QuorumWorld, simulate_quorum
from bench.options import Options
from bench.report import Row

TITLE = "quorum"
WANTED = 300
PLAN = QuorumPlan(
    seed=1,
    seconds=120.0,
    voters=3,
    observers=0,
    is_dynamic=False,
    has_auto_join=False,
    raises_kraft_version=False,
    proposals_s=0.1,
    snapshots_s=10.0,
    changes_s=10.0,
    fetch_entries=50,
    drifts=(1.0, 1.0, 1.0),
    faults={"leader-crash": 0.4},
)


def run(options: Options) -> list[Row]:
    """All rows."""
    return [
        _elections(2.0 if options.small else PLAN.seconds),
        *_seeds(2 if options.small else 200),
        *_failovers(2 if options.small else 100),
    ]


def _elections(seconds: float) -> Row:
    QuorumWorld(PLAN._replace(seconds=1.0)).run()  # what is imported when it is first used is not measured
    began = time.process_time()
    outcome = QuorumWorld(PLAN._replace(seconds=seconds)).run()
    rate = outcome.reached["elections"] / (time.process_time() - began)
    note = (
        f"three voters, {outcome.reached['elections']} in {seconds:.0f} simulated seconds; wanted: {WANTED}"
    )
    return Row("elections", rate, "a CPU second", note, rate / WANTED)


def _seeds(count: int) -> list[Row]:
    began = time.process_time()
    reached: Counter[str] = Counter()
    simulated_s = messages = 0.0
    for seed in range(1, count + 1):
        outcome = simulate_quorum(seed)
        reached.update(outcome.reached)
        simulated_s += outcome.simulated_seconds
        messages += outcome.messages
    took_s = time.process_time() - began
    return [
        Row("seeds as drawn", 60 * count / took_s, "a CPU minute", f"{count} seeds of --kind quorum"),
        Row("simulated time", simulated_s / took_s, "s a CPU second", "of the same seeds"),
        Row(
            "elections in them", reached["elections"] / took_s, "a second", f"{reached['elections']} of them"
        ),
        Row("messages in them", messages / took_s, "a CPU second", "requests and answers"),
    ]


def _failovers(count: int) -> list[Row]:
    rows = []
    for loss in LOSSES:
        taken_ms = [1000 * lose_leader(seed, loss).all_s for seed in range(1, count + 1)]
        note = f"at most {max(taken_ms):.0f}; virtual time, {count} times"
        rows.append(Row(f"fail-over, leader {loss}", median(taken_ms), "ms", note))
    return rows
