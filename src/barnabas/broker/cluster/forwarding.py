"""Requests to the active controller, in this process or on another node.

While this node is the active controller, its own requests go to the commands, and a client's request to the
handler of the controller's listener, both without encoding. Otherwise the request goes over the wire
(remote_controller.py), and is repeated as in Kafka 4.3.0 (NodeToControllerRequestThread): after
NOT_CONTROLLER, a refused dial or a lost connection it is sent again until its timeout, at once if another
leader is known by then, otherwise after a pause. So a request may be carried out twice, and a client may get
TOPIC_ALREADY_EXISTS for a topic that it has just created. In Kafka a request stays with the node that it was
sent to until that answers; here it also goes to the next leader once one is known.

A change that another node has committed is answered when this node's image has it (`caught_up`), so that the
client sees it in its next request to this broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.cluster.controller_channel import ControllerChannel
from barnabas.broker.connections.requests import CONTROLLER_ROUTER, RequestContext
from barnabas.controller.decisions import ControllerNotAnswering, NotController
from barnabas.core.clock import Clock
from barnabas.core.errors import wire_error
from barnabas.core.network import Address
from barnabas.protocol.schema import Message, Struct

if TYPE_CHECKING:
    from barnabas.broker.cluster.remote_controller import RemoteController
    from barnabas.broker.services import ControllerServices
    from barnabas.core.settings.broker_settings import BrokerSettings

M = TypeVar("M", bound=Message)
Leader = tuple[int, Address]

RETRY_S = 0.05
TIMEOUT_S = 60.0  # of a client's request, with all attempts
REGISTRATION_TIMEOUT_S = 5.0  # of a controller's registration
# of a topic that is created while a client waits for another request
ON_THE_WAY_TIMEOUT_S = 5.0

_ALTER_PARTITION, _REGISTRATION, _HEARTBEAT, _PRODUCER_IDS, _CONTROLLER_REGISTRATION = 56, 62, 63, 67, 70
_ASSIGN_DIRECTORIES = 73
_TIMEOUTS_S = {
    _ALTER_PARTITION: inf,
    _PRODUCER_IDS: ON_THE_WAY_TIMEOUT_S,
    _CONTROLLER_REGISTRATION: REGISTRATION_TIMEOUT_S,
    # a partition that moves between directories is not written meanwhile; the sender retries
    _ASSIGN_DIRECTORIES: ON_THE_WAY_TIMEOUT_S,
}
# CreateTopics, DeleteTopics, AlterConfigs, CreatePartitions, ElectLeaders, IncrementalAlterConfigs,
# AlterPartitionReassignments, AlterClientQuotas, UpdateFeatures, UnregisterBroker
_CHANGES = frozenset((19, 20, 33, 37, 43, 44, 45, 49, 57, 64))
# DescribeQuorum, AddRaftVoter, RemoveRaftVoter: a controller that is not the leader answers
# NOT_LEADER_OR_FOLLOWER
_OF_QUORUM = frozenset((55, 80, 81))

_NOT_CONTROLLER = wire_error("NOT_CONTROLLER").code
_NOT_LEADER = wire_error("NOT_LEADER_OR_FOLLOWER").code


class OwnController:
    """The controller of this process; `services` are those of its listeners."""

    def __init__(self, services: ControllerServices) -> None:
        self._services = services

    async def send(
        self,
        request: Message,
        response: type[M],
        context: RequestContext | None = None,
        *,
        timeout_s: float | None = None,
    ) -> M:
        if context is None:
            return await self._services.controller.send(request, response)
        handle = CONTROLLER_ROUTER.handler_of(type(request))
        controllers = self._services.quorum.controllers
        listener = controllers[0].name if controllers else context.listener
        context = context._replace(router=CONTROLLER_ROUTER, listener=listener, is_forwarded=True)
        answer = await handle(request, context, self._services)
        assert isinstance(answer, response)
        return answer


class RoutedController:
    """Sends requests to the active controller; `own` is None on a node without a controller.

    `is_active` says whether this node is the active controller; `leader` returns id and address of the active
    controller, None while it is unknown; `until` waits until a condition on these holds. `caught_up` waits a
    limited time until this node's image has what is committed now.
    """

    def __init__(
        self,
        own: ControllerChannel | None,
        *,
        is_active: Callable[[], bool],
        leader: Callable[[], Leader | None],
        until: Callable[[Callable[[], bool]], Awaitable[None]],
        caught_up: Callable[[], Awaitable[None]],
        remote: Callable[[], RemoteController],
        settings: Callable[[], BrokerSettings],
        clock: Clock,
    ) -> None:
        """`remote` makes the channel to other nodes at its first use."""
        self._own = own
        self._is_active = is_active
        self._leader = leader
        self._until = until
        self._caught_up = caught_up
        self._make_remote = remote
        self._remote: RemoteController | None = None
        self._settings = settings
        self._clock = clock
        self._is_closed = False

    async def send(
        self,
        request: Message,
        response: type[M],
        context: RequestContext | None = None,
        *,
        timeout_s: float | None = None,
    ) -> M:
        deadline = self._clock.monotonic() + (self._timeout_s(request) if timeout_s is None else timeout_s)
        why = "none is known"
        while True:
            if self._own is not None and self._is_active():
                answer = await self._ask_own(self._own, request, response, context)
                if answer is not None:
                    return answer
            if self._is_closed:
                raise NotController("this node is stopping")
            leader = self._leader()
            try:
                answer = await self._ask_other(leader, request, response, context, deadline)
            except NotController as error:
                why = str(error)
            else:
                if answer is not None:
                    return answer
            if self._clock.monotonic() >= deadline:
                name = type(request).__name__.removesuffix("Request")
                raise ControllerNotAnswering(f"no active controller has answered {name} in time: {why}")
            await self._pause(leader)

    def close(self) -> None:
        """Send no more requests to other nodes; those in flight fail."""
        self._is_closed = True
        if self._remote is not None:
            self._remote.close()

    def _timeout_s(self, request: Message) -> float:
        key = request.__key__
        if key in (_REGISTRATION, _HEARTBEAT):
            return self._settings().integer("broker.heartbeat.interval.ms") / 1000
        return _TIMEOUTS_S.get(key, TIMEOUT_S)

    async def _ask_own(
        self, own: ControllerChannel, request: Message, response: type[M], context: RequestContext | None
    ) -> M | None:
        """The response of this node; None if it is no longer the active controller, and another node may
        be."""
        try:
            answer = await own.send(request, response, context)
        except NotController:
            if self._is_active():  # it could not write, but still leads
                raise
            return None
        return answer if self._is_active() or not tells_not_controller(answer) else None

    async def _ask_other(
        self,
        leader: Leader | None,
        request: Message,
        response: type[M],
        context: RequestContext | None,
        deadline: float,
    ) -> M | None:
        """The leader's response; None if there is none, or the leader has changed."""
        remaining_s = deadline - self._clock.monotonic()
        if leader is None or remaining_s <= 0 or self._is_active():
            return None
        if self._remote is None:
            self._remote = self._make_remote()
        asking = self._remote.ask(leader, request, response, context, timeout_s=remaining_s)
        answer = await self._unless_moved(leader, asking)
        if answer is None or tells_not_controller(answer):
            return None
        if request.__key__ in _CHANGES and _has_changed_anything(request, answer):
            await self._caught_up()
        return answer

    async def _unless_moved(self, leader: Leader, asking: Coroutine[Any, Any, M]) -> M | None:
        """The leader's response; None if another leader is known first."""
        loop = asyncio.get_running_loop()
        ask = loop.create_task(asking)
        move = loop.create_task(_wait(self._until, lambda: self._leader() not in (None, leader)))
        await _first_of(ask, move)
        return None if ask.cancelled() else ask.result()

    async def _pause(self, leader: Leader | None) -> None:
        """Wait for the retry pause, or until another leader is known, which may be this node."""
        loop = asyncio.get_running_loop()

        def has_moved() -> bool:
            return self._is_active() or self._leader() not in (None, leader)

        timer = loop.create_task(self._clock.sleep(RETRY_S))
        move = loop.create_task(_wait(self._until, has_moved))
        await _first_of(timer, move)


