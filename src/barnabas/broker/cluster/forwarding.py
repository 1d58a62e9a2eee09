"""Requests to the active controller, wherever it is: in this process, or on another node.

While this node is the active controller, a request that it makes for itself goes to the commands, and one of
a client to the handler that a controller's listener would give it to, both without encoding. Otherwise it
goes over the wire (remote_controller.py), and is repeated as Kafka 4.3.0 does it: after NOT_CONTROLLER, a
refused dial or a lost connection it is sent again, at once where another leader is known by then, else after
a pause, until its time is over (NodeToControllerRequestThread). So a request may be carried out twice, and a
client may be told TOPIC_ALREADY_EXISTS of the topic that it has just created. In Kafka a request stays with
the node that it was sent to until that answers; here it also goes to the next leader once one is known.

A change that another node has committed is answered when this node's image has it (`caught_up`), so that a
client that asks this broker next finds what it was told.
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
TIMEOUT_S = 60.0  # of a request of a client, with all attempts
REGISTRATION_TIMEOUT_S = 5.0  # of a controller's registration
# of what clients wait for that have asked for something else: a topic that is created on their way
ON_THE_WAY_TIMEOUT_S = 5.0

_ALTER_PARTITION, _REGISTRATION, _HEARTBEAT, _PRODUCER_IDS, _CONTROLLER_REGISTRATION = 56, 62, 63, 67, 70
_ASSIGN_DIRECTORIES = 73
_TIMEOUTS_S = {
    _ALTER_PARTITION: inf,
    _PRODUCER_IDS: ON_THE_WAY_TIMEOUT_S,
    _CONTROLLER_REGISTRATION: REGISTRATION_TIMEOUT_S,
    # a partition that moves between directories is not written to meanwhile; who has to tell, tries again
    _ASSIGN_DIRECTORIES: ON_THE_WAY_TIMEOUT_S,
}
# CreateTopics, DeleteTopics, AlterConfigs, CreatePartitions, ElectLeaders, IncrementalAlterConfigs,
# AlterPartitionReassignments, AlterClientQuotas, UpdateFeatures, UnregisterBroker
_CHANGES = frozenset((19, 20, 33, 37, 43, 44, 45, 49, 57, 64))
# DescribeQuorum, AddRaftVoter, RemoveRaftVoter: a controller that does not lead calls itself a follower
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
    """The active controller as this node finds it; `own` is None on a node that is no controller.

    `is_active` says whether this node is the active controller; `leader` gives id and address of the node
    that is, None while none is known; `until` waits for something to be true of these. `caught_up` waits
    until this node's image has what is committed by now, but not for long.
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
        """`remote` makes the way to other nodes when it is first needed."""
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
        """Send no more requests to other nodes; those under way fail."""
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
        """The answer of this node; None where it is the active controller no more, and another one may be."""
        try:
            answer = await own.send(request, response, context)
        except NotController:
            if self._is_active():  # it could not write, and still leads
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
        """The answer of the leader; None where it has not given one, or is another now."""
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
        """What the leader answers; None where there is another one before it does."""
        loop = asyncio.get_running_loop()
        ask = loop.create_task(asking)
        move = loop.create_task(_wait(self._until, lambda: self._leader() not in (None, leader)))
        await _first_of(ask, move)
        return None if ask.cancelled() else ask.result()

    async def _pause(self, leader: Leader | None) -> None:
        """Wait a little, or until another leader is known, this node perhaps."""
        loop = asyncio.get_running_loop()

        def has_moved() -> bool:
            return self._is_active() or self._leader() not in (None, leader)

        timer = loop.create_task(self._clock.sleep(RETRY_S))
        move = loop.create_task(_wait(self._until, has_moved))
        await _first_of(timer, move)


async def _first_of(one: asyncio.Task[Any], other: asyncio.Task[None]) -> None:
    """Wait for either, and cancel what is left; raises what the other has raised."""
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
    """Whether a response says anywhere that the node that gave it is not the active controller."""
    told = _NOT_LEADER if response.__key__ in _OF_QUORUM else _NOT_CONTROLLER
    return any(code == told for code in outcomes(response))


def outcomes(response: Struct) -> Iterator[int]:
    """The error code of everything that a response tells of, 0 where it has succeeded.

    A structure with an error speaks for everything in it; one without leaves that to what is in it, if
    anything in it has an error code.
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
