"""Connects the measured parts of a node to its metrics endpoint, when it begins to take part in the quorum.

So a node that waits for its quorum has metrics; its broker is added when it serves clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.broker.broker_server import BrokerServer
from barnabas.broker.controller_server import ControllerServer
from barnabas.broker.life import NodeLife, NodeState
from barnabas.broker.metrics.collect import Parts, collect
from barnabas.broker.metrics.elections import ElectionCounts
from barnabas.broker.metrics.endpoint import MetricsEndpoint
from barnabas.broker.metrics.loop_watch import LoopWatch
from barnabas.broker.metrics.requests import RequestTraffic
from barnabas.broker.shared_server import SharedServer
from barnabas.core.errors import InvariantViolation
from barnabas.core.metrics import Page
from barnabas.log.directory import LogDirectory


class NodeMetrics:
    """Counts requests and watches the loop from its creation until the endpoint is closed.

    `directories` are the log directories in use, `offline` the names of those that cannot be used.
    """

    def __init__(
        self,
        endpoint: MetricsEndpoint,
        shared: SharedServer,
        controller: ControllerServer | None,
        life: NodeLife,
        *,
        is_broker: bool,
        directories: Callable[[], Sequence[LogDirectory]],
        offline: Callable[[], Sequence[str]],
    ) -> None:
        traffic = shared.local.traffic = RequestTraffic()
        self._stop = shared.local.stop
        elections = ElectionCounts()
        shared.quorum.metadata.subscribe(elections.published)
        self._parts = Parts(
            shared.local,
            shared.quorum,
            lambda: shared.watch_in_use,
            [] if controller is None else [controller.connections],
            life,
            directories,
            offline,
            shared.settings.of_topic,
            traffic,
            LoopWatch(shared.local.clock),
            elections,
            list,
            is_controller=controller is not None,
            is_broker=is_broker,
        )
        endpoint.serve(self._page, what_is_missing=self._what_is_missing, at_end=self._parts.loop.stop)

    def started(self, broker: BrokerServer | None, start_seconds: float) -> None:
        """The start is complete; a broker serves clients."""
        self._parts = self._parts._replace(start_seconds=start_seconds)
        if broker is not None:
            broker.services.traffic = self._parts.traffic
            connections = [broker.connections, *self._parts.connections]
            self._parts = self._parts._replace(
                broker=broker.services,
                connections=connections,
                fetchers=lambda: [] if broker.fetchers is None else broker.fetchers.in_use,
            )

    async def _page(self) -> Page:
        try:
            return await collect(self._parts)
        except InvariantViolation as error:
            self._stop(error)
            raise

    def _what_is_missing(self) -> str | None:
        """The reason why this node is not ready; None if it is."""
        state, quorum = self._parts.life.state, self._parts.quorum
        if state is NodeState.SERVING:
            return None
        if state is not NodeState.CONTROLLER_UP:
            return f"the node is {state.value}"
        if not quorum.is_attached:
            return "no active controller is heard from"
        return "the broker waits for the metadata" if self._parts.is_broker else None
