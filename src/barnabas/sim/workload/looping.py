"""Read-process-write loops: what is read of the input goes to the output, exactly once.

A loop works off one partition of the input in the name of its transactional id, so that a second instance
fences the first; or those that its group gives it, where a member that is none any more is fenced by its
generation. In one transaction there are some records, their outputs, and how far the input has been read. A
loop that aborts, or begins a new life, goes on from what is committed.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.consumer import Consumer
from barnabas.client.fetched import ConsumerRecord
from barnabas.core.errors import BarnabasError
from barnabas.sim.chance import between, happens, log_between
from barnabas.sim.coordination_scenario import LoopPlan
from barnabas.sim.group_events import Place
from barnabas.sim.workload.client import Client
from barnabas.sim.workload.coordinators import Asking
from barnabas.sim.workload.membership import Member
from barnabas.sim.workload.reading import make_consumer
from barnabas.sim.workload.transacting import LifeOver, TransactionalProducer

FETCH_BYTES = 50_000
POLL_MS, MOST_RECORDS, MOST_A_BATCH = 400, 8, 3
A_LIFE = 25  # transactions, at most
STALLS, STALLS_IN_GROUP, STALL = 0.02, 0.08, (0.8, 1.8)  # how often, and how many times what is allowed
LATE, LATE_S = 0.15, (0.02, 8.0)
REST_S, LAST_REST_S = (0.1, 6.0), (0.1, 0.3)
PAUSE_S = 0.4  # between two transactions
LEAVE_S = 12.0


def source_of(topic: str, partition: int, offset: int) -> str:
    """How an output names the input it is made of."""
    return f"{topic}-{partition}@{offset}"


async def run_loop(
    client: Client, plan: LoopPlan, places: Sequence[Place], outputs: int, is_last: bool = False
) -> None:
    """One life after another, until asked to stop; the last ones do nothing that they should not."""
    number = 0
    async with Asking(client) as asking:
        while not client.stopping.is_set():
            number += 1
            async with make_consumer(client, FETCH_BYTES, read_committed=True) as consumer:
                producer = TransactionalProducer(client, asking, plan, number)
                life = _Life(client, asking, consumer, producer, plan, places, outputs, is_last)
                await client.go_on(f"a life of {plan.transactional_id}", life.live)
            await client.clock.sleep(log_between(client.random, *(LAST_REST_S if is_last else REST_S)))


async def run_leaver(client: Client, plan: LoopPlan, outputs: int) -> None:
    """Begin transactions and never end them, each with an id of its own; or try to when it is too late."""
    number = 0
    async with Asking(client) as asking:

        async def leave() -> None:
            name = f"left-{client.name}-{number}"
            mine = plan._replace(transactional_id=name)
            producer = TransactionalProducer(client, asking, mine, number)
            await producer.begin_life()
            producer.begin()
            await producer.write((plan.output, client.random.below(outputs)), [""])
            if happens(client.random, 0.3):
                await client.clock.sleep(between(client.random, *STALL) * plan.timeout_ms / 1000)
                await producer.end(happens(client.random, 0.7))

        while not client.stopping.is_set():
            number += 1
            await client.go_on("leaving a transaction", leave)
            await client.pause(LEAVE_S)


class _Life:
    def __init__(
        self,
        client: Client,
        asking: Asking,
        consumer: Consumer,
        producer: TransactionalProducer,
        plan: LoopPlan,
        places: Sequence[Place],
        outputs: int,
        is_last: bool,
    ) -> None:
        self._client, self._asking, self._plan = client, asking, plan
        self._consumer, self._producer = consumer, producer
        self._outputs = outputs
        self._is_last = is_last
        topic = plan.group.topic
        self._places = list(places) if plan.partition < 0 else [(topic, plan.partition)]
        self._member = Member(client, asking, plan.group, "", places) if plan.partition < 0 else None

    async def live(self) -> None:
        """From InitProducerId on, some transactions."""
        client, done = self._client, 0
        await self._producer.begin_life()
        if self._member is None:
            await self._seek(self._places)
        while done < A_LIFE and not client.stopping.is_set():
            if self._member is not None:
                await self._stay(self._member)
            records = await self._consumer.poll(POLL_MS, 1 + client.random.below(MOST_RECORDS))
            if records:
                done += 1
                await self._transact(records)
                await client.pause(PAUSE_S)

    async def _stay(self, member: Member) -> None:
        """In the group, with what it gives."""
        client = self._client
        if member.must_join or member.has_run_out():
            await self._seek(await member.join())
        while member.places == () and not client.stopping.is_set() and not member.must_join:
            await client.pause(POLL_MS / 1000)
            await member.heartbeat()
        await member.heartbeat()

    async def _seek(self, places: Sequence[Place]) -> None:
        """To what is committed."""
        self._consumer.assign(places)
        if places:
            found = await self._asking.committed(self._plan.group.name, places, is_stable=True)
            for place, (offset, _) in found.items():
                self._consumer.seek(place, max(offset, 0))

    # ---- one transaction ---------------------------------------------------------------------------------

    async def _transact(self, records: Sequence[ConsumerRecord]) -> None:
        producer, random = self._producer, self._client.random
        producer.begin()
        try:
            await self._write(records)
            await self._maybe_stall()
            offsets = {(record.topic, record.partition): record.offset + 1 for record in records}
            await producer.commit_offsets(self._plan.group.name, offsets, self._member)
            await self._maybe_stall()
        except LifeOver:
            await self._try_to_abort()
            raise
        is_commit = self._is_last or not happens(random, self._plan.aborts)
        is_bold = self._plan.way.is_implicit and not self._is_last
        if is_bold and happens(random, LATE):
            place = (self._plan.output, random.below(self._outputs))
            producer.write_late(place, log_between(random, *LATE_S))
        late = None
        if is_bold and happens(random, LATE):
            late = happens(random, 0.5), log_between(random, *LATE_S)
        await producer.end(is_commit, late)
        if not is_commit:
            await self._seek(self._consumer.assignment)

    async def _write(self, records: Sequence[ConsumerRecord]) -> None:
        """All of them, in some batches."""
        random, left = self._client.random, list(records)
        while left:
            count = 1 + random.below(MOST_A_BATCH)
            batch, left = left[:count], left[count:]
            place = (self._plan.output, random.below(self._outputs))
            sources = [source_of(record.topic, record.partition, record.offset) for record in batch]
            await self._producer.write(place, sources)

    async def _maybe_stall(self) -> None:
        client, stalls = self._client, STALLS if self._member is None else STALLS_IN_GROUP
        if not self._is_last and happens(client.random, stalls):
            # in a group, so long that it may be a member no more while its transaction is still open
            in_vain_ms = self._plan.timeout_ms if self._member is None else self._plan.group.session_ms
            await client.clock.sleep(between(client.random, *STALL) * in_vain_ms / 1000)

    async def _try_to_abort(self) -> None:
        """What a client does that was refused in mid-transaction; not always."""
        if happens(self._client.random, 0.5):
            try:
                await self._producer.end(is_commit=False)
            except BarnabasError:
                return
