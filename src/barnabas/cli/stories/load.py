"""The clients of a story: a producer that writes numbered records all the time, and the count at the end.

A record is acknowledged when its future says so. At the end every partition is read from its beginning:
nothing acknowledged may be missing, and nothing may be there twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from barnabas.cli.stories.stage import CLIENT, Stage
from barnabas.cli.stories.timeline import Timeline
from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.offsets import LATEST
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.core.errors import BarnabasError

PRODUCER = "producer"
_EVERY_S = 0.005
_READ_S = 60.0


class Count(NamedTuple):
    """What was written and what can be read."""

    acknowledged: int
    readable: int
    missing: int
    twice: int
    unanswered: int  # written without an acknowledgement, which is no fault
    longest_pause_s: float

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost, and nothing doubled."""
        return not self.missing and not self.twice

    @property
    def text(self) -> str:
        """A line for people."""
        more = f", {self.unanswered} without an answer are there, too" if self.unanswered else ""
        return (
            f"{self.acknowledged:,} records acknowledged, {self.missing} of them missing, {self.twice} twice"
            f"{more}; longest pause {self.longest_pause_s:.2f} s"
        )


class Writer:
    """Writes to all partitions of a topic in turn, from `start` to `finish`."""

    def __init__(self, stage: Stage, topic: str, partitions: int, timeline: Timeline) -> None:
        self._stage, self._topic, self._partitions, self._timeline = stage, topic, partitions, timeline
        self._producer = Producer(*stage.seams, stage.bootstrap, ProducerConfig(client=CLIENT))
        self._acknowledged: dict[int, float] = {}
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._acks = asyncio.Event()

    async def start(self) -> None:
        """Begin, and wait until records are acknowledged in every partition."""
        self._task = asyncio.create_task(self._write())
        await self.more(self._partitions * 5)

    def acknowledged(self, partition: int | None = None) -> int:
        """How many records are by now, of all or of one partition."""
        if partition is None:
            return len(self._acknowledged)
        return sum(number % self._partitions == partition for number in self._acknowledged)

    async def more(self, count: int, partition: int | None = None) -> None:
        """Wait until so many more were acknowledged, in all or in one partition."""
        wanted = self.acknowledged(partition) + count
        while self.acknowledged(partition) < wanted:
            self._acks.clear()
            waiting = asyncio.create_task(self._acks.wait())
            assert self._task is not None
            await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if self._task.done():
                self._task.result()

    async def _write(self) -> None:
        number = 0
        while not self._stopping:
            future = await self._producer.send(
                self._topic, str(number).encode(), partition=number % self._partitions
            )
            future.add_done_callback(lambda done, number=number: self._done(number, done))  # type: ignore[misc]
            number += 1
            await asyncio.sleep(_EVERY_S)

    def _done(self, number: int, future: asyncio.Future[object]) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # it counts as not acknowledged
        self._acknowledged[number] = self._timeline.now_s()
        self._timeline.mark(PRODUCER)
        self._acks.set()

    async def finish(self) -> Count:
        """Stop writing, wait for what is on its way, read it all, and count."""
        self._stopping = True
        if self._task is not None:
            await self._task
        with contextlib.suppress(BarnabasError):  # what fails counts as not acknowledged
            await self._producer.flush()
        await self._producer.close()
        read = Counter(await read_all(self._stage, self._topic, self._partitions))
        numbers = {int(value) for value in read}
        return Count(
            len(self._acknowledged),
            read.total(),
            len(self._acknowledged.keys() - numbers),
            sum(count - 1 for count in read.values()),
            len(numbers - self._acknowledged.keys()),
            self._longest_pause_s(),
        )

    def _longest_pause_s(self) -> float:
        """The longest time without an acknowledgement in any one partition."""
        longest = 0.0
        for partition in range(self._partitions):
            times = sorted(
                at for number, at in self._acknowledged.items() if number % self._partitions == partition
            )
            longest = max([longest, *(after - before for before, after in pairwise(times))])
        return longest


async def read_all(stage: Stage, topic: str, partitions: int) -> list[bytes]:
    """All records that a client can read."""
    places = [(topic, number) for number in range(partitions)]
    ends = await stage.admin.list_offsets(dict.fromkeys(places, LATEST))
    left = {at.partition: found.offset for at, found in ends.items()}
    values: list[bytes] = []
    config = ConsumerConfig(reset=Reset.EARLIEST, client=CLIENT)
    async with asyncio.timeout(_READ_S), Consumer(*stage.seams, stage.bootstrap, config) as consumer:
        consumer.assign(places)
        position = dict.fromkeys(left, 0)
        while any(position[number] < end for number, end in left.items()):
            for record in await consumer.poll(500):
                values.append(record.value or b"")
                position[record.partition] = record.offset + 1
    return values
