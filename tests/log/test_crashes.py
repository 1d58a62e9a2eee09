"""Crashes of both kinds, and disk errors, at every operation of random workloads.

How many were tried stands in the summary of the test run. `python -m tests.log.crash_run` tries more.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from barnabas.core.disk import DiskFailed, DiskFull, TooManyOpenFiles
from tests.log.crash_explorer import Explorer, Tally
from tests.log.crash_faults import FaultyDisk, SmallDisk, operations, run_on

Record = Callable[[str, object], None]

ERRORS = {errno.ENOSPC: DiskFull, errno.EIO: DiskFailed, errno.EMFILE: TooManyOpenFiles}
STEPS_WITH_FAULTS = 25


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Recoveries and faults by the thousand have much to say; what counts is asserted."""
    caplog.set_level("CRITICAL", "barnabas")


def crash_everywhere(seed: int, steps: int, record_property: Record) -> None:
    tally = Tally()
    asyncio.run(Explorer(seed, tally).run(steps))
    assert tally.total > 10 * steps
    record_property("crash points", tally.total)
    print(tally)


@pytest.mark.parametrize("seed", range(2))
def test_a_crash_at_any_operation_breaks_no_promise(seed: int, record_property: Record) -> None:
    crash_everywhere(seed, 25, record_property)


# slow: each of these is thousands of recoveries
@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, *(pytest.param(each, marks=pytest.mark.long) for each in (4, 5))])
def test_a_crash_at_any_operation_of_a_longer_life_breaks_no_promise(
    seed: int, record_property: Record
) -> None:
    crash_everywhere(seed, 40, record_property)


# slow: every operation of a workload fails once, and the workload is run for each
@pytest.mark.slow
@pytest.mark.parametrize("error_number", ERRORS)
def test_an_error_at_any_operation_is_named_and_loses_nothing(
    error_number: int, record_property: Record
) -> None:
    async def scenario() -> int:
        count, named = len(operations(0, STEPS_WITH_FAULTS)), 0
        for number in range(count):
            times = (1, 2, 1000)[number % 3]  # the last until the step is over
            errors = run_on(FaultyDisk(number, error_number, times), 0, STEPS_WITH_FAULTS)
            named += any(isinstance(error, ERRORS[error_number]) for error in errors)
        # others strike where nobody has to be told: an index can wait, a background task tries again
        assert named > count // 4
        return count

    record_property("disk errors", asyncio.run(scenario()))


def test_a_disk_that_fills_up_at_any_byte_loses_nothing(record_property: Record) -> None:
    async def scenario() -> int:
        capacities = range(50, 6000, 70)
        full = [bool(run_on(SmallDisk(capacity), 3, STEPS_WITH_FAULTS)) for capacity in capacities]
        assert sum(full) > len(full) // 2
        return len(full)

    record_property("disk errors", asyncio.run(scenario()))
