"""Where the nodes of a story are, and what they are told."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from barnabas.cli.local_cluster.plan import HOST, ClusterPlan, new_plan, run_settings
from barnabas.core.random import Random
from barnabas.core.settings.listeners import CONTROLLER_PORT_DISTANCE

__all__ = ["HOST", "settings_of", "story_plan"]

NODES = 3
# failures are noticed sooner than in production, so that a story is short
_QUICK = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
}
_FIRST_PORT, _PORTS = 10_000, 20_000  # below those that systems give to outgoing connections


def story_plan(directory: Path, random: Random) -> ClusterPlan:
    """Three nodes at ports that nothing has."""
    while True:
        port = _FIRST_PORT + random.below(_PORTS)
        plan = new_plan(directory, NODES, port, random)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for at in range(port, port + NODES):
                for each in (at, at + CONTROLLER_PORT_DISTANCE):
                    held.enter_context(socket.socket()).bind((HOST, each))
            return plan


def settings_of(plan: ClusterPlan, node_id: int) -> list[str]:
    """The arguments of a node that stand behind its file."""
    node = plan.node(node_id)
    assert node is not None
    told = {**run_settings(plan, node), **_QUICK}
    return [word for name, text in told.items() for word in ("--set", f"{name}={text}")]
