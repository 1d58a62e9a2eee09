"""Transactional producers of one partition each: some batches, and then the commit or the abort.

A life is one InitProducerId and some transactions. One that is refused in the middle of a transaction leaves
it to its timeout or to its successor, which may be a twin with the same transactional id.
"""

from __future__ import annotations

from barnabas.sim.chance import between, happens, log_between
from barnabas.sim.coordination_scenario import LoopPlan
from barnabas.sim.workload.client import Client
from barnabas.sim.workload.coordinators import Asking
from barnabas.sim.workload.looping import LATE, LATE_S, REST_S, STALL, STALLS
from barnabas.sim.workload.transacting import TransactionalProducer

A_LIFE = 25  # transactions, at most
MOST_BATCHES, MOST_A_BATCH = 4, 3
PAUSE_S = 1.0  # between two transactions


async def run_writer(client: Client, plan: LoopPlan) -> None:
    """One life after another, until asked to stop."""
    number = 0
    async with Asking(client) as asking:
        while not client.stopping.is_set():
            number += 1
            life = _Life(client, TransactionalProducer(client, asking, plan, number), plan)
            await client.go_on(f"a life of {plan.transactional_id}", life.live)
            await client.clock.sleep(log_between(client.random, *REST_S))


class _Life:
    def __init__(self, client: Client, producer: TransactionalProducer, plan: LoopPlan) -> None:
        self._client, self._producer, self._plan = client, producer, plan
        self._place = plan.output, plan.partition

    async def live(self) -> None:
        """From InitProducerId on, some transactions."""
        await self._producer.begin_life()
        for _ in range(A_LIFE):
            if self._client.stopping.is_set():
                return
            await self._transact()
            await self._client.pause(PAUSE_S)

    async def _transact(self) -> None:
        client, producer, plan = self._client, self._producer, self._plan
        random = client.random
        producer.begin()
        for _ in range(1 + random.below(MOST_BATCHES)):
            await producer.write(self._place, [""] * (1 + random.below(MOST_A_BATCH)))
        if happens(random, STALLS):
            await client.clock.sleep(between(random, *STALL) * plan.timeout_ms / 1000)
        late = None
        if plan.way.is_implicit:
            if happens(random, LATE):
                producer.write_late(self._place, log_between(random, *LATE_S))
            if happens(random, LATE):
                late = happens(random, 0.5), log_between(random, *LATE_S)
        await producer.end(not happens(random, plan.aborts), late)
