"""The long crash run: `python -m tests.log.crash_run --seeds 200`, with a line that shows how far it is.

Every seed is a workload that is crashed at each of its operations (and, with `--faults`, one whose disk fails
at each of them). A broken promise is printed with what it takes to see it again, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import sys
import time

from tests.log.crash_explorer import Explorer, Tally
from tests.log.crash_faults import FaultyDisk, operations, run_on
from tests.log.crash_story import Violation

FAULTS = ((errno.EIO, 1), (errno.ENOSPC, 3), (errno.EMFILE, 1000), (errno.EIO, 1000))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.log.crash_run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many workloads")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=60, help="how long each of them is")
    parser.add_argument("--faults", action="store_true", help="let the disk fail at every operation, too")
    given = parser.parse_args(arguments)
    logging.getLogger("barnabas").setLevel(logging.CRITICAL + 1)
    violations, tally, faults, began = 0, Tally(), 0, time.monotonic()
    for seed in range(given.first, given.first + given.seeds):
        try:
            asyncio.run(Explorer(seed, tally).run(given.steps))
            if given.faults:
                faults += asyncio.run(_fail_everywhere(seed, given.steps // 2))
        except Violation as violation:
            violations += 1
            print(f"\r\033[K{violation}")
            again = f"--first {seed} --seeds 1 --steps {given.steps}" + " --faults" * given.faults
            print(f"  again: python -m tests.log.crash_run {again}")
        done, seconds = seed - given.first + 1, time.monotonic() - began
        progress = f"{done}/{given.seeds} seeds, {tally.total:,} crash points, {faults:,} faults"
        print(f"\r\033[K{progress}, {violations} violations, {seconds:.0f} s", end="", flush=True)
    print(f"\n{tally}")
    return 1 if violations else 0


async def _fail_everywhere(seed: int, steps: int) -> int:
    """Every fault at every operation of one workload; returns how many there were."""
    count = len(operations(seed, steps))
    for number in range(count):
        for error_number, times in FAULTS:
            run_on(FaultyDisk(number, error_number, times), seed, steps)
    return count * len(FAULTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
