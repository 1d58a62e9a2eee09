"""The state of a Spark Python process between the batches of streaming queries.

Spark makes a new writer for every batch, but its processes live longer. A process that runs tasks remembers
the last batch that it wrote. A process that commits keeps the connections of each query, as long as no batch
fails. There is one state in a process (`this_process`); writers are pickled, and must not hold it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from barnabas.spark.commits import Committer
from barnabas.spark.driving import Background
from barnabas.spark.exactly_once import Job, Step
from barnabas.spark.sink_options import WriteOptions

MOST_QUERIES = 8


class Work(NamedTuple):
    """A query's committer, and the loop that it runs on."""

    loop: Background
    committer: Committer


class ProcessState:
    """The state of one process; `this_process` returns that of the running one."""

    def __init__(self, most_queries: int = MOST_QUERIES) -> None:
        self._most_queries = most_queries
        # by application: run and batch of the last write
        self._written: dict[str, tuple[str, int]] = {}
        self._work: dict[tuple[str, WriteOptions], Work] = {}

    def is_first(self, app: str, run: str, batch: int) -> bool:
        """Whether a batch is the first of this process in a run, or a repeated one: then an earlier attempt
        may have left something unfinished."""
        last = self._written.get(app)
        return last is None or last[0] != run or last[1] >= batch

    def wrote(self, app: str, run: str, batch: int) -> None:
        """A task of that batch has succeeded."""
        self._written[app] = run, batch

    def committer(self, job: Job, step: Step) -> Work:
        """The committer of a query; beyond the maximum number of queries the oldest one is closed."""
        key = job.app, job.options
        if key not in self._work:
            while len(self._work) >= self._most_queries:
                old = self._work.pop(next(iter(self._work)))
                old.loop.run(old.committer.close())
                old.loop.close()
            self._work[key] = Work(Background("commits"), Committer(job.options, job.app, step))
        return self._work[key]


@cache
def this_process() -> ProcessState:
    """The state of the running process."""
    return ProcessState()
