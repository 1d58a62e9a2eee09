"""Offsets go to the group beside the stream: the newest only, and never at the stream's cost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from barnabas.client.admin import Admin
from barnabas.client.errors import BrokerNotReachable
from barnabas.client.metadata import TopicPartition
from barnabas.core.clock import ManualClock
from barnabas.spark.mirror import RETRY_S, Mirror

PLACE = TopicPartition("t", 0)


class Group:
    """Stands in for the admin: keeps what is committed, when it is told to answer."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.may_answer = asyncio.Event()
        self.is_reachable = True

    async def alter_group_offsets(self, group_id: str, offsets: dict[TopicPartition, int]) -> None:
        await self.may_answer.wait()
        if not self.is_reachable:
            raise BrokerNotReachable("no broker can be reached")
        self.committed.append(offsets[PLACE])


def mirror() -> tuple[Mirror, Group, ManualClock]:
    group, clock = Group(), ManualClock()
    return Mirror(cast(Admin, group), clock, "g"), group, clock


def test_of_those_that_wait_only_the_newest_is_sent() -> None:
    async def run() -> list[int]:
        mirrored, group, _ = mirror()
        mirrored.note({PLACE: 1})
        await asyncio.sleep(0)  # that one is on its way
        for offset in (2, 3, 4):
            mirrored.note({PLACE: offset})
        group.may_answer.set()
        await mirrored.settle()
        mirrored.note({PLACE: 4})  # which is there already
        await mirrored.settle()
        return group.committed

    assert asyncio.run(run()) == [1, 4]


def test_a_failure_is_a_warning_and_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[Any]:
        mirrored, group, clock = mirror()
        group.may_answer.set()
        group.is_reachable = False
        for offset in (1, 2, 3):  # the stream goes on
            mirrored.note({PLACE: offset})
            await asyncio.sleep(0)
            await mirrored.settle()
        group.is_reachable = True
        before = list(group.committed)
        clock.advance(RETRY_S)  # nobody calls it: the stream may be at work for long
        for _ in range(3):
            await asyncio.sleep(0)
        return [before, group.committed]

    assert asyncio.run(run()) == [[], [3]]
    assert caplog.text.count("offsets are not mirrored to group 'g': no broker can be reached") == 1


def test_a_group_that_takes_its_time_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> list[int]:
        mirrored, group, _ = mirror()
        mirrored.note({PLACE: 1})
        await mirrored.settle()  # in vain
        monkeypatch.setattr("barnabas.spark.mirror.SETTLE_S", None)  # for ever
        await mirrored.settle()
        group.may_answer.set()
        for _ in range(3):
            await asyncio.sleep(0)
        mirrored.note({PLACE: 2})
        await mirrored.settle()
        return group.committed

    monkeypatch.setattr("barnabas.spark.mirror.SETTLE_S", 0.01)
    assert asyncio.run(run()) == [1, 2]
