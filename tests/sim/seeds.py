"""What tests of whole seeds have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping

from barnabas.cli.sim import replay_command
from barnabas.sim.history import Finished
from barnabas.sim.world import Outcome, simulate

# a seed in another process: which one, for how many seconds and of which kind from the command line
_REPLAY = """
import sys
from barnabas.sim.world import simulate
outcome = simulate(int(sys.argv[1]), seconds=float(sys.argv[2]), kind=sys.argv[3])
print(outcome.trace_hash, len(outcome.history), outcome.violations)
"""


def run_clean(seed: int, kind: str, seconds: float | None = None) -> Outcome:
    """Run a seed, which keeps every promise and comes to its end; the message has what replays it."""
    outcome = simulate(seed, seconds=seconds, kind=kind)
    told = "\n".join([replay_command(seed, seconds, kind), *map(str, outcome.violations)])
    assert not outcome.violations, told
    assert list(outcome.history.of(Finished)), told
    return outcome


def missed(reached: Counter[str], floors: Mapping[str, int]) -> dict[str, int]:
    """What was reached less often than it has to be."""
    return {what: reached[what] for what in floors if reached[what] < floors[what]}


def assert_same_in_other_processes(seed: int, kind: str, seconds: float) -> None:
    """A seed goes the same way in processes that order their sets differently."""
    said = [
        subprocess.run(
            [sys.executable, "-c", _REPLAY, str(seed), str(seconds), kind],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        ).stdout
        for hash_seed in ("1", "4242")
    ]
    assert said[0] == said[1]
    assert len(said[0].split()[0]) == 32
