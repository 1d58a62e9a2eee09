"""A broker and its place in the cluster: registered, unfenced, replaced, let go; in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

import pytest

from barnabas.broker.cluster.membership import (
    BrokerSuperseded,
    Membership,
    MembershipTiming,
    NotRegistered,
    RegistrationRefused,
    RegistrationTimedOut,
)
from barnabas.broker.connections.requests import RequestContext
from barnabas.controller.bootstrap import REGISTERED_FEATURES
from barnabas.controller.decisions import ControllerNotAnswering, NotController
from barnabas.core.disk import DiskFull
from barnabas.core.errors import wire_error
from barnabas.core.settings.listeners import Listener
from barnabas.core.settings.sources import resolve
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import BrokerImage, ListenerImage
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from barnabas.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from barnabas.protocol.schema import Message
from barnabas.sim.loop import LoopClock, run

M = TypeVar("M", bound=Message)
Answer = Message | Exception | Callable[[Message], Message]

NODE, EPOCH = 1, 50
INCARNATION, OTHER = UUID(int=1), UUID(int=2)
FIRST, SECOND = UUID(int=101), UUID(int=102)
HEARTBEAT, REGISTRATION, ASSIGN = 63, 62, 73
DUPLICATE, STALE = "DUPLICATE_BROKER_REGISTRATION", "STALE_BROKER_EPOCH"


def registered(error: str = "NONE", epoch: int = EPOCH) -> BrokerRegistrationResponse:
    code = wire_error(error).code
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=code, broker_epoch=-1 if code else epoch)


def alive(
    error: str = "NONE", *, fenced: bool = False, caught_up: bool = True, goes: bool = False
) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=wire_error(error).code,
        is_caught_up=caught_up,
        is_fenced=fenced,
        should_shut_down=goes,
    )


def broker_image(
    broker_id: int = NODE,
    epoch: int = EPOCH,
    incarnation: UUID = INCARNATION,
    *,
    log_dirs: tuple[bytes, ...] = (FIRST.bytes,),
) -> BrokerImage:
    endpoints = {"PLAINTEXT": ListenerImage("elsewhere", 9092, 0)}
    return BrokerImage(broker_id, epoch, incarnation.bytes, endpoints, {}, None, False, False, log_dirs, None)


class Channel:
    """The active controller: answers by a script, the last answer for ever."""

    def __init__(self) -> None:
        self.scripts: dict[int, list[Answer]] = {REGISTRATION: [registered()], HEARTBEAT: [alive()]}
        self.asked: list[tuple[float, Message]] = []

    async def send(
        self,
        request: Message,
        response: type[M],
        context: RequestContext | None = None,
        *,
        timeout_s: float | None = None,
    ) -> M:
        self.asked.append((asyncio.get_running_loop().time(), request))
        script = self.scripts[request.__key__]
        answer = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, Message):
            answer = answer(request)
        assert isinstance(answer, response)
        return answer

    def at(self, key: int) -> list[float]:
        """When requests of that kind came."""
        return [round(at, 3) for at, request in self.asked if request.__key__ == key]

    @property
    def heartbeats(self) -> list[BrokerHeartbeatRequest]:
        return [request for _, request in self.asked if isinstance(request, BrokerHeartbeatRequest)]

    @property
    def registrations(self) -> list[BrokerRegistrationRequest]:
        return [request for _, request in self.asked if isinstance(request, BrokerRegistrationRequest)]


class Stage:
    """One broker, its controller, and the metadata that it has replayed."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.image = ClusterImage(offset=EPOCH + 1)
        self.failures: list[BaseException] = []
        self.is_led = True
        self.membership = Membership(
            NODE,
            self.channel,
            image=lambda: self.image,
            clock=LoopClock(),
            timing=MembershipTiming(),
            fail=self.failures.append,
            is_led=lambda: self.is_led,
        )

    def script(self, key: int, *answers: Answer) -> None:
        self.channel.scripts[key] = list(answers)

    def show(self, *brokers: BrokerImage, offset: int = EPOCH + 1) -> None:
        """The metadata as it is replayed now."""
        self.image = ClusterImage(offset=offset, brokers={each.id: each for each in brokers})

    async def register(self) -> None:
        await self.membership.register(
            cluster_id="c",
            incarnation_id=INCARNATION,
            directory_ids=[SECOND, FIRST],
            listeners=[Listener("OUTSIDE", "h", 9092, "SASL_SSL")],
            rack="r",
            previous_epoch=None,
        )

    async def become_active(self) -> asyncio.Task[None]:
        await self.register()
        self.show(broker_image())
        await self.membership.activate()
        return asyncio.ensure_future(self.membership.run())


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scene(Stage())
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(main())


# ---- registration ----------------------------------------------------------------------------------------


