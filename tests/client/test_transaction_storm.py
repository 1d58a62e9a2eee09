"""Transactions of a producer under everything at once: what is lost, late, refused, moved or cancelled.

Records, tables and offsets, ended by the producer or, prepared, by an admin. Whatever happens on the way, in
the end just that is seen which transactions held that were told to be committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import ClientConfig
from barnabas.client.errors import OutsideTransaction, TimedOut, TransactionAborted
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.core.random import SeededRandom
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema import Message
from barnabas.sim.loop import LoopClock, run
from tests.client.fake_broker import Drop, FakeBroker, FakeCluster, refuse_produce
from tests.client.fake_transactions import code

PARTITIONS = 3
PRODUCE_REFUSALS = ("MESSAGE_TOO_LARGE", "CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS", "INVALID_RECORD")
END_REFUSALS = ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")


class Storm:
    """A cluster that misbehaves, a producer in it, and what must be seen in the end."""

    def __init__(self, seed: int, version: int) -> None:
        self.random = SeededRandom(seed)
        self.cluster = FakeCluster(2)
        self.cluster.features["transaction.version"] = version
        self.cluster.add_topic("t", PARTITIONS)
        self.cluster.coordinators["x"] = 1
        self.cluster.rules.append(self.spoil)
        self.due: list[bytes] = []
        self.due_offset: int | None = None
        self.complaints: list[Any] = []
        self.config = ProducerConfig(
            transactional_id="x",
            batch_bytes=200,
            linger_ms=self.random.below(3),
            max_block_ms=4000,
            delivery_timeout_ms=self.one_of(2000, 10_000, 120_000),
            buffer_bytes=self.one_of(2000, 1 << 20),
            client=ClientConfig(request_timeout_ms=1500),
        )
        self.producer = self.another()

    def one_of(self, *choices: Any) -> Any:
        return choices[self.random.below(len(choices))]

    def another(self) -> Producer:
        network = self.cluster.network.host("client")
        return Producer(network, LoopClock(), self.random, self.cluster.bootstrap, self.config)

    async def spoil(self, broker: FakeBroker, request: Any, version: int) -> Message | None:
        match self.random.below(40):
            case 0:
                raise Drop(first=True)
            case 1:
                raise Drop
            case 2:
                self.cluster.coordinators["x"] = self.one_of(1, 2)
            case 3:
                self.cluster.move("t", self.random.below(PARTITIONS), self.one_of(1, 2))
            case 4 if not isinstance(
                request, InitProducerIdRequest
            ):  # late, that would fence its own producer
                await asyncio.sleep(self.random.below(5))
            case 5 if isinstance(request, ProduceRequest):
                return refuse_produce(request, code(self.one_of(*PRODUCE_REFUSALS)))
            case 6 if isinstance(request, EndTxnRequest):
                error_code = code(self.one_of(*END_REFUSALS))
                return EndTxnResponse(
                    throttle_time_ms=0, error_code=error_code, producer_id=-1, producer_epoch=-1
                )
            case 7 | 8 | 9 if isinstance(request, EndTxnRequest):  # when it is asked for a second time
                await asyncio.sleep(1.6 + self.random.below(100) / 100)
        return None

    async def insist(self, what: Callable[[], Awaitable[Any]]) -> None:
        """Ask until there is an answer, sometimes without the patience to wait for it."""
        while True:
            task = asyncio.ensure_future(what())
            if self.random.below(4) == 0:
                await asyncio.sleep(self.random.below(3000) / 1000)
                task.cancel()
            try:
                await task
                return
            except (TimedOut, asyncio.CancelledError):
                pass

    # ---- one transaction after another -------------------------------------------------------------------

    async def work(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: self.complaints.append(told))
        await self.cluster.start()
        await self.insist(self.producer.init_transactions)
        for number in range(8):
            await self.transact(number, [b"%d-%d" % (number, each) for each in range(self.random.below(12))])
        self.cluster.rules.clear()
        await self.producer.close()

    async def transact(self, number: int, values: list[bytes]) -> None:
        self.producer.begin_transaction()
        try:
            has_offset = await self.fill(number, list(values))
            if self.random.below(3) == 0:
                await self.insist(self.producer.abort_transaction)
                return
            await self.one_of(self.commit, self.commit, self.commit_elsewhere)()
        except (TransactionAborted, TimedOut, OutsideTransaction):
            await self.insist(self.producer.abort_transaction)
            return
        self.due += values
        self.due_offset = number if has_offset else self.due_offset

    async def fill(self, number: int, left: list[bytes]) -> bool:
        while left:
            if self.random.below(2):
                await self.producer.send("t", left.pop(0), partition=self.random.below(PARTITIONS))
            else:
                some, left[:] = left[:4], left[4:]
                partitions = pa.array([self.random.below(PARTITIONS) for _ in some], pa.int32())
                await self.producer.send_table(pa.table({"value": some, "partition": partitions}), "t")
            if self.random.below(3) == 0:
                await self.producer.flush()
        if self.random.below(2):
            return False
        await self.producer.send_offsets({("t", 0): number}, "g")
        return True

    async def commit(self) -> None:
        await self.insist(self.producer.commit_transaction)

    async def commit_elsewhere(self) -> None:
        prepared = await self.producer.prepare_transaction()
        network = self.cluster.network.host("admin")
        async with Admin(network, LoopClock(), self.random, self.cluster.bootstrap) as admin:
            for _ in range(self.one_of(1, 2)):
                await self.insist(lambda: admin.end_transaction(prepared))
        await self.producer.close(timeout_ms=self.one_of(0, 1000))
        self.producer = self.another()
        await self.insist(self.producer.init_transactions)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("first", range(0, 60, 15))
def test_what_is_seen_is_what_was_committed(version: int, first: int) -> None:
    for seed in range(first, first + 15):
        storm = Storm(seed, version)
        run(storm.work())
        found = [
            value for each in range(PARTITIONS) for value in storm.cluster.partition("t", each).committed()
        ]
        assert sorted(map(bytes, filter(None, found))) == sorted(storm.due), f"seed {seed}"
        offsets = storm.cluster.transactions.group_offsets.get("g", {})
        assert offsets.get(("t", 0)) == storm.due_offset, f"seed {seed}"
        assert storm.complaints == [], f"seed {seed}"
