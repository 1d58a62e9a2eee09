"""The driver's half of a stream's reader: answers Spark's calls on a loop that keeps running in between."""

from __future__ import annotations

from barnabas.client.admin import Admin
from barnabas.spark.driving import Background, seams
from barnabas.spark.mirror import Mirror
from barnabas.spark.offsets import Offsets
from barnabas.spark.options import ReadOptions
from barnabas.spark.reading import RangePartition
from barnabas.spark.stream import Stream


class StreamDriver:
    """One admin for the whole query; it reconnects by itself when brokers come and go."""

    def __init__(self, options: ReadOptions) -> None:
        network, clock, random = seams()
        group_id = options.stream.group_id
        self._background = Background("barnabas-stream")
        self._admin = Admin(network, clock, random, options.bootstrap, options.planning_client)
        self._mirror = None if group_id is None else Mirror(self._admin, clock, group_id)
        self.stream = Stream(self._admin, clock, options)

    def initial(self) -> Offsets:
        return self._background.run(self.stream.initial())

    def latest(self, start: Offsets, limit: int | None, at_least_min: bool) -> Offsets:
        return self._background.run(self._latest(start, limit, at_least_min))

    async def _latest(self, start: Offsets, limit: int | None, at_least_min: bool) -> Offsets:
        if self._mirror is not None:
            self._mirror.note(start)
        end = await self.stream.latest(start, limit, at_least_min=at_least_min)
        if self._mirror is not None and end == start:  # this may be the last call
            await self._mirror.settle()
        return end

    def partitions(self, start: Offsets, end: Offsets) -> list[RangePartition]:
        return [RangePartition(each) for each in self._background.run(self.stream.ranges(start, end))]

    def close(self) -> None:
        self._background.run(self._admin.close())
        self._background.close()
