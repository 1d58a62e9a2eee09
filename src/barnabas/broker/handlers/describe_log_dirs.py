"""DescribeLogDirs: the directories of `log.dirs`, their partitions, and their free space.

A directory out of use has only an error. A partition that was never written has no files, and is listed with
size 0 in its future directory. The copy of a partition that is moving to another directory
(AlterReplicaLogDirs) is listed there as a future one, with its lag. The response has an error code from
version 3 on, the size of the volume from 4 on, and whether a directory is cordoned from 5 on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.storage.storage import is_cordoned
from barnabas.core.errors import StorageError, wire_error
from barnabas.log import untouched
from barnabas.log.checkpoints import TopicPartition
from barnabas.log.directory import LogDirectory
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.metadata.versions import CORDONED_SINCE
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

_STORAGE_ERROR = wire_error("KAFKA_STORAGE_ERROR").code


async def handle(
    request: DescribeLogDirsRequest, context: RequestContext, services: Services
) -> DescribeLogDirsResponse:
    storage = services.storage
    asked = _asked(request)
    without_files = _without_files(services)
    results = []
    for where in storage.named.values():
        directory = storage.at(where)
        if directory is None:
            results.append(_failed(where))
            continue
        try:
            results.append(await _describe(directory, asked, without_files.get(where, ()), services))
        except StorageError:
            results.append(_failed(where))
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=results)


def _asked(request: DescribeLogDirsRequest) -> dict[TopicPartition, None] | None:
    if request.topics is None:
        return None
    return {(topic.topic, number): None for topic in request.topics for number in topic.partitions}


def _without_files(services: Services) -> dict[str, list[TopicPartition]]:
    """The partitions of this node without files, by their future directory."""
    storage, replicas = services.storage, services.replicas
    found: dict[str, list[TopicPartition]] = {}
    for name, topic in services.image.topics_by_name.items():
        for number, partition in enumerate(topic.partitions):
            if services.node_id not in partition.replicas or replicas.is_offline(topic, number):
                continue
            if not any((name, number) in directory for directory in storage.directories.values()):
                there = storage.directories[storage.place(name, number)]
                found.setdefault(there.where, []).append((name, number))
    return found


async def _describe(
    directory: LogDirectory,
    asked: dict[TopicPartition, None] | None,
    without_files: Iterable[TopicPartition],
    services: Services,
) -> DescribeLogDirsResult:
    sizes = {**await untouched.sizes(directory), **dict.fromkeys(without_files, 0)}
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for name, number in sorted(sizes):
        if name != CLUSTER_METADATA and (asked is None or (name, number) in asked):
            topics.setdefault(name, []).append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=sizes[name, number],
                    offset_lag=0,
                    is_future_key=False,
                )
            )
    for move in () if services.moves is None else services.moves.copies_in(directory):
        if move.copy is not None and (asked is None or move.key in asked):
            topics.setdefault(move.key[0], []).append(
                DescribeLogDirsPartition(
                    partition_index=move.key[1],
                    partition_size=move.copy.size_bytes,
                    offset_lag=move.lag,
                    is_future_key=True,
                )
            )
    space = await directory.disk.space()
    can_be_cordoned = services.image.metadata_version >= CORDONED_SINCE
    cordoned = services.settings.strings("cordoned.log.dirs") if can_be_cordoned else ()
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=directory.where,
        topics=[DescribeLogDirsTopic(name=name, partitions=each) for name, each in topics.items()],
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
        is_cordoned=is_cordoned(services.storage.named, directory.where, cordoned),
    )


def _failed(where: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=_STORAGE_ERROR, log_dir=where, topics=[])
