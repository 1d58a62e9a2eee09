"""A coordinator on this node: the partitions of one internal topic that this node leads, each with its host.

A key belongs to the partition `hash(key) % partitions`, and the leader of that partition coordinates it. The
hosts follow the published image:

    leadership lost      the host is lost, requests that wait in it get NOT_COORDINATOR
    leadership gained    the partition is loaded at once, before any request arrives: sessions and
                         transactions time out even if no client sends a request
    another epoch        both: the state of an earlier epoch is not used in a later one
    a write failed       the host is lost, the partition is loaded again a little later

Partitions are loaded one at a time, so that many of them do not stall the loop. A load is given up when its
leader epoch is over, and repeated when the partition cannot be read. It starts when the partition's last host
writes nothing any more, and is complete only when everything in the log is committed: the records of an
earlier leader may still be truncated, and a failed write may be in the log all the same. Requests that arrive
during a load wait a little, and then get COORDINATOR_LOAD_IN_PROGRESS.

A partition with a single replica is opened when it is needed: at the start if it has files, otherwise with
the first request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache, partial
from typing import Any, Generic

from barnabas.broker.coordinators.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from barnabas.broker.coordinators.host import Command, Host, S
from barnabas.broker.coordinators.loading import load
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.replicas import Replicas
from barnabas.broker.replicas.roles import NotLeaderOrFollower
from barnabas.coordination.effects import Effects, Markers, Now
from barnabas.coordination.records import Kinds
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError, InvariantViolation, StorageError
from barnabas.metadata.parts import PartitionImage, TopicImage
from barnabas.metadata.publisher import MetadataPublisher

logger = logging.getLogger("barnabas.coordinators")

_NOBODY = -1
WAIT_SECONDS = 0.5  # how long a request waits for a load
RELOAD_SECONDS = 1.0  # after a failed write or load: the next may fail as well
OVERTAKEN_SECONDS = 0.01  # after a load whose leader epoch was over
# After a failed write, a partition that loads slowly is not loaded for this many times its load time: on a
# full disk every write fails.
SLOW_LOAD_SECONDS = 0.05
RESTS_FOR_LOADS = 4


@lru_cache(maxsize=10_000)
def partition_for(key: str, count: int) -> int:
    """The partition of `count` to which a key belongs: Java's hash of a string, over its UTF-16 units."""
    number = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        number = (number * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    signed = number - 0x1_0000_0000 if number & 0x8000_0000 else number
    return (0 if signed == -0x8000_0000 else abs(signed)) % count


class Coordinator(Generic[S]):
    """One kind of coordinator on this node."""

    def __init__(
        self,
        topic: str,
        kinds: Kinds,
        make_shard: Callable[[], S],
        *,
        metadata: MetadataPublisher,
        replicas: Replicas,
        clock: Clock,
        codec: int = 0,
        commit_timeout: Callable[[], float],
        send_markers: Callable[[Host[S], Markers], None],
        ensure_topic: Callable[[], Awaitable[None]],
        stop: Callable[[BaseException], None],
    ) -> None:
        self.topic = topic
        self._kinds = kinds
        self._make_shard = make_shard
        self._metadata = metadata
        self._replicas = replicas
        self._clock = clock
        self._codec = codec
        self._commit_timeout = commit_timeout
        self._send_markers = send_markers
        self._ensure_topic = ensure_topic
        self._stop = stop
        self._hosts: dict[int, Host[S]] = {}
        self._ending: dict[int, Host[S]] = {}  # lost hosts that were writing
        self._loads: dict[int, asyncio.Task[Host[S]]] = {}
        self._load_seconds: dict[int, float] = {}
        self._rests_until: dict[int, float] = {}
        self._load_turn = asyncio.Lock()
        # loads without a request: the epoch, and the task that retries until it has succeeded
        self._wanted: dict[int, tuple[int, asyncio.Task[None]]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_closed = False
        replicas.on_removed.append(self._topic_removed)
        replicas.on_changed.append(self._topic_changed)

    # ---- keys and hosts

    async def find(self, key: str) -> int:
        """The node that coordinates a key; the topic is created if it does not exist."""
        if self._metadata.image.topic(self.topic) is None:
            await self._ensure_topic()
        topic = self._metadata.image.topic(self.topic)
        return _NOBODY if topic is None else topic.partitions[self.partition_of(key)].leader

    def partition_of(self, key: str) -> int:
        topic = self._metadata.image.topic(self.topic)
        if topic is None:
            raise NotCoordinator(f"{self.topic} does not exist yet")
        return partition_for(key, len(topic.partitions))

    async def ask(
        self, key: str, command: Command[S], *, only_records: bool = False, writes: bool = True
    ) -> Any:
        """The response to a command about a key, once it is committed; see `Host.ask`."""
        host = await self.host(self.partition_of(key))
        return await host.ask(command, only_records=only_records, writes=writes)

    async def host(self, partition: int) -> Host[S]:
        """The host of a partition; raises the reason if this node cannot coordinate it."""
        host = self._hosts.get(partition)
        if host is not None and self._is_current(host):
            return host
        load_task = self._loads.get(partition)
        if load_task is None:
            if self._is_closed:
                raise NotCoordinator("this node is stopping")
            if self._clock.monotonic() < self._rests_until.get(partition, 0.0):
                raise CoordinatorNotAvailable(f"{self.topic}-{partition} could not be written just now")
            load_task = asyncio.get_running_loop().create_task(self._load(partition))
            self._loads[partition] = load_task
            load_task.add_done_callback(partial(self._load_ended, partition))
        done, _ = await asyncio.wait((load_task,), timeout=WAIT_SECONDS)
        if not done:
            raise CoordinatorLoadInProgress(f"{self.topic}-{partition} is being loaded")
        if load_task.cancelled():
            raise NotCoordinator("this node is stopping")
        return load_task.result()

    def loaded(self) -> list[Host[S]]:
        """The loaded hosts, by partition."""
        return [self._hosts[one] for one in sorted(self._hosts) if self._is_current(self._hosts[one])]

    async def hosts(self) -> list[Host[S]]:
        """The hosts of all partitions that this node leads and that may have records."""
        found = []
        for partition in self._used():
            try:
                found.append(await self.host(partition))
            except NotCoordinator:
                continue
        return found

    def _is_current(self, host: Host[S]) -> bool:
        if host.lost is not None:
            return False
        topic = self._metadata.image.topic(self.topic)
        replica = None if topic is None else self._replicas.opened(topic, host.replica.partition)
        if replica is host.replica and replica.leader_epoch == host.epoch:
            return True
        host.resign(NotCoordinator(f"{host.name} is led by another node, or in another epoch"))
        return False

    # ---- loading

    async def _load(self, partition: int) -> Host[S]:
        replica = await self._leader(partition)
        if (before := self._ending.pop(partition, None)) is not None:
            await before.ended()
        shard = self._make_shard()
        host = Host(
            replica,
            shard,
            self._clock,
            codec=self._codec,
            commit_timeout=self._commit_timeout,
            send_markers=self._send_markers,
            on_lost=self._lost,
            stop=self._stop,
        )
        began = self._clock.monotonic()
        try:
            waited_seconds = await load(replica, self._kinds, shard, self._load_turn)
        except NotLeaderOrFollower as error:
            raise NotCoordinator(str(error)) from error
        except BarnabasError as error:
            raise CoordinatorNotAvailable(f"{host.name} cannot be loaded: {error}") from error
        if self._is_closed or not self._is_current(host):
            raise NotCoordinator(f"{host.name} changed hands while it was loaded")
        self._load_seconds[partition] = self._clock.monotonic() - began - waited_seconds
        logger.debug("%s loaded in %.3f s", host.name, self._load_seconds[partition])
        self._hosts[partition] = host
        host.begin()
        return host

    def _load_ended(self, partition: int, task: asyncio.Task[Host[S]]) -> None:
        del self._loads[partition]
        if task.cancelled() or (error := task.exception()) is None:
            return
        level = logging.DEBUG if isinstance(error, NotCoordinator) else logging.WARNING
        logger.log(level, "%s-%d was not loaded: %s", self.topic, partition, error)
        if not isinstance(error, BarnabasError):
            self._stop(error)

    async def _leader(self, partition: int) -> Replica:
        topic = self._metadata.image.topic(self.topic)
        if topic is None:
            raise NotCoordinator(f"{self.topic} does not exist")
        try:
            return await self._replicas.leader(topic, partition)
        except StorageError as error:
            raise CoordinatorNotAvailable(f"{self.topic}-{partition} cannot be read: {error}") from error
        except BarnabasError as error:
            raise NotCoordinator(str(error)) from error

    def _lost(self, host: Host[S]) -> None:
        partition = host.replica.partition
        if self._hosts.get(partition) is host:
            del self._hosts[partition]
        if host.is_writing:
            self._ending[partition] = host
        image = self._led(partition)
        if image is not None and image.leader_epoch != host.epoch:
            self._take_up(partition)
            return
        load_seconds, rest_seconds = self._load_seconds.get(partition, 0.0), 0.0
        if isinstance(host.lost, CoordinatorNotAvailable) and load_seconds > SLOW_LOAD_SECONDS:
            rest_seconds = RESTS_FOR_LOADS * load_seconds
            self._rests_until[partition] = self._clock.monotonic() + rest_seconds
        self._take_up(partition, max(RELOAD_SECONDS, rest_seconds))

    # ---- loads without a request

    def load_all(self) -> None:
        """Load all partitions that this node leads and that may have records."""
        for partition in self._used():
            self._take_up(partition)

    def _used(self) -> list[int]:
        """The partitions that this node leads, without unreplicated ones that have never been used."""
        topic = self._metadata.image.topic(self.topic)
        if topic is None:
            return []
        with_files = set(self._replicas.with_files(topic))
        return [
            number
            for number, image in enumerate(topic.partitions)
            if self._replicas.is_led(image) and (len(image.replicas) > 1 or number in with_files)
        ]

    def _take_up(self, partition: int, wait_seconds: float = 0.0) -> None:
        """Load a partition in its current leader epoch, after `wait_seconds`."""
        image = self._led(partition)
        if image is None or self._is_closed:
            return
        epoch, task = self._wanted.get(partition, (-1, None))
        if epoch == image.leader_epoch:
            return
        if task is not None:
            task.cancel()
        task = self._begin(self._load_at_last(partition, wait_seconds))
        self._wanted[partition] = image.leader_epoch, task

    def _led(self, partition: int) -> PartitionImage | None:
        """The partition's image, if this node leads it now."""
        topic = self._metadata.image.topic(self.topic)
        image = None if topic is None else topic.partition(partition)
        return image if image is not None and self._replicas.is_led(image) else None

    async def _load_at_last(self, partition: int, wait_seconds: float) -> None:
        """Load a partition; retries as long as this node leads it."""
        try:
            await self._clock.sleep(wait_seconds)
            while not await self._is_settled(partition):
                pass
        finally:
            if self._wanted.get(partition, (-1, None))[1] is asyncio.current_task():
                del self._wanted[partition]

    async def _is_settled(self, partition: int) -> bool:
        """Try once to load a partition; returns whether nothing is left to do."""
        if self._is_closed or self._led(partition) is None:
            return True
        try:
            await self.host(partition)
        except CoordinatorLoadInProgress:
            return False
        except CoordinatorNotAvailable:
            await self._clock.sleep(RELOAD_SECONDS)
            return False
        except NotCoordinator:
            await self._clock.sleep(OVERTAKEN_SECONDS)
            return False
        except InvariantViolation:
            return True  # see `_load_ended`
        if partition not in self._hosts:  # lost as soon as it was loaded
            await self._clock.sleep(RELOAD_SECONDS)
        return partition in self._hosts

    # ---- topics

    def _topic_removed(self, topic: TopicImage) -> None:
        if topic.name == self.topic:
            for host in list(self._hosts.values()):
                host.resign(NotCoordinator(f"{self.topic} was deleted"))

    def _topic_changed(self, topic: TopicImage) -> None:
        if topic.name != self.topic:
            return
        for partition, image in enumerate(topic.partitions):
            host = self._hosts.get(partition)
            if host is not None and self._is_current(host):  # otherwise it resigns
                continue
            is_used = len(image.replicas) > 1 or self._replicas.opened(topic, partition) is not None
            if is_used and self._replicas.is_led(image):
                self._take_up(partition)

    def tell_all(self, event: Callable[[S, Now], Effects]) -> None:
        """Send an event to every loaded shard."""
        for host in self.loaded():
            self._begin(host.tell(event))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def close(self) -> None:
        """Answer the requests that wait with NOT_COORDINATOR, and wait for writes under way."""
        self._is_closed = True
        for host in list(self._hosts.values()):
            host.resign(NotCoordinator("this node is stopping"))
        for host in list(self._ending.values()):
            await host.ended()
        for task in [*self._loads.values(), *self._tasks]:
            task.cancel()
        await asyncio.gather(*self._loads.values(), *self._tasks, return_exceptions=True)
