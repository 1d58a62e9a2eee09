"""What is seen of replicated partitions from outside, and becomes history.

The metadata of a partition is noted when a node publishes it for the first time. The logs of all nodes are
looked at now and then (`sample`), when a partition has another leader or other replicas in sync, when one of
them is about to be cut, and when a process has ended; what has changed since the last look is noted, and then
that all were looked at. Where other replicas are in sync that is noted even if no log has changed: one that
has joined may lack what others have had for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.roles import Leading
from barnabas.core.disk import Buffer
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import RECOVERING, PartitionImage, TopicImage
from barnabas.protocol.schema import Uuid
from barnabas.sim.cluster.events import Led
from barnabas.sim.history import History
from barnabas.sim.machine import Machine, TwinWatch
from barnabas.sim.replication.events import (
    UNKNOWN,
    BatchKept,
    PartitionGone,
    PartitionSeen,
    ReplicaGone,
    ReplicaSeen,
    Sampled,
)
from barnabas.sim.replication.logs import INTERNAL, DiskLog, DiskLogs
from barnabas.sim.scenario import Scenario

# topic, its id, partition
Key = tuple[str, str, int]


class ReplicationWatch(TwinWatch):
    """Watches all nodes of a simulation; topics whose names begin with one of `hidden` are passed over."""

    hidden: tuple[str, ...] = (INTERNAL,)

    def __init__(self, history: History, scenario: Scenario) -> None:
        self._history = history
        assert scenario.cluster is not None
        self._brokers = scenario.cluster.brokers
        self._compacted = {topic.name for topic in scenario.topics if topic.is_compacted}
        self._offset = -1  # of the latest image that any node has published
        self._partitions: dict[tuple[Uuid, int], PartitionImage] = {}
        self._nodes: dict[int, _NodeLogs] = {}
        self._machines: Sequence[Machine] = ()

    def watch(self, machines: Sequence[Machine]) -> None:
        """Look at the logs of these from now on."""
        self._machines = [each for each in machines if each.node in self._brokers]
        for machine in self._machines:
            machine.drive.on_cut = self.sample

    def opened(self, machine: Machine, quorum: MetadataQuorum) -> None:
        super().opened(machine, quorum)
        _Watched(self, machine, quorum)

    def ended(self, machine: Machine) -> None:
        self.sample()

    def led(self, machine: Machine, life: int, epoch: int) -> None:
        self._history.add(Led(_now(), machine.node, life, epoch))

    def published(self, machine: Machine, image: ClusterImage, delta: Delta) -> None:
        if image.offset <= self._offset:
            return
        self._offset = image.offset
        has_changed = False
        for topic_id, topic in delta.removed_topics.items():
            for index in range(len(topic.partitions)):
                if self._partitions.pop((topic_id, index), None) is not None:
                    gone = PartitionGone(_now(), machine.node, topic.name, topic_id.hex(), index)
                    self._history.add(gone)
        for topic_id, index in delta.changed_partitions:
            found = image.topic_by_id(topic_id)
            if found is None or found.name.startswith(self.hidden):
                continue
            partition = found.partitions[index]
            before = self._partitions.get((topic_id, index))
            if before == partition:
                continue
            self._partitions[topic_id, index] = partition
            self._history.add(_seen(machine.node, image, found, index, partition))
            has_changed |= before is None or before.isr != partition.isr or before.leader != partition.leader
        if has_changed:
            self._look(is_told=True)

    def sample(self) -> None:
        """Note what has changed in the logs of all nodes."""
        self._look(is_told=False)

    def _look(self, *, is_told: bool) -> None:
        """`is_told`: note that the logs were looked at, though nothing has changed in them."""
        before = len(self._history)
        for machine in self._machines:
            logs = self._nodes.get(machine.node)
            if logs is None:
                logs = self._nodes[machine.node] = _NodeLogs(
                    self._history, machine, self._compacted, self.hidden
                )
            logs.look()
        if is_told or len(self._history) > before:
            self._history.add(Sampled(_now()))


class _Watched:
    """One process of a node."""

    def __init__(self, watch: ReplicationWatch, machine: Machine, quorum: MetadataQuorum) -> None:
        self._watch = watch
        self._machine = machine
        self._life = machine.life
        self._led_epoch = -1
        quorum.metadata.subscribe(self._published)
        self._twin_append = quorum.driver.on_append
        quorum.driver.on_append = self._append

    @property
    def _is_alive(self) -> bool:
        return self._machine.is_up and self._machine.life == self._life

    def _published(self, image: ClusterImage, delta: Delta) -> None:
        if self._is_alive:
            self._watch.published(self._machine, image, delta)

    def _append(self, base_offset: int, epoch: int, batches: Sequence[Buffer]) -> None:
        if self._twin_append is not None:
            self._twin_append(base_offset, epoch, batches)
        if self._is_alive and epoch != self._led_epoch:
            self._led_epoch = epoch
            self._watch.led(self._machine, self._life, epoch)


class _NodeLogs:
    """The logs of one node, as they were noted last."""

    def __init__(
        self, history: History, machine: Machine, compacted: set[str], hidden: tuple[str, ...]
    ) -> None:
        self._history = history
        self._machine = machine
        self._disk = DiskLogs(machine.drive.files, compacted, hidden)
        self._noted: dict[Key, tuple[ReplicaSeen, list[BatchKept]]] = {}

    def look(self) -> None:
        running = self._machine.running
        open_replicas: dict[tuple[str, int], Replica] = {}
        if running is not None:
            for replica in running.services.replicas.every:
                open_replicas[replica.topic_id.hex(), replica.partition] = replica
        there: set[Key] = set()
        for (topic, partition), log in self._disk.read().items():
            if not log.topic_id:
                continue  # it is being created
            key = (topic, log.topic_id, partition)
            there.add(key)
            self._note(key, log, open_replicas.get((log.topic_id, partition)))
        for key in [key for key in self._noted if key not in there]:
            del self._noted[key]
            self._history.add(ReplicaGone(_now(), self._machine.node, *key))

    def _note(self, key: Key, log: DiskLog, replica: Replica | None) -> None:
        is_leader, epoch, start = False, UNKNOWN, log.start
        high_watermark = end = UNKNOWN
        if replica is not None and replica.log.ended is None:
            is_leader, epoch = isinstance(replica.role, Leading), replica.leader_epoch
            start, end = replica.log.start_offset, replica.log.end_offset
            high_watermark = replica.log.high_watermark
        noted = self._noted.get(key)
        last, batches = noted if noted is not None else (None, [])
        same = log.end
        if log.batches is not batches:
            same = same_until(batches, log)
        if (
            last is not None
            and same == log.end == last.disk_end
            and (
                last.is_leader,
                last.leader_epoch,
                last.start_offset,
                last.high_watermark,
                last.end_offset,
            )
            == (is_leader, epoch, start, high_watermark, end)
        ):
            return
        new = [each for each in log.batches if each.end_offset > same] if same < log.end else []
        seen = ReplicaSeen(
            _now(),
            self._machine.node,
            *key,
            is_leader,
            epoch,
            start,
            high_watermark,
            end,
            log.end,
            same,
            tuple(new),
        )
        self._noted[key] = seen, log.batches
        self._history.add(seen)


def same_until(old: list[BatchKept], log: DiskLog) -> int:
    """Up to which offset a log has the batches that it had, but for those below its start."""
    skipped = 0
    while skipped < len(old) and old[skipped].end_offset <= log.start:
        skipped += 1
    new, count = log.batches, 0
    most = min(len(old) - skipped, len(new))
    while count < most:
        was, now = old[skipped + count], new[count]
        if was is not now and was != now:
            break
        count += 1
    # where the one that stands here now begins later, the one that stood here is gone as well
    next_old = old[skipped + count].base_offset if skipped + count < len(old) else log.end
    next_new = new[count].base_offset if count < len(new) else log.end
    return min(next_old, next_new)


def _seen(
    node: int, image: ClusterImage, topic: TopicImage, index: int, partition: PartitionImage
) -> PartitionSeen:
    broker = image.brokers.get(partition.leader)
    return PartitionSeen(
        _now(),
        node,
        image.offset,
        topic.name,
        topic.id.hex(),
        index,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.replicas,
        partition.isr,
        partition.elr,
        partition.last_known_elr,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.leader_recovery_state == RECOVERING,
        partition.leader < 0 or (broker is not None and broker.is_active),
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
