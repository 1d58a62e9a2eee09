"""Moments of a batch at which `kills` kills; what can be seen of one is the checkpoint and the transactions.

any         whenever
within      anywhere from the beginning of a batch to its end
opened      the first transaction of a batch is open
all-open    more than one is: tasks have written, or are about to
ending      some are ended, and some may not be
ended       all are, and Spark may not know it yet
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random

from barnabas.client.admin import Admin
from barnabas.spark.driving import Background, seams
from tests.spark.kills_judge import Checkpoint
from tests.spark.kills_world import Query

POLL_S = 0.002
STUCK_S = 300.0  # without a batch that begins, on however busy a machine
LONG_BATCH_S = 3.0
UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
WEIGHTS = {"within": 8, "opened": 3, "all-open": 3, "ending": 3, "ended": 3, "any": 2}
OF_TASKS = ("within", "opened", "all-open")


class Moments:
    """Waits for them, and sees to it that the query lives meanwhile."""

    def __init__(self, bootstrap: str, query: Query, checkpoint: Checkpoint, sink: str) -> None:
        self._query, self._checkpoint = query, checkpoint
        self._background = Background("kills")
        self._admin = Admin(*seams(), bootstrap)
        self._waits: dict[str, Callable[[], None]] = {"any": self._query.ensure, "within": self._begun}
        if sink == "topic":
            self._waits |= {"opened": self._opened, "all-open": self._all_open}
            self._waits |= {"ending": self._ending, "ended": self._ended}

    def close(self) -> None:
        self._background.run(self._admin.close())
        self._background.close()

    def open_transactions(self) -> list[str]:
        """Those of the query that are not ended."""

        async def ask() -> list[str]:
            async with asyncio.timeout(30):
                listed = await self._admin.list_transactions(states=UNDER_WAY)
            return [each.transactional_id for each in listed if each.transactional_id.startswith("spark-")]

        return self._background.run(ask())

    def choose(self, kind: str, random: Random) -> str:
        """One that goes with what is to be killed."""
        names = [name for name in WEIGHTS if name in self._waits]
        if kind in ("task", "tasks", "executor"):
            names = [name for name in names if name in OF_TASKS]
        (moment,) = random.choices(names, [WEIGHTS[name] for name in names])
        return moment

    def wait(self, moment: str, random: Random) -> None:
        """Until it has come, or a little longer."""
        self._waits[moment]()
        if moment == "within":
            spread_s = min(self._checkpoint.last_batch_s(), LONG_BATCH_S)  # another life may have begun it
        else:
            spread_s = 2.0 if moment == "any" else random.choice((0.0, 0.01, 0.1))
        time.sleep(random.uniform(0, spread_s))

    def wait_for_all(self, fed: int) -> None:
        """Until so many records are through."""

        def is_through() -> bool:
            batch = self._checkpoint.committed()
            return sum(self._checkpoint.ends(batch).values()) == fed

        self._until(is_through)

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STUCK_S
        while not done():
            assert time.monotonic() < deadline, (
                f"no batch after {self._checkpoint.begun()} in {STUCK_S:.0f} s"
            )
            self._query.ensure()
            time.sleep(POLL_S)

    def _begun(self) -> None:
        before = self._checkpoint.begun()
        self._until(lambda: self._checkpoint.begun() > before)

    def _until_open(self, count: int) -> None:
        """As many open at once, unless the batch is through without."""
        batch = self._checkpoint.begun()
        self._until(lambda: len(self.open_transactions()) >= count or self._checkpoint.committed() >= batch)

    def _opened(self) -> None:
        self._begun()
        self._until_open(1)

    def _all_open(self) -> None:
        self._begun()
        self._until_open(2)

    def _ending(self) -> None:
        """Some are ended, and some may not be."""
        self._all_open()
        most, batch = 0, self._checkpoint.begun()

        def fewer() -> bool:
            nonlocal most
            now = len(self.open_transactions())
            most = max(most, now)
            return now < most or self._checkpoint.committed() >= batch

        self._until(fewer)

    def _ended(self) -> None:
        """All is committed, and Spark may not know yet."""
        self._begun()
        batch = self._checkpoint.begun()
        self._until_open(1)
        self._until(lambda: not self.open_transactions() or self._checkpoint.committed() >= batch)
