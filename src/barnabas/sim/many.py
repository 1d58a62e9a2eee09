"""Many seeds on all cores: each runs by itself in a worker process, and what comes back is a few numbers.

A seed needs nothing of another, so the order in which they end means nothing, and a violation is replayed by
its seed alone.
"""

from __future__ import annotations

import gc
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

from barnabas.sim.quorum.world import simulate_quorum
from barnabas.sim.scenario import CLUSTER, KINDS, REPLICATED, REPLICATION
from barnabas.sim.world import simulate

# of its own: raft cores without brokers; no seed is of this kind unless it is asked for
QUORUM = "quorum"
ALL_KINDS = (*KINDS, CLUSTER, REPLICATION, *REPLICATED, QUORUM)
# a worker is handed the next seed before it has ended the last one, so that it never waits
QUEUED_A_WORKER = 2


class Summary(NamedTuple):
    """What one seed came to."""

    seed: int
    trace_hash: str
    violations: tuple[str, ...]
    simulated_seconds: float
    real_seconds: float
    faults: dict[str, int]
    records_acknowledged: int
    records_read: int
    reached: dict[str, int] = {}  # noqa: RUF012 - never changed


class Total(NamedTuple):
    """What many seeds came to."""

    seeds: int
    violated: tuple[Summary, ...]
    simulated_seconds: float
    faults: Counter[str]
    records_acknowledged: int
    records_read: int
    reached: Counter[str]


def summarise(seed: int, seconds: float | None = None, kind: str | None = None) -> Summary:
    """Run one seed; an error of the simulation itself is a violation."""
    began = time.perf_counter()
    try:
        return run_seed(seed, seconds, kind)
    except Exception as error:  # noqa: BLE001 - whatever it is, which seed it was matters most
        failure = f"the simulation itself failed: {type(error).__name__}: {error}"
        return Summary(seed, "", (failure,), 0.0, time.perf_counter() - began, {}, 0, 0)


def run_seed(
    seed: int,
    seconds: float | None = None,
    kind: str | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Summary:
    """Run one seed, of any kind."""
    began = time.perf_counter()
    if kind == QUORUM:
        return _run_quorum(seed, seconds, on_line)
    outcome = simulate(seed, seconds=seconds, kind=kind, on_line=on_line)
    return Summary(
        seed,
        outcome.trace_hash,
        tuple(map(str, outcome.violations)),
        outcome.stats.simulated_seconds,
        time.perf_counter() - began,
        dict(outcome.stats.faults),
        outcome.stats.records_acknowledged,
        outcome.stats.records_read,
        dict(outcome.stats.reached),
    )


def _run_quorum(seed: int, seconds: float | None, on_line: Callable[[str], None] | None) -> Summary:
    began = time.perf_counter()
    outcome = simulate_quorum(seed, seconds=seconds, on_line=on_line)
    return Summary(
        seed,
        outcome.trace_hash,
        tuple(map(str, outcome.violations)),
        outcome.simulated_seconds,
        time.perf_counter() - began,
        dict(outcome.faults),
        outcome.records_acknowledged,
        outcome.records_committed,
        dict(outcome.reached),
    )


def _begin() -> None:
    """What a worker does first. Whoever interrupts means the parent, which lets the workers end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()


def run_many(
    seeds: Iterable[int], *, jobs: int, seconds: float | None = None, kind: str | None = None
) -> Generator[Summary, None, None]:
    """The summaries of the seeds as they end. Closing the iterator lets those under way end, and no more."""
    waiting = iter(seeds)
    # a forked child would inherit the parent's progress bar and its threads
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin) as pool:
        running: set[Future[Summary]] = set()
        try:
            while True:
                room = jobs * QUEUED_A_WORKER - len(running)
                running |= {pool.submit(summarise, seed, seconds, kind) for seed in islice(waiting, room)}
                if not running:
                    return
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


def total(summaries: Iterable[Summary]) -> Total:
    """Add them up."""
    every = list(summaries)
    faults: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    for one in every:
        faults.update(one.faults)
        reached.update(one.reached)
    return Total(
        len(every),
        tuple(sorted((one for one in every if one.violations), key=lambda one: one.seed)),
        sum(one.simulated_seconds for one in every),
        faults,
        sum(one.records_acknowledged for one in every),
        sum(one.records_read for one in every),
        reached,
    )
