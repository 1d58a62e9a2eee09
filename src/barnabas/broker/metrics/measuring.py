"""Puts the parts that measure a node together with its endpoint, once there are clients to be served."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.broker.broker_server import BrokerServer
from barnabas.broker.controller_server import ControllerServer
from barnabas.broker.life import NodeLife, NodeState
from barnabas.broker.metrics.collect import Parts, collect
from barnabas.broker.metrics.endpoint import MetricsEndpoint
from barnabas.broker.metrics.loop_watch import LoopWatch
from barnabas.broker.metrics.requests import RequestTraffic
from barnabas.broker.shared_server import SharedServer
from barnabas.core.errors import InvariantViolation
from barnabas.core.metrics import Page
from barnabas.log.directory import LogDirectory


def measure(
    endpoint: MetricsEndpoint,
    shared: SharedServer,
    controller: ControllerServer | None,
    broker: BrokerServer,
    life: NodeLife,
    *,
    directories: Callable[[], Sequence[LogDirectory]],
    offline: Callable[[], Sequence[str]],
    start_seconds: float,
) -> None:
    """Count requests and watch the loop from now on, until the endpoint is closed.

    `directories` are the log directories in use, `offline` the names of those that cannot be used.
    """
    services = broker.services
    traffic = services.traffic = shared.local.traffic = RequestTraffic()
    connections = [broker.connections]
    if controller is not None:
        connections.append(controller.connections)
    watch = LoopWatch(services.clock)
    parts = Parts(
        services,
        connections,
        life,
        directories,
        offline,
        shared.settings.of_topic,
        traffic,
        watch,
        start_seconds,
    )

    async def page() -> Page:
        try:
            return await collect(parts)
        except InvariantViolation as error:
            services.stop(error)
            raise

    endpoint.serve(page, is_ready=lambda: life.state is NodeState.SERVING, at_end=watch.stop)