def test_a_broker_tells_what_it_is() -> None:
    async def scene(stage: Stage) -> None:
        await stage.register()
        assert stage.membership.epoch == EPOCH
        (request,) = stage.channel.registrations
        assert (request.broker_id, request.rack, request.previous_broker_epoch) == (NODE, "r", -1)
        assert request.log_dirs == [FIRST.bytes, SECOND.bytes]
        (listener,) = request.listeners
        assert (listener.name, listener.host, listener.port, listener.security_protocol) == (
            "OUTSIDE",
            "h",
            9092,
            3,
        )
        ranges = {
            each.name: (each.min_supported_version, each.max_supported_version) for each in request.features
        }
        assert ranges == REGISTERED_FEATURES

    play(scene)


@pytest.mark.parametrize(
    "answer",
    [
        registered(DUPLICATE),
        registered("KAFKA_STORAGE_ERROR"),
        NotController("it is another"),
        ControllerNotAnswering("nobody is there"),
    ],
    ids=["duplicate", "disk of the controller", "not controller", "no answer"],
)
def test_registration_is_repeated_until_the_broker_is_let_in(answer: Answer) -> None:
    async def scene(stage: Stage) -> None:
        stage.script(REGISTRATION, *[answer] * 7, registered())
        await stage.register()
        assert stage.channel.at(REGISTRATION) == [0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 5.1, 7.1]
        assert stage.membership.epoch == EPOCH

    play(scene)


