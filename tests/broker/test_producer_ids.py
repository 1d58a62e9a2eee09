"""Producer ids: unique, from few allocations, and never from one that failed."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.cluster.producer_ids import ProducerIds
from barnabas.core.errors import StorageError


class Controller:
    """Gives out blocks of three, when let."""

    def __init__(self) -> None:
        self.next_id = 100
        self.asked = 0
        self.failures: list[Exception] = []

    async def allocate(self) -> range:
        self.asked += 1
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop()
        first, self.next_id = self.next_id, self.next_id + 3
        return range(first, self.next_id)


def test_ids_come_in_order_from_blocks() -> None:
    async def run() -> None:
        controller = Controller()
        ids = ProducerIds(controller.allocate)
        assert [await ids.next() for _ in range(7)] == [100, 101, 102, 103, 104, 105, 106]
        assert controller.asked == 3

    asyncio.run(run())


def test_those_who_ask_at_once_share_a_block() -> None:
    async def run() -> None:
        controller = Controller()
        ids = ProducerIds(controller.allocate)
        assert sorted(await asyncio.gather(*(ids.next() for _ in range(3)))) == [100, 101, 102]
        assert controller.asked == 1
        taken = await asyncio.gather(*(ids.next() for _ in range(8)))
        assert sorted(taken) == list(range(103, 111))
        assert controller.asked == 4

    asyncio.run(run())


def test_a_failed_allocation_fails_one_and_the_next_tries_again() -> None:
    async def run() -> None:
        controller = Controller()
        controller.failures.append(StorageError("the disk is full"))
        ids = ProducerIds(controller.allocate)
        first, second = await asyncio.gather(ids.next(), ids.next(), return_exceptions=True)
        assert isinstance(first, StorageError)
        assert second == 100

    asyncio.run(run())


def test_one_who_leaves_while_waiting_takes_nothing_along() -> None:
    async def run() -> None:
        controller = Controller()
        ids = ProducerIds(controller.allocate)
        leaver = asyncio.ensure_future(ids.next())
        stayer = asyncio.ensure_future(ids.next())
        await asyncio.sleep(0)
        leaver.cancel()
        assert await stayer == 100
        with pytest.raises(asyncio.CancelledError):
            await leaver

    asyncio.run(run())
