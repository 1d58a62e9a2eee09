"""AlterReplicaLogDirs: assigns partitions of this broker to its log directories.

The response says whether a move has begun, or there is nothing to do; DescribeLogDirs shows its progress.
Nothing moves into a directory of `cordoned.log.dirs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.replicas.replicas import UnknownTopicOrPartition
from barnabas.broker.storage.storage import is_cordoned
from barnabas.core.errors import BarnabasError, StorageError, wire_error
from barnabas.log.directory import LogDirectory
from barnabas.log.names import MAX_NAME_CHARS
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

# `-<partition>.<id>-future` behind the name of a topic
_MARK_CHARS = len("-0.-future") + 32


class LogDirNotFound(BarnabasError):
    """A path that is not in log.dirs."""

    wire = wire_error("LOG_DIR_NOT_FOUND")


class ReplicaNotAvailable(BarnabasError):
    """This broker has no replica of that partition."""

    wire = wire_error("REPLICA_NOT_AVAILABLE")


class DirectoryCordoned(BarnabasError):
    """The directory takes no further replicas."""

    wire = wire_error("INVALID_REPLICA_ASSIGNMENT")


class NameTooLong(BarnabasError):
    """The name of the copy's directory would be too long."""

    wire = wire_error("INVALID_TOPIC_EXCEPTION")


async def handle(
    request: AlterReplicaLogDirsRequest, context: RequestContext, services: Services
) -> AlterReplicaLogDirsResponse:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                code = await _answer(directory.path, topic.name, number, services)
                results.setdefault(topic.name, []).append(
                    AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
                )
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ],
    )


async def _answer(path: str, name: str, number: int, services: Services) -> int:
    try:
        await _move(path, name, number, services)
    except BarnabasError as error:
        return error.wire.code
    return 0


async def _move(path: str, name: str, number: int, services: Services) -> None:
    if len(name) + len(str(number)) + _MARK_CHARS - 1 > MAX_NAME_CHARS:
        raise NameTooLong(f"{name} is too long for the name of a copy's directory")
    target_id = _target(path, services)
    topic = services.image.topic(name)
    partition = None if topic is None else topic.partition(number)
    if topic is None or partition is None:
        raise UnknownTopicOrPartition(f"there is no partition {name}-{number}")
    if services.node_id not in partition.replicas:
        raise ReplicaNotAvailable(f"there is no {name}-{number} on this node")
    if services.replicas.is_offline(topic, number):
        raise StorageError(f"{name}-{number} is in a directory that is out of use")
    if services.moves is not None:  # otherwise there is only one directory
        await services.moves.move(topic, number, target_id)


def _target(path: str, services: Services) -> UUID:
    storage = services.storage
    if path not in storage.named.values():
        raise LogDirNotFound(f"{path} is none of log.dirs")
    directory: LogDirectory | None = storage.at(path)
    if directory is None:
        raise StorageError(f"{path} is out of use")
    if is_cordoned(storage.named, path, services.settings.strings("cordoned.log.dirs")):
        raise DirectoryCordoned(f"{path} is one of cordoned.log.dirs")
    return next(each for each, one in storage.directories.items() if one is directory)
