"""Clusters of real processes whose nodes are of two kinds: Apache Kafka 4.3.0 and Barnabas.

All nodes get the same settings, by Kafka's names. Each kind formats its directories with its own tool. The
cluster is a `with` block; none of its processes outlives it.

    with KafkaTools() as tools, MixedCluster(home, {1: KAFKA, 2: KAFKA, 3: BARNABAS}, tools) as cluster:
        cluster.start()
        cluster.add_broker(11, BARNABAS).start()
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from barnabas.core.random import SystemRandom, random_id
from barnabas.log.checkpoints import uuid_to_text
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.describe_quorum import PartitionData
from tests.support import kafka_log
from tests.support.apache_kafka import free_ports
from tests.support.kafka_tools import KafkaTools
from tests.support.mixed_node import DEADLINE_S, KAFKA, ClusterFailed, MixedNode, wait_for
from tests.support.raw_client import RawClient
from tests.support.raw_quorum import describe_quorum

_FETCH_TIMEOUT = timedelta(seconds=30)  # replica.socket.timeout.ms
_BEHIND = 2  # a record comes every half second, and may be on its way

T = TypeVar("T")

# an election and a fetch must not time out because other tests have the processors
PATIENT = {
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "4000",
    "controller.quorum.request.timeout.ms": "4000",
}
SMALL = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "2097152",
}


class MixedCluster:
    """Controllers by id and kind, and brokers that are added to them. Without `tools`, Barnabas formats the
    directories of both kinds, which saves a JVM. `static`: the voters stand in the settings (kraft.version
    0), not in the log. `newcomers` are controllers that may be added later: a node of
    Apache Kafka that looks for the leader asks those in its settings, and no others."""

    def __init__(
        self,
        home: Path,
        controllers: Mapping[int, str],
        tools: KafkaTools | None,
        *,
        static: bool = False,
        settings: Mapping[str, str] | None = None,
        newcomers: Sequence[int] = (),
    ) -> None:
        self.home = home
        self._tools = tools
        self.cluster_id = uuid_to_text(random_id(SystemRandom()))
        self.nodes: dict[int, MixedNode] = {}
        self._static = static
        self._initial = tuple(controllers)
        ids = [*controllers, *newcomers]
        self._ports = dict(zip(ids, free_ports(len(ids)), strict=True))
        self._settings = {**PATIENT, **SMALL, **(settings or {})}
        for node_id, kind in controllers.items():
            self._add(node_id, kind, "controller", self._ports[node_id])
        initial = ",".join(
            f"{each.node_id}@{each.address}:{uuid_to_text(each.directory_id)}" for each in self.nodes.values()
        )
        how = [] if static else ["--initial-controllers", initial]
        for node in self.nodes.values():
            self.format(node, *how)

    def __enter__(self) -> MixedCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()

    # --- nodes

    def add_broker(self, node_id: int, kind: str) -> MixedNode:
        """A broker alone, formatted."""
        node = self._add(node_id, kind, "broker", free_ports(1)[0])
        self.format(node, *([] if self._static else ["--no-initial-controllers"]))
        return node

    def add_controller(self, node_id: int, kind: str, settings: Mapping[str, str] | None = None) -> MixedNode:
        """A controller that is no voter yet, formatted."""
        self._static = False  # the settings of a cluster of static voters would have to name it
        node = self._add(node_id, kind, "controller", self._ports[node_id], settings)
        self.format(node, "--no-initial-controllers")
        return node

    def _add(
        self, node_id: int, kind: str, role: str, port: int, settings: Mapping[str, str] | None = None
    ) -> MixedNode:
        servers = {each: f"127.0.0.1:{port}" for each, port in self._ports.items()}
        if self._static:
            voters = [f"{each}@{at}" for each, at in servers.items() if each in self._initial]
            quorum = {"controller.quorum.voters": ",".join(voters)}
        else:
            quorum = {"controller.quorum.bootstrap.servers": ",".join(servers.values())}
        home = self.home / f"{node_id}-{kind}"
        node = MixedNode(home, node_id, kind, role, port, {**quorum, **self._settings, **(settings or {})})
        self.nodes[node_id] = node
        return node

    def format(self, node: MixedNode, *how: str) -> None:
        """Format its directory, by the tool of its kind where there are tools."""
        arguments = ["--cluster-id", self.cluster_id, "--config", str(node.properties), *how]
        if node.kind == KAFKA and self._tools is not None:
            done = self._tools.run("storage", "format", *arguments)
            status, said = done.status, done.out + done.err
        else:
            command = [sys.executable, "-m", "barnabas", "format", *arguments]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
            status, said = ran.returncode, ran.stdout + ran.stderr
        if status != 0:
            raise ClusterFailed(f"{node} cannot be formatted: {said}")

    @property
    def tools(self) -> KafkaTools:
        if self._tools is None:
            raise ClusterFailed("this cluster has no tools of Apache Kafka")
        return self._tools

    @property
    def controllers(self) -> list[MixedNode]:
        return [each for each in self.nodes.values() if each.role == "controller"]

    # --- the quorum

    def start(self) -> MixedNode:
        """Start all nodes; returns the leader, once there is one."""
        for node in self.nodes.values():
            node.start()
        return self.wait_for_leader()

    def stop(self) -> None:
        """Stop all nodes cleanly: brokers first, and Barnabas's controllers last. One of Apache Kafka that
        leads and is alone waits in vain for another one to take over, and logs it as an error."""
        for node in sorted(
            self.nodes.values(), key=lambda each: (each.role == "controller", each.kind != KAFKA)
        ):
            node.stop()

    def describe(self) -> PartitionData | None:
        """What the leader says of the quorum, None where none of the controllers leads."""
        told = [describe_quorum(each.port) for each in self.controllers if each.is_running]
        leading = [each for each in told if each is not None]
        return max(leading, key=lambda each: each.leader_epoch, default=None)

    def leader(self) -> MixedNode | None:
        """The controller that leads, with everything of its epoch so far committed."""
        told = self.describe()
        return None if told is None or told.high_watermark < 0 else self.nodes[told.leader_id]

    def wait_for_leader(self) -> MixedNode:
        return self.wait_for("a leader of the quorum", self.leader)

    def make_lead(self, node: MixedNode, attempts: int = 5) -> None:
        """Have that voter lead: the others stop, the leader last. When the first of them come back, they lack
        a record that it has, so they have to vote for it."""
        for _ in range(attempts):
            leader = self.settle()
            if leader is node:
                return
            others = [each for each in self.voters() if each not in (node, leader) and each.is_running]
            for each in others:
                each.stop()
            self._write_record(leader, node)
            leader.stop()
            for each in others:
                each.start()
            self.wait_for_leader()
            leader.start()
        raise ClusterFailed(f"{node} was not elected\n{self.diagnosis()}")

    def _write_record(self, leader: MixedNode, follower: MixedNode) -> None:
        """Have the leader write something that the follower gets, committed or not."""
        end_offset = self._end_offset(leader)
        entity = [EntityData(entity_type="client-id", entity_name="mixed")]

        def is_written() -> bool:
            op = OpData(key="producer_byte_rate", value=float(time.time_ns() // 1000), remove=False)
            entry = EntryData(entity=entity, ops=[op])
            client.send(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
            return self._end_offset(follower) > end_offset

        with RawClient(leader.port) as client:
            self.wait_for(f"a record at {follower}", is_written)

    def _end_offset(self, node: MixedNode) -> int:
        """The end of a voter's log, as the leader knows it; where none leads, no end is near enough."""
        told = self.describe()
        ends = {} if told is None else {each.replica_id: each.log_end_offset for each in told.current_voters}
        return ends.get(node.node_id, sys.maxsize)

    def settle(self) -> MixedNode:
        """Wait until all voters that run follow one leader and have its log; returns that leader."""
        return self.wait_for("a quorum with all its voters", self._settled)

    def _settled(self) -> MixedNode | None:
        told = self.describe()
        if told is None or told.high_watermark < 0:
            return None
        running = [each for each in told.current_voters if self.nodes[each.replica_id].is_running]
        has_all = all(each.log_end_offset >= told.high_watermark - _BEHIND for each in running)
        return self.nodes[told.leader_id] if has_all else None

    def voters(self) -> list[MixedNode]:
        """The voters, as the leader knows them."""
        told = self.wait_for("an answer of the leader", self.describe)
        return [self.nodes[each.replica_id] for each in told.current_voters]

    def wait_for(self, what: str, found: Callable[[], T | None]) -> T:
        """What `found` gives at last; ends at once where a node has ended by itself."""

        def look() -> T | None:
            for node in self.nodes.values():
                if node.has_ended:
                    raise ClusterFailed(f"{node} has ended by itself, before {what}\n{node.last_words()}")
            return found()

        return wait_for(what, look, self.diagnosis)

    def diagnosis(self) -> str:
        return "\n".join([f"quorum: {self.describe()}", *(each.last_words() for each in self.nodes.values())])

    def complaints(self) -> list[str]:
        """What nodes of Apache Kafka have logged that is not as it should be."""
        return [
            f"{node}: {each[:2000]}"
            for node in self.nodes.values()
            if node.kind == KAFKA
            for each in kafka_log.complaints(node.log(), self._out_of_reach(node))
        ]

    def _out_of_reach(self, node: MixedNode) -> dict[int, list[tuple[datetime, datetime]]]:
        """When a node could not reach each of the others, or was paused itself for too long, by their ids."""
        paused = [one for one in node.pauses if one.end - one.begin > _FETCH_TIMEOUT]
        return {
            each.node_id: [(one.begin, one.end) for one in (*each.absences, *paused)]
            for each in self.nodes.values()
        }
