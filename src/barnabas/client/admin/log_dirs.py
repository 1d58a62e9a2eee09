"""The log directories of brokers: the logs in them, and their free space."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.client.admin.engine import Engine, check
from barnabas.client.errors import wire_error_of
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import WireError
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


class ReplicaInfo(NamedTuple):
    """A partition's log in a directory; a future one is being moved there."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A log directory; `error` is the reason if it cannot be used. Sizes that the broker does not send are
    None."""

    error: WireError | None
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool = False


class LogDirs(Engine):
    """The part of an admin for log directories."""

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """The log directories of these brokers (all), by path, with the logs of these topics (all)."""
        wanted = None
        if topics is not None:
            described = await self._metadata(topics)
            wanted = [
                DescribableLogDirTopic(
                    topic=topic.name or "", partitions=[each.partition_index for each in topic.partitions]
                )
                for topic in described.topics
            ]
        request = DescribeLogDirsRequest(topics=wanted)
        if brokers is None:
            deadline = self._clock.monotonic() + self._timeout_ms / 1000
            return await self._of_all_brokers(lambda node: self._log_dirs_of(node, request), deadline)
        nodes = list(brokers)
        answers = await asyncio.gather(*(self._log_dirs_of(node, request) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    async def _log_dirs_of(
        self, node_id: int, request: DescribeLogDirsRequest
    ) -> dict[str, LogDirDescription]:
        response = await self._ask_leader(node_id, request, DescribeLogDirsResponse)
        check(response.error_code, f"cannot describe the log directories of broker {node_id}")
        return {result.log_dir: _described(result) for result in response.results}


def _described(result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        wire_error_of(result.error_code) if result.error_code else None,
        {
            TopicPartition(topic.name, each.partition_index): ReplicaInfo(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in result.topics
            for each in topic.partitions
        },
        None if result.total_bytes < 0 else result.total_bytes,
        None if result.usable_bytes < 0 else result.usable_bytes,
        result.is_cordoned,
    )