def test_registration_is_given_up_when_its_time_is_over() -> None:
    async def scene(stage: Stage) -> None:
        stage.script(REGISTRATION, registered(DUPLICATE))
        stage.show(broker_image(incarnation=OTHER))
        with pytest.raises(
            RegistrationTimedOut, match=f"within 60 s .*{DUPLICATE}: another broker 1 "
        ) as told:
            await stage.register()
        assert "is registered at elsewhere:9092, and may be running; every node needs an id" in str(
            told.value
        )
        assert 57 < stage.channel.at(REGISTRATION)[-1] < 60
        assert stage.membership.epoch == -1

    play(scene)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("INCONSISTENT_CLUSTER_ID", ": its directories were formatted for another cluster"),
        ("INVALID_REGISTRATION", ": one of its directories has the id of a directory of another broker"),
        ("UNSUPPORTED_VERSION", ": the cluster has a feature at a level that this version does not support"),
        ("UNKNOWN_SERVER_ERROR", "$"),
    ],
)
def test_a_registration_that_cannot_succeed_is_not_repeated(error: str, reason: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.script(REGISTRATION, registered(error))
        with pytest.raises(RegistrationRefused, match=f"broker 1 could not register: {error}{reason}"):
            await stage.register()
        assert len(stage.channel.asked) == 1

    play(scene)


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_disk_of_the_controller_in_the_same_process_is_not_waited_for(is_wrapped: bool) -> None:
    async def scene(stage: Stage) -> None:
        error: Exception = DiskFull("no room")
        if is_wrapped:
            wrapped = NotController("it could not be committed")
            wrapped.__cause__ = error
            error = wrapped
        stage.script(REGISTRATION, error)
        with pytest.raises(DiskFull):
            await stage.register()
        assert len(stage.channel.asked) == 1

    play(scene)


def test_times_come_from_the_settings() -> None:
    settings = resolve(
        flags={
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "6000",
            "initial.broker.registration.timeout.ms": "7000",
        }
    )
    assert MembershipTiming.of(settings) == MembershipTiming(0.5, 6.0, 7.0)


# ---- heartbeats ------------------------------------------------------------------------------------------


def test_a_broker_is_active_once_it_has_replayed_its_registration() -> None:
    async def scene(stage: Stage) -> None:
        def answer(request: Message) -> Message:
            assert isinstance(request, BrokerHeartbeatRequest)
            is_there = request.current_metadata_offset >= EPOCH
            return alive(fenced=not is_there, caught_up=is_there)

        stage.show(offset=EPOCH)
        stage.script(HEARTBEAT, answer)
        await stage.register()
        activating = asyncio.ensure_future(stage.membership.activate())
        await asyncio.sleep(0.045)
        assert not activating.done()
        stage.show(broker_image())
        await activating
        assert stage.channel.at(HEARTBEAT) == [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]
        assert [each.current_metadata_offset for each in stage.channel.heartbeats] == [
            *[EPOCH - 1] * 5,
            EPOCH,
        ]
        assert not any(each.want_fence or each.want_shut_down for each in stage.channel.heartbeats)

    play(scene)


def test_heartbeats_go_on_whatever_is_answered() -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        stage.script(
            HEARTBEAT,
            alive(),
            NotController("it is another"),
            alive("UNKNOWN_SERVER_ERROR"),
            alive(STALE),
            ControllerNotAnswering("nobody is there"),
            DiskFull("no room"),
            alive(fenced=True),
            alive(),
        )
        await asyncio.sleep(21)
        assert stage.channel.at(HEARTBEAT) == [0.0, *[2.0 * each for each in range(1, 11)]]
        assert {each.broker_epoch for each in stage.channel.heartbeats} == {EPOCH}
        assert stage.failures == []

    play(scene)


def test_trouble_is_logged_once_and_its_end_as_well(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        stage.script(HEARTBEAT, *[NotController("it is another")] * 3, alive(STALE), alive())
        await asyncio.sleep(13)

    with caplog.at_level(logging.INFO, "barnabas.cluster"):
        play(scene)
    assert [each.getMessage().rpartition(": ")[2] for each in caplog.records] == [
        "it is another",
        f"{STALE} for a heartbeat",
        "in contact again",
    ]


def test_a_new_active_controller_gets_a_heartbeat_at_once() -> None:
    async def scene(stage: Stage) -> None:
        led = asyncio.Queue[int]()

        async def led_after(epoch: int) -> int:
            if (next_epoch := await led.get()) < 0:
                raise DiskFull("the metadata log has failed")
            return next_epoch

        await stage.become_active()
        greeting = asyncio.ensure_future(stage.membership.greet(6, led_after))
        await asyncio.sleep(1.5)
        stage.script(HEARTBEAT, ControllerNotAnswering("nobody is there"), alive())
        led.put_nowait(7)
        await asyncio.sleep(1)
        led.put_nowait(8)
        await asyncio.sleep(0.1)
        assert stage.channel.at(HEARTBEAT) == [0.0, 1.5, 2.0, 2.5]
        led.put_nowait(-1)  # this node's part in the quorum has ended
        await greeting

    play(scene)


def test_one_heartbeat_at_a_time() -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        under_way, most = 0, 0
        send = stage.channel.send

        async def slowly(*arguments: Any, **named: Any) -> Any:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(1.5)
            under_way -= 1
            return await send(*arguments, **named)

        stage.channel.send = slowly  # type: ignore[method-assign]
        await asyncio.sleep(2.1)
        await stage.membership.tell_failed(FIRST)
        await stage.membership.tell_cordoned([SECOND])
        assert most == 1

    play(scene)


def test_directories_are_told_with_every_heartbeat() -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        first = stage.channel.heartbeats[-1]
        assert (first.offline_log_dirs, first.cordoned_log_dirs) == ([], None)
        stage.script(HEARTBEAT, NotController("it is another"), alive())
        await stage.membership.tell_failed(FIRST)
        await stage.membership.tell_cordoned([SECOND, FIRST])
        await asyncio.sleep(5)
        last = stage.channel.heartbeats[-1]
        assert last.offline_log_dirs == [FIRST.bytes]
        assert last.cordoned_log_dirs == [FIRST.bytes, SECOND.bytes]

    play(scene)


def test_directories_are_registered_when_the_metadata_can_tell_of_them() -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        bare = broker_image(log_dirs=())
        stage.image = ClusterImage(offset=EPOCH + 1, brokers={NODE: bare}, features={"metadata.version": 16})
        await asyncio.sleep(5)
        assert len(stage.channel.registrations) == 1
        stage.image = stage.image._replace(features={"metadata.version": 17})
        await asyncio.sleep(2)
        assert [each.incarnation_id for each in stage.channel.registrations] == [INCARNATION.bytes] * 2
        stage.show(broker_image())
        await asyncio.sleep(10)
        assert len(stage.channel.registrations) == 2

    play(scene)


def test_a_refused_second_registration_does_not_stop_the_broker() -> None:
    async def scene(stage: Stage) -> None:
        running = await stage.become_active()
        stage.script(REGISTRATION, registered("INVALID_REGISTRATION"))
        stage.show(broker_image(log_dirs=()))
        await asyncio.sleep(11)
        assert not running.done()
        assert stage.failures == []
        assert len(stage.channel.heartbeats) == 6

    play(scene)


# ---- replaced by another ---------------------------------------------------------------------------------


def test_a_broker_that_was_replaced_stops_and_does_not_register_again() -> None:
    async def scene(stage: Stage) -> None:
        running = await stage.become_active()
        stage.script(HEARTBEAT, alive(STALE))
        await asyncio.sleep(10)
        assert stage.failures == []  # the metadata here does not say why
        stage.show(broker_image(epoch=EPOCH + 9, incarnation=OTHER))
        await asyncio.sleep(2)
        (error,) = stage.failures
        assert isinstance(error, BrokerSuperseded)
        assert "another broker has registered as node 1, at elsewhere:9092: this one" in str(error)
        await running
        await asyncio.sleep(30)
        assert len(stage.channel.registrations) == 1

    play(scene)


def test_a_start_that_was_overtaken_ends_by_the_same_error() -> None:
    async def scene(stage: Stage) -> None:
        stage.script(HEARTBEAT, alive(STALE))
        await stage.register()
        stage.show(broker_image(epoch=EPOCH + 9, incarnation=OTHER))
        with pytest.raises(BrokerSuperseded):
            await stage.membership.activate()

    play(scene)


@pytest.mark.parametrize(
    "shown",
    [
        [],  # unregistered
        [broker_image(epoch=EPOCH - 9, incarnation=OTHER)],  # this registration is not replayed yet
        [broker_image(epoch=EPOCH)],
    ],
    ids=["unregistered", "not replayed", "this one"],
)
def test_other_reasons_for_a_stale_epoch_do_not_stop_a_broker(shown: list[BrokerImage]) -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        stage.script(HEARTBEAT, alive(STALE))
        stage.show(*shown)
        await asyncio.sleep(101)
        assert stage.failures == []
        assert len(stage.channel.heartbeats) == 51

    play(scene)


# ---- the end ---------------------------------------------------------------------------------------------


def test_a_broker_that_stops_waits_until_it_may() -> None:
    async def scene(stage: Stage) -> None:
        running = await stage.become_active()
        stage.show(broker_image(), broker_image(2, 40, OTHER))
        stage.script(HEARTBEAT, *[alive()] * 3, alive(fenced=True, goes=True))
        await stage.membership.leave()
        assert stage.channel.at(HEARTBEAT)[1:] == [0.0, 0.05, 2.05, 4.05]
        assert all(each.want_shut_down for each in stage.channel.heartbeats[1:])
        await asyncio.sleep(10)
        assert running.done()  # nothing unfences it any more
        assert len(stage.channel.heartbeats) == 5

    play(scene)


def test_the_only_broker_waits_for_nobody() -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        stage.script(HEARTBEAT, alive(), alive(fenced=True, goes=True))
        await stage.membership.leave()
        assert stage.channel.at(HEARTBEAT)[1:] == [0.0, 0.0]

    play(scene)


@pytest.mark.parametrize(("is_led", "least", "most"), [(True, 6, 9), (False, 0, 2)])
def test_a_stop_does_not_wait_for_controllers_that_do_not_answer(
    is_led: bool, least: float, most: float
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        stage.is_led = is_led
        stage.show(broker_image(), broker_image(2, 40, OTHER))
        stage.script(HEARTBEAT, ControllerNotAnswering("nobody is there"))
        await stage.membership.leave()
        assert least <= asyncio.get_running_loop().time() <= most

    play(scene)


def test_a_stop_is_not_delayed_for_ever() -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        stage.show(broker_image(), broker_image(2, 40, OTHER))
        await stage.membership.leave()
        assert 295 < asyncio.get_running_loop().time() <= 300

    play(scene)


@pytest.mark.parametrize("shown", [[], [broker_image(epoch=EPOCH + 9, incarnation=OTHER)]])
def test_a_broker_that_is_registered_no_longer_just_stops(shown: list[BrokerImage]) -> None:
    async def scene(stage: Stage) -> None:
        await stage.become_active()
        stage.show(*shown)
        stage.script(HEARTBEAT, alive(STALE))
        await stage.membership.leave()
        assert asyncio.get_running_loop().time() < 0.01

    play(scene)


# ---- what else is asked ----------------------------------------------------------------------------------


def test_where_partitions_are_is_told_as_soon_as_a_controller_answers() -> None:
    told = AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=0, directories=[])

    async def scene(stage: Stage) -> None:
        await stage.become_active()
        nobody = ControllerNotAnswering("nobody is there")
        stage.channel.scripts[ASSIGN] = [nobody, NotController("it is another"), told]
        await stage.membership.assign_surely({(b"t" * 16, 0): FIRST})
        assert stage.channel.at(ASSIGN) == [0.0, 2.0, 4.0]
        stage.channel.scripts[ASSIGN] = [nobody]
        telling = asyncio.ensure_future(stage.membership.assign_surely({(b"t" * 16, 0): FIRST}))
        await asyncio.sleep(100)
        assert not telling.done()
        await stage.membership.leave()
        await asyncio.wait_for(telling, 5)

    play(scene)


def test_who_is_not_registered_gets_no_producer_ids() -> None:
    async def scene(stage: Stage) -> None:
        stage.channel.scripts[67] = [
            AllocateProducerIdsResponse(
                throttle_time_ms=0,
                error_code=wire_error(STALE).code,
                producer_id_start=-1,
                producer_id_len=0,
            )
        ]
        with pytest.raises(NotRegistered):
            await stage.membership.allocate_producer_ids()
        stage.show(broker_image())
        with pytest.raises(RegistrationRefused, match=STALE) as caught:
            await stage.membership.allocate_producer_ids()
        assert not isinstance(caught.value, NotRegistered)

    play(scene)
