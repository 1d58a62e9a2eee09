"""Read-process-write loops of real clients, exactly once, which go on whatever happens to brokers.

A loop takes records of an input topic in a group of its own, and writes each of them, as it is, to the same
partition of its output topic, with the offsets in the same transaction (tests/interop/transactor.py). Where a
step fails its process is killed and another takes its place, with the same transactional id and as the same
static member: what was under way is ended by it or by the coordinator, and it goes on from what is committed.
"""

from __future__ import annotations

import threading
from random import Random

from tests.support.stepped import StepFailed, SteppedProcess
from tests.support.transactors import Transactors

MOST_TAKEN = 8  # records of a transaction
ABORTED = 0.1  # of the transactions, whose records are taken again
TIMEOUT_MS = 10_000  # after which a coordinator ends a transaction
KEPT = 20


class TransactionLoop:
    """One loop, in a thread, from the `with` on; `output` is as wide as `source`."""

    def __init__(
        self, start: Transactors, client: str, bootstrap: str, source: str, output: str, random: Random
    ) -> None:
        self.client, self.output, self.group = client, output, f"loop-{client}"
        self.commits = 0
        self.failures: list[str] = []  # the last ones
        self.restarts = -1
        self._start, self._bootstrap, self._source = start, bootstrap, source
        self._random = random
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TransactionLoop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop between two transactions."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.restarts += 1
            process = self._start(
                self.client,
                self._bootstrap,
                self.group,
                timeout_ms=TIMEOUT_MS,
                group=self.group,
                source=self._source,
            )
            try:
                process.do("init")
                while not self._stopping.is_set() and self._transact(process):
                    pass
            except StepFailed as failure:
                self.failures = [*self.failures, str(failure)][-KEPT:]
            finally:
                process.kill()

    def _transact(self, process: SteppedProcess) -> bool:
        """One transaction; False where it was aborted: the process has read on, and is not to go on."""
        taken = process.do(f"take {self._random.randint(1, MOST_TAKEN)}")
        process.do("begin")
        for each in taken:
            partition, _, value = each.split(":", 2)
            process.do(f"send {self.output} {partition} {value}")
        process.do("offsets")
        if self._random.random() < ABORTED:
            process.do("abort")
            return False
        process.do("commit")
        self.commits += 1
        return True
