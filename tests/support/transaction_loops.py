"""Read-process-write loops of real clients, exactly once, which go on whatever happens to brokers.

A loop takes records of an input topic in a group of its own, and writes each of them, as it is, to the same
partition of its output topic, with the offsets in the same transaction (tests/interop/transactor.py). Where a
step fails its process is killed and another takes its place, with the same transactional id and as the same
static member: what was under way is ended by it or by the coordinator, and it goes on from what is committed.

A consumer that has lost its place in the group joins again by itself and reads on from what was committed by
then, in the midst of a transaction, too. So a process that is given a record again, or skips one, is given up
as well, as an application has to do when its partitions are taken from it.

Two clients may wait for ever when a coordinator has died, and so are given up sooner: librdkafka in
`send_offsets_to_transaction` (its issues 5456 and 5511), and kafka-python 3.0 in any step, since its sender
forgets the request for which a coordinator refuses the connection (`Sender._maybe_send_pending_request`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from random import Random

from tests.support.stepped import STEP_DEADLINE_S, StepFailed, SteppedProcess
from tests.support.transactors import Transactors

MOST_TAKEN = 8  # records of a transaction
ABORTED = 0.02  # of the transactions, whose records are taken again: by another process, which has its price
TIMEOUT_MS = 180_000  # after which a coordinator ends a transaction: no fault is as long
HANGS_S = 30.0
HANGING = {"confluent": ("offsets",), "kafka-python": ("send", "offsets", "commit", "abort")}


class TransactionLoop:
    """One loop, in a thread, from the `with` on; `output` is as wide as `source`."""

    def __init__(
        self, start: Transactors, client: str, bootstrap: str, source: str, output: str, random: Random
    ) -> None:
        self.client, self.output, self.group = client, output, f"loop-{client}"
        self.commits = self.aborts = 0  # transactions
        self.failures: list[str] = []  # of processes that were given up
        self._start, self._bootstrap, self._source = start, bootstrap, source
        self._random = random
        self._next: dict[str, int] = {}  # the offset that a process is to be given next, by partition
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TransactionLoop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop between two transactions; harmless when repeated."""
        self._stopping.set()
        self._thread.join()

    def drain(self, count_left: Callable[[], int], attempts: int = 20) -> None:
        """After `stop`, when no more is written: process the rest, as many records as `count_left` tells."""
        if not any(self._drained(count_left) for _ in range(attempts)):
            raise AssertionError(f"{self.client} does not come to the end: {self.failures[-3:]}")

    def _drained(self, count_left: Callable[[], int]) -> bool:
        """By one process: whether it came to the end."""
        process = self._begin()
        self._next.clear()
        try:
            self._do(process, "init")  # ends what was under way, so that it is known what is committed
            left = count_left()
            while left:
                count = min(left, MOST_TAKEN)
                self._copy(process, count)
                self._commit(process)
                left -= count
        except StepFailed as failure:
            self._failed(process, failure)
            return False
        finally:
            process.kill()
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            process = self._begin()
            self._next.clear()
            try:
                self._do(process, "init")
                while not self._stopping.is_set() and self._transact(process):
                    pass
            except StepFailed as failure:
                self._failed(process, failure)
            finally:
                process.kill()

    def _begin(self) -> SteppedProcess:
        return self._start(
            self.client,
            self._bootstrap,
            self.group,
            timeout_ms=TIMEOUT_MS,
            group=self.group,
            source=self._source,
        )

    def _failed(self, process: SteppedProcess, failure: StepFailed) -> None:
        self.failures.append(str(failure).removeprefix(f"{process.name}: "))

    def _transact(self, process: SteppedProcess) -> bool:
        """One transaction; False where it was aborted: the process has read on, and is not to go on."""
        self._copy(process, self._random.randint(1, MOST_TAKEN))
        if self._random.random() < ABORTED:
            self._do(process, "abort")
            self.aborts += 1
            return False
        self._commit(process)
        return True

    def _copy(self, process: SteppedProcess, count: int) -> None:
        """A transaction with so many records and their offsets, but for its end."""
        taken = self._do(process, f"take {count}")
        self._check(process, taken)
        self._do(process, "begin")
        for each in taken:
            partition, _, value = each.split(":", 2)
            self._do(process, f"send {self.output} {partition} {value}")
        self._do(process, "offsets")

    def _check(self, process: SteppedProcess, taken: Sequence[str]) -> None:
        for each in taken:
            partition, offset, _ = each.split(":", 2)
            expected = self._next.get(partition, int(offset))
            if int(offset) != expected:
                raise StepFailed(
                    f"{process.name}: partition {partition} is read at {offset}, not at {expected}"
                )
            self._next[partition] = expected + 1

    def _commit(self, process: SteppedProcess) -> None:
        self._do(process, "commit")
        self.commits += 1

    def _do(self, process: SteppedProcess, step: str) -> list[str]:
        hangs = step.split()[0] in HANGING.get(self.client, ())
        return process.do(step, HANGS_S if hangs else STEP_DEADLINE_S)
