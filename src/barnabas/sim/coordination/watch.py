"""What is seen of coordinators from outside, and becomes history: besides what is seen of all replicated
partitions, in which state groups and transactions were when their coordinator moved.

The states are those that the coordinator before had in its memory when another node first published that it
leads; where its process has ended, those of its end. They are counted, and nothing is judged by them.
"""

from __future__ import annotations

import asyncio

from barnabas.broker.services import Services
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.metadata.parts import PartitionImage
from barnabas.sim.coordination.events import CoordinatorMoved
from barnabas.sim.coordination_scenario import INTERNAL
from barnabas.sim.history import History
from barnabas.sim.machine import Machine
from barnabas.sim.replication.watch import ReplicationWatch
from barnabas.sim.scenario import Scenario
from barnabas.transactions.states import NAMES

States = tuple[str, ...]
Place = tuple[str, int]  # topic, partition


class CoordinationWatch(ReplicationWatch):
    """Watches all nodes of a simulation."""

    hidden = ()

    def __init__(self, history: History, scenario: Scenario) -> None:
        super().__init__(history, scenario)
        self._compacted |= set(INTERNAL)
        self._services: dict[int, Services] = {}  # of the process that runs, or ran last
        self._leaders: dict[Place, int] = {}  # that led last
        self._epochs: dict[Place, int] = {}
        self._states: dict[Place, States] = {}  # when the partition had another leader before

    def sample(self) -> None:
        for machine in self._machines:
            if machine.running is not None:
                self._services[machine.node] = machine.running.services
        super().sample()

    def published(self, machine: Machine, image: ClusterImage, delta: Delta) -> None:
        if image.offset > self._offset:
            for topic_id, index in delta.changed_partitions:
                topic = image.topic_by_id(topic_id)
                if topic is not None and topic.name in INTERNAL:
                    self._changed((topic.name, index), topic.partitions[index])
        super().published(machine, image, delta)

    def _changed(self, place: Place, partition: PartitionImage) -> None:
        if self._epochs.get(place) == partition.leader_epoch:
            return
        self._epochs[place] = partition.leader_epoch
        before = self._leaders.get(place)
        if before is not None and place not in self._states:
            self._states[place] = self._states_of(before, place)
        if partition.leader < 0:
            return
        self._leaders[place] = partition.leader
        states = self._states.pop(place, ())
        if before not in (None, partition.leader):
            now = asyncio.get_running_loop().time()
            moved = CoordinatorMoved(now, partition.leader, *place, partition.leader_epoch, states)
            self._history.add(moved)

    def _states_of(self, node: int, place: Place) -> States:
        services, (topic, partition) = self._services.get(node), place
        if services is None:
            return ()
        if topic == TRANSACTION_STATE and services.transactions_in_use is not None:
            host = services.transactions_in_use._hosts.get(partition)
            shard = None if host is None else host.shard
            return () if shard is None else tuple(NAMES[each.state] for each in shard.transactions.values())
        if topic == CONSUMER_OFFSETS and services.groups_in_use is not None:
            found = services.groups_in_use._hosts.get(partition)
            return () if found is None else tuple(each.state for each in found.shard.groups.values())
        return ()
