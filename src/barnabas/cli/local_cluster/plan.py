"""How a local cluster is laid out: node ids from 1 on, up to three voters, ports in a row, a directory each.

Nodes 1 to 3 are brokers and controllers, the others brokers alone. Clients connect to ports P, P+1, ...; the
controllers are 1000 above. A plan is made once, with the ids of the cluster and of the voters' directories,
and holds for all later runs: the voters stand in the metadata log by then. Nodes that are added later get the
ids and ports behind, and no id is given out twice; they are controllers, too, while there are fewer than
three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from barnabas.broker.storage.format_node import format_node
from barnabas.broker.storage.formatting import SERVER_PROPERTIES, InitialVoter
from barnabas.broker.storage.server_properties import BOOTSTRAP_SERVERS, server_properties
from barnabas.broker.storage.storage import Layout
from barnabas.controller.initial_features import initial_levels
from barnabas.core.clock import Clock
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import Random, random_id
from barnabas.core.settings.listeners import CONTROLLER_PORT_DISTANCE, Listener
from barnabas.core.workers import InlineWorkers
from barnabas.log.checkpoints import uuid_to_text

HOST = "127.0.0.1"
MOST_VOTERS = 3
MOST_REPLICAS = 3
MOST_NODES = CONTROLLER_PORT_DISTANCE  # or the brokers' ports would reach the controllers'
HIGHEST_PORT = 65535 - CONTROLLER_PORT_DISTANCE - MOST_VOTERS + 1
_CONTROLLER = "CONTROLLER"


class NodePlan(NamedTuple):
    """One node of the cluster."""

    node_id: int
    port: int
    directory: Path
    is_voter: bool

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def controller_address(self) -> str | None:
        """Where its controller is, if it has one."""
        return f"{HOST}:{self.port + CONTROLLER_PORT_DISTANCE}" if self.is_voter else None

    @property
    def ports(self) -> tuple[int, ...]:
        """Where it listens."""
        return (self.port, self.port + CONTROLLER_PORT_DISTANCE) if self.is_voter else (self.port,)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("broker", "controller") if self.is_voter else ("broker",)

    @property
    def settings_file(self) -> Path:
        return self.directory / SERVER_PROPERTIES

    @property
    def log_file(self) -> Path:
        return self.directory.with_name(f"{self.directory.name}.log")


class ClusterPlan(NamedTuple):
    """All nodes, in the order of their ids. `voters` are those that the quorum began with."""

    cluster_id: str
    nodes: tuple[NodePlan, ...]
    voters: tuple[InitialVoter, ...]
    next_id: int
    replication: int | None = None  # as many replicas as there are nodes, up to three

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return ",".join(node.address for node in self.nodes)

    @property
    def port(self) -> int:
        """Where node 1 is, or was."""
        return self.nodes[0].port - self.nodes[0].node_id + 1

    @property
    def replicas(self) -> int:
        """How many replicas topics have by default."""
        return self.replication or min(MOST_REPLICAS, len(self.nodes))

    def node(self, node_id: int) -> NodePlan | None:
        """That node, if there is one."""
        return next((node for node in self.nodes if node.node_id == node_id), None)

    def next_node(self, directory: Path) -> NodePlan:
        """The node that would be added."""
        is_voter = sum(node.is_voter for node in self.nodes) < MOST_VOTERS
        port = self.port + self.next_id - 1
        return NodePlan(self.next_id, port, directory / str(self.next_id), is_voter)

    def with_node(self, node: NodePlan) -> ClusterPlan:
        """The plan with one node more."""
        return self._replace(nodes=(*self.nodes, node), next_id=node.node_id + 1)

    def without(self, node_id: int) -> ClusterPlan:
        """The plan with one node less; its id is not given out again."""
        return self._replace(nodes=tuple(node for node in self.nodes if node.node_id != node_id))

    def is_founder(self, node: NodePlan) -> bool:
        """Whether the quorum began with this node."""
        return any(voter.node_id == node.node_id for voter in self.voters)


def new_plan(
    directory: Path, count: int, port: int, random: Random, replication: int | None = None
) -> ClusterPlan:
    """A cluster of so many nodes that never ran."""
    voters = tuple(
        InitialVoter(node_id, HOST, port + node_id - 1 + CONTROLLER_PORT_DISTANCE, random_id(random))
        for node_id in range(1, min(count, MOST_VOTERS) + 1)
    )
    nodes = tuple(
        NodePlan(node_id, port + node_id - 1, directory / str(node_id), node_id <= len(voters))
        for node_id in range(1, count + 1)
    )
    return ClusterPlan(uuid_to_text(random_id(random)), nodes, voters, count + 1, replication)


def run_settings(plan: ClusterPlan, node: NodePlan) -> dict[str, str]:
    """The settings of a node that change with the cluster; the others stand in its file."""
    replicas, in_sync = str(plan.replicas), str(min(2, plan.replicas))
    settings = {
        BOOTSTRAP_SERVERS: _controllers(plan),
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
    }
    if plan.replication is not None:  # else three, or as many as there are brokers then
        settings |= {
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
        }
    if node.is_voter and not plan.is_founder(node):
        settings["controller.quorum.auto.join.enable"] = "true"
    return settings


def _controllers(plan: ClusterPlan) -> str:
    return ",".join(each.controller_address for each in plan.nodes if each.controller_address is not None)


async def format_nodes(
    plan: ClusterPlan, clock: Clock, random: Random, nodes: Sequence[NodePlan] | None = None
) -> None:
    """Format the nodes that are not yet, all or these, and write the settings of each beside its data."""
    workers = InlineWorkers()
    for node in plan.nodes if nodes is None else nodes:
        path = str(node.directory)
        joins = node.is_voter and not plan.is_founder(node)
        await format_node(
            Layout((path,), path),
            lambda path: OsDisk(path, workers, clock),
            node_id=node.node_id,
            cluster_id=plan.cluster_id,
            levels=initial_levels(None, {}),
            voters=() if joins else plan.voters,
            listener=_CONTROLLER,
            clock=clock,
            random=random,
            ignore_formatted=True,
            properties=partial(_properties, plan, node),
        )


def _properties(plan: ClusterPlan, node: NodePlan, places: Mapping[str, str]) -> dict[str, str]:
    controllers = []
    if node.is_voter:
        controllers = [Listener(_CONTROLLER, HOST, node.port + CONTROLLER_PORT_DISTANCE, "PLAINTEXT")]
    return server_properties(
        places,
        node_id=node.node_id,
        listeners=[Listener("PLAINTEXT", HOST, node.port, "PLAINTEXT")],
        controllers=controllers,
        roles=node.roles,
        quorum={BOOTSTRAP_SERVERS: _controllers(plan)},
        brokers=None,  # nodes may be added
    )
