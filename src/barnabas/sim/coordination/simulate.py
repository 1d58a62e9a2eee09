"""Runs a seed of the kinds "replicated-groups" and "replicated-transactions"."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.sim.coordination.nemesis import CoordinationNemesis
from barnabas.sim.coordination.plan import draw_coordination
from barnabas.sim.coordination.watch import CoordinationWatch
from barnabas.sim.replication.checkers import check_replication
from barnabas.sim.replication.simulate import run_replication
from barnabas.sim.world import Outcome, simulate_scenario

# until sessions and transactions of the last clients are over, so that nothing is written any more
LAST_S = 30.0


def simulate_coordination(
    seed: int, kind: str, *, seconds: float | None = None, on_line: Callable[[str], None] | None = None
) -> Outcome:
    scenario = draw_coordination(seed, kind, seconds)
    return simulate_scenario(
        scenario,
        partial(run_replication, last_s=LAST_S),
        check_replication,
        on_line=on_line,
        nemesis=CoordinationNemesis,
        watch=lambda history: CoordinationWatch(history, scenario),
    )