async def _first_of(one: asyncio.Task[Any], other: asyncio.Task[None]) -> None:
    """Wait for either task, and cancel the other; raises the error of `other`."""
    try:
        await asyncio.wait((one, other), return_when=asyncio.FIRST_COMPLETED)
    finally:
        one.cancel()
        other.cancel()
        await asyncio.gather(one, other, return_exceptions=True)
    if one.cancelled():
        other.result()


async def _wait(until: Callable[[Callable[[], bool]], Awaitable[None]], is_true: Callable[[], bool]) -> None:
    await until(is_true)


def _has_changed_anything(request: Message, response: Message) -> bool:
    return not getattr(request, "validate_only", False) and any(code == 0 for code in outcomes(response))


def tells_not_controller(response: Message) -> bool:
    """Whether a response says anywhere that its node is not the active controller."""
    told = _NOT_LEADER if response.__key__ in _OF_QUORUM else _NOT_CONTROLLER
    return any(code == told for code in outcomes(response))


def outcomes(response: Struct) -> Iterator[int]:
    """The error codes of everything in a response, 0 for success.

    A structure with an error stands for everything in it. A structure without one leaves that to its parts,
    if any of them has an error code.
    """
    own = getattr(response, "error_code", None)
    inner: list[int] = []
    if not own:
        for field in response.__fields__:
            value = getattr(response, field.name)
            if isinstance(value, list) and value and isinstance(value[0], Struct):
                inner += (code for each in value for code in outcomes(each))
    if inner:
        yield from inner
    elif own is not None:
        yield own
