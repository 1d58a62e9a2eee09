"""Moves of partitions between the log directories of this node (AlterReplicaLogDirs).

A move runs in the background until it is over, another directory is asked for, the partition is deleted or
the node stops. A move that fails leaves the partition where it was.
`replica.alter.log.dirs.io.max.bytes.per.second` bounds the copying of each move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from uuid import UUID

from barnabas.broker.cluster.membership import Membership
from barnabas.broker.replicas.replicas import Replicas
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError, StorageError
from barnabas.log.checkpoints import TopicPartition
from barnabas.log.directories import LogDirectories
from barnabas.log.directory import LogDirectory
from barnabas.log.moving import Move, unhurried
from barnabas.log.partition import PartitionLog
from barnabas.metadata.parts import TopicImage

logger = logging.getLogger("barnabas.replicas")

BYTES_PER_SECOND = "replica.alter.log.dirs.io.max.bytes.per.second"


class Moves:
    """The moves under way, by partition."""

    def __init__(
        self,
        logs: LogDirectories,
        replicas: Replicas,
        membership: Membership,
        clock: Clock,
        bytes_per_second: Callable[[], float],
        stop: Callable[[BaseException], None],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._membership = membership
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._stop_node = stop
        self._under_way: dict[TopicPartition, tuple[Move, asyncio.Task[None]]] = {}
        self._is_abandoned = False
        logs.stop_moving = self.stop

    async def move(self, topic: TopicImage, partition: int, target_id: UUID) -> None:
        """Begin to move a partition into a directory in use, in place of an earlier move of it."""
        key = (topic.name, partition)
        while (begun := self._under_way.get(key)) is not None:  # other requests may arrive while this waits
            if begun[0].target is self._logs.live.get(target_id):
                return
            await self.stop(key)
        there = self._logs.where(*key)
        if target_id not in self._logs.live:
            raise StorageError(f"the directory that {key[0]}-{key[1]} was to move to is out of use")
        if there is None:
            self._logs.put(*key, target_id)
            await self._membership.assign({(topic.id, partition): target_id})
        elif there != target_id:
            source, target = self._logs.live[there], self._logs.live[target_id]
            move = Move(key, source, target, self._clock, self._bytes_per_second)
            task = asyncio.get_running_loop().create_task(self._run(move, topic.id, target_id))
            self._under_way[key] = move, task

    async def _run(self, move: Move, topic_id: bytes, target_id: UUID) -> None:
        try:
            await move.copy_most()
            await unhurried(self._switch(move, topic_id, target_id))
        except BarnabasError as error:
            logger.error("%s-%d cannot move to %s, and stays: %s", *move.key, move.target.where, error)
        except Exception as error:  # noqa: BLE001 - nothing awaits this task
            self._stop_node(error)
        finally:
            if not self._is_abandoned:
                await move.give_up()
            self._forget(move)

    async def _switch(self, move: Move, topic_id: bytes, target_id: UUID) -> PartitionLog:
        switching = self._logs.switching[move.key] = asyncio.get_running_loop().create_future()
        place = {(topic_id, move.key[1]): target_id}
        try:
            return await move.switch(
                partial(self._membership.assign, place), partial(self._replicas.moved, topic_id, move.key[1])
            )
        finally:
            del self._logs.switching[move.key]
            switching.set_result(None)

    async def stop(self, key: TopicPartition) -> None:
        """Stop the move of a partition, if there is one. Returns when the partition is where it was, or has
        arrived."""
        if (begun := self._under_way.get(key)) is not None:
            begun[1].cancel()
            await asyncio.wait((begun[1],))
            self._forget(begun[0])  # its task may not even have begun

    def _forget(self, move: Move) -> None:
        if (begun := self._under_way.get(move.key)) is not None and begun[0] is move:
            del self._under_way[move.key]

    def copies_in(self, directory: LogDirectory) -> list[Move]:
        """The moves into a directory."""
        return [move for move, _ in self._under_way.values() if move.target is directory]

    async def close(self) -> None:
        """Stop all moves."""
        for key in list(self._under_way):
            await self.stop(key)

    async def abandon(self) -> None:
        """End as a crash would: the next start cleans up."""
        self._is_abandoned = True
        await self.close()
