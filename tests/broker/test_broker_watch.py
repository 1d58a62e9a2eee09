"""The active controller and brokers that fall silent, die, and come back: in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest

from barnabas.broker.cluster.broker_commands import BrokerCommands
from barnabas.broker.cluster.broker_watch import BrokerWatch
from barnabas.broker.connections.requests import ClientConnection
from barnabas.broker.quorum.controller import ActiveController
from barnabas.controller.configs import alter_config
from barnabas.controller.contacts import BrokerContacts, BrokerLife
from barnabas.controller.decisions import Decision, NotController
from barnabas.controller.elections import ElectionDefaults
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import Listener
from barnabas.metadata.image import TOPIC_RESOURCE, ClusterImage
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.sim.loop import LoopClock, run
from tests.controller.clusters import CLUSTER_ID, Cluster, registration, topic

R = TypeVar("R")

SESSION_S = 9.0
PORT = 9092
CONTROLLER = "controller"
UNCLEAN = {"unclean.leader.election.enable": "true"}


class Active:
    """Stands for the active controller: everything is committed at once, or nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.contacts = BrokerContacts()
        self.is_active = True
        self.kraft_version = 1
        self.changed_at: list[tuple[float, int]] = []  # when it wrote, and how many records

    @property
    def decided(self) -> ClusterImage:
        return self.cluster.image

    @property
    def next_offset(self) -> int:
        return len(self.cluster.log)

    async def submit(self, command: Callable[[ClusterImage], Decision[R]]) -> R:
        if not self.is_active:
            raise NotController("it is another")
        decision = command(self.decided)
        if decision.records:
            self.changed_at.append((now(), len(decision.records)))
        return self.cluster.carry_out(decision)


def now() -> float:
    return asyncio.get_running_loop().time()


class Stage:
    """A controller that watches brokers, each on a host of its own."""

    def __init__(self, brokers: int = 3, *, by_socket: bool = True, has_elr: bool = True) -> None:
        self.network = MemoryNetwork()
        self.clock = LoopClock()
        self.former_leader = (-1, 0.0)
        self.cluster = Cluster(has_elr=has_elr)
        self.active = Active(self.cluster)
        active = cast("ActiveController", self.active)
        self.watch = BrokerWatch(
            active,
            self.network.host(CONTROLLER),
            self.clock,
            node_id=100,
            former_leader=lambda: self.former_leader,
            inter_broker_listener="PLAINTEXT",
            session_s=SESSION_S,
            by_socket=by_socket,
            election_defaults=ElectionDefaults,
        )
        self.commands = BrokerCommands(
            active,
            self.clock,
            cluster_id=CLUSTER_ID,
            watch=lambda: self.watch,
            election_defaults=ElectionDefaults,
        )
        self.listeners: dict[int, Listener] = {}
        self.connections: dict[int, ClientConnection] = {}
        self.beating: dict[int, asyncio.Task[None]] = {}
        self.running: asyncio.Task[None] | None = None
        self._count = brokers

    async def begin(self) -> None:
        """Start all brokers, and then the watch."""
        for broker_id in range(1, self._count + 1):
            await self.start(broker_id)
        self.activate()
        await asyncio.sleep(0.5)
        for broker_id in self.connections:
            await self.beat(broker_id)

    def activate(self) -> None:
        """This controller becomes the active one, and knows nothing."""
        self.active.contacts = BrokerContacts()
        self.running = asyncio.ensure_future(self.watch.run())

    async def end(self) -> None:
        tasks = [each for each in (self.running, *self.beating.values()) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def start(self, broker_id: int, *, incarnation: int = 1, port: int = PORT) -> str:
        """A broker that listens, registers and, if it may, sends heartbeats."""
        if broker_id not in self.listeners:
            host = self.network.host(f"b{broker_id}")
            self.listeners[broker_id] = await host.listen("", port, lambda connection: None)
        error = await self.register(broker_id, incarnation=incarnation, port=port)
        if error == "NONE":
            self.connections[broker_id] = ClientConnection()
            assert not (await self.beat(broker_id)).is_fenced
            self.beating[broker_id] = asyncio.ensure_future(self._beat_on(broker_id))
        return error

    async def register(self, broker_id: int, *, incarnation: int, port: int = PORT) -> str:
        known = self.cluster.image.brokers.get(broker_id)
        request = registration(
            broker_id, incarnation=incarnation, port=port, previous_epoch=-1 if known is None else known.epoch
        )
        request.listeners[0].host = f"b{broker_id}"
        response = await self.commands.register(request, ClientConnection())
        return WIRE_ERRORS[response.error_code].name

    async def beat(self, broker_id: int) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.life(broker_id).epoch,
            current_metadata_offset=len(self.cluster.log),
            want_fence=False,
            want_shut_down=False,
        )
        return await self.commands.heartbeat(request, self.connections[broker_id])

    async def _beat_on(self, broker_id: int) -> None:
        while True:
            await asyncio.sleep(2.0)
            if not self.connections[broker_id].is_open:
                self.connections[broker_id] = ClientConnection()  # as Kafka does, with the next heartbeat
            await self.beat(broker_id)

    def pause(self, broker_id: int) -> None:
        """Its process stops where it is: connections stay open, and its kernel accepts others."""
        self.beating[broker_id].cancel()

    def kill(self, *broker_ids: int) -> None:
        """Their processes die."""
        for broker_id in broker_ids:
            self.pause(broker_id)
            self.listeners.pop(broker_id).close()
        for broker_id in broker_ids:
            self.connections[broker_id].has_closed()

    def life(self, broker_id: int) -> BrokerLife:
        return BrokerLife.of(self.cluster.image.brokers[broker_id])

    def is_fenced(self, broker_id: int) -> bool:
        return self.cluster.image.brokers[broker_id].fenced

    async def fenced_after(self, broker_id: int) -> float:
        """How long from now until it is fenced."""
        began = now()
        while not self.is_fenced(broker_id):
            await asyncio.sleep(0.01)
            assert now() < began + 60
        return now() - began


def on(stage: Stage, scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            await scene(stage)
        finally:
            await stage.end()

    run(main())


# ---- silence ---------------------------------------------------------------------------------------------


def test_brokers_that_send_heartbeats_stay() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        await asyncio.sleep(100)
        assert not any(stage.is_fenced(each) for each in (1, 2, 3))

    on(Stage(), scene)


def test_a_paused_broker_is_fenced_when_its_session_is_over_and_returns_with_its_next_heartbeat() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        await stage.beat(2)
        stage.pause(2)
        assert 9.0 < await stage.fenced_after(2) < 10.2
        assert not stage.is_fenced(1)
        assert not (await stage.beat(2)).is_fenced

    on(Stage(), scene)


def test_silent_brokers_are_fenced_one_after_another() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        for broker_id in (1, 2, 3):
            stage.pause(broker_id)
        await asyncio.sleep(12)
        assert all(stage.is_fenced(each) for each in (1, 2, 3))
        fenced_at = [at for at, _ in stage.active.changed_at][-3:]
        assert fenced_at[0] < fenced_at[1] < fenced_at[2] < fenced_at[0] + 0.1

    on(Stage(), scene)


def test_a_new_controller_grants_each_broker_a_whole_session() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.pause(1)
        await asyncio.sleep(8)
        assert stage.running is not None
        stage.running.cancel()
        stage.activate()
        assert 9.0 < await stage.fenced_after(1) < 10.2

    on(Stage(), scene)


@pytest.mark.parametrize(("silent_s", "counted_s"), [(2.0, 2.0), (8.0, 3.0)])
def test_a_broker_beside_the_former_leader_is_silent_since_that_was_heard_last(
    silent_s: float, counted_s: float
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.pause(1)
        stage.pause(2)
        stage.former_leader = (1, now())
        await asyncio.sleep(silent_s)
        assert stage.running is not None
        stage.running.cancel()
        stage.activate()
        assert 9.0 - counted_s < await stage.fenced_after(1) < 10.2 - counted_s
        assert await stage.fenced_after(2) > 0

    on(Stage(), scene)


def test_a_broker_beside_a_former_leader_that_lives_stays() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.former_leader = (1, now() - 100)
        assert stage.running is not None
        stage.running.cancel()
        stage.activate()
        await asyncio.sleep(30)
        assert not stage.is_fenced(1)

    on(Stage(), scene)


def test_the_watch_goes_on_when_a_fencing_could_not_be_committed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.pause(1)
        stage.active.is_active = False
        for broker_id in (2, 3):
            stage.pause(broker_id)
        await asyncio.sleep(20)
        assert not stage.is_fenced(1)
        stage.active.is_active = True
        assert await stage.fenced_after(1) < 1.2

    on(Stage(), scene)


def test_what_goes_wrong_unexpectedly_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()

        async def break_down(broker: BrokerLife) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(stage.watch, "_is_found_dead", break_down)
        stage.connections[1].has_closed()
        assert stage.running is not None
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(stage.running, 10)

    on(Stage(), scene)


# ---- deaths ----------------------------------------------------------------------------------------------


def test_a_dead_broker_is_fenced_at_once_and_another_one_leads() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.cluster.create(topic("t", assigned={0: [1, 2]}))
        stage.kill(1)
        assert await stage.fenced_after(1) < 0.5
        assert stage.cluster.partition("t").leader == 2
        await asyncio.sleep(30)
        assert not stage.is_fenced(2)

    on(Stage(), scene)


def test_it_is_not_noticed_by_the_socket_where_that_is_turned_off() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        await stage.beat(1)
        stage.kill(1)
        assert 9.0 < await stage.fenced_after(1) < 10.2

    on(Stage(by_socket=False), scene)


def test_a_closed_connection_alone_is_no_proof() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        for _ in range(20):
            stage.connections[1].has_closed()
            await asyncio.sleep(2.1)
            assert not stage.is_fenced(1)

    on(Stage(), scene)


def test_the_session_decides_where_nobody_answers_a_dial() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        await stage.beat(1)
        stage.network.partition([CONTROLLER], ["b1"])
        stage.kill(1)
        assert 9.0 < await stage.fenced_after(1) < 10.2

    on(Stage(), scene)


def test_a_dial_is_repeated_while_a_process_is_being_killed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.pause(1)
        stage.connections[1].has_closed()
        await asyncio.sleep(0.04)
        stage.listeners.pop(1).close()
        assert await stage.fenced_after(1) < 0.5

    on(Stage(), scene)


def test_a_broker_that_listens_again_at_once_is_not_fenced() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.kill(1)
        await asyncio.sleep(0.05)
        host = stage.network.host("b1")
        stage.listeners[1] = await host.listen("", PORT, lambda connection: None)
        await asyncio.sleep(2)
        assert not stage.is_fenced(1)

    on(Stage(), scene)


def test_an_older_connection_of_a_broker_says_nothing() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        older = stage.connections[1]
        stage.connections[1] = ClientConnection()
        await stage.beat(1)
        stage.listeners.pop(1).close()
        older.has_closed()
        await asyncio.sleep(1)
        assert not stage.is_fenced(1)

    on(Stage(), scene)


@pytest.mark.parametrize(
    ("brokers", "dead", "is_fenced"), [(3, 2, False), (4, 2, True), (5, 3, False), (1, 1, False)]
)
def test_most_brokers_that_vanish_at_once_are_left_to_their_sessions(
    brokers: int, dead: int, is_fenced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        victims = range(1, dead + 1)
        stage.kill(*victims)
        await asyncio.sleep(5)
        assert [stage.is_fenced(each) for each in victims] == [is_fenced] * dead
        assert ("with most others" in caplog.text) is not is_fenced
        await asyncio.sleep(6)
        assert all(stage.is_fenced(each) for each in victims)
        assert not any(stage.is_fenced(each) for each in range(dead + 1, brokers + 1))

    with caplog.at_level(logging.WARNING):
        on(Stage(brokers), scene)


def test_a_controller_that_becomes_active_finds_those_that_died_before() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        assert stage.running is not None
        stage.running.cancel()
        await asyncio.sleep(0.1)
        stage.kill(2)
        await asyncio.sleep(0.1)
        stage.activate()
        assert await stage.fenced_after(2) < 0.5
        await asyncio.sleep(20)
        assert not any(stage.is_fenced(each) for each in (1, 3))

    on(Stage(), scene)


def test_a_broker_that_dies_before_its_first_heartbeat_to_a_new_controller_is_found() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        assert stage.running is not None
        stage.running.cancel()
        stage.pause(2)  # it has yet to hear of the new controller
        stage.activate()
        await asyncio.sleep(1.0)
        stage.kill(2)
        assert await stage.fenced_after(2) < 2.0
        await asyncio.sleep(20)
        assert not any(stage.is_fenced(each) for each in (1, 3))

    on(Stage(), scene)


def test_a_run_that_is_ended_late_does_not_disturb_the_next_one() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        assert stage.running is not None
        stage.running.cancel()
        stage.activate()  # while the first has yet to end
        await stage.beat(1)
        await asyncio.sleep(0.1)
        stage.kill(1)
        assert await stage.fenced_after(1) < 0.5

    on(Stage(), scene)


def test_a_broker_whose_listener_cannot_be_dialled_is_fenced_by_mistake_once() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.listeners.pop(1).close()  # as if it advertised an address of another network
        stage.connections[1].has_closed()
        assert await stage.fenced_after(1) < 0.5
        await asyncio.sleep(2)
        assert not stage.is_fenced(1)
        stage.connections[1].has_closed()
        await asyncio.sleep(1)
        assert not stage.is_fenced(1)

    on(Stage(), scene)


@pytest.mark.parametrize("has_elr", [False, True])
def test_nobody_leads_uncleanly_before_the_session_of_the_dead_would_be_over(has_elr: bool) -> None:
    async def scene(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.begin()
        cluster.create(topic("t", assigned={0: [1, 2]}))
        cluster.beat(2, want_fence=True)
        cluster.beat(2)
        cluster.carry_out(alter_config(cluster.image, TOPIC_RESOURCE, "t", UNCLEAN, lambda new: None))
        assert cluster.partition("t").isr == (1,)
        await stage.beat(1)
        began = now()
        stage.kill(1)
        await stage.fenced_after(1)
        while cluster.partition("t").leader < 0:
            await asyncio.sleep(0.01)
            assert now() < began + 60
        assert 9.0 < now() - began < 10.2
        assert (cluster.partition("t").leader, cluster.partition("t").leader_recovery_state) == (2, 1)

    on(Stage(has_elr=has_elr), scene)


def test_nobody_leads_uncleanly_when_another_controller_takes_over_meanwhile() -> None:
    """The next one does not know that the broker was found dead, and elects when it must be."""

    async def scene(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.begin()
        cluster.create(topic("t", assigned={0: [1, 2]}))
        cluster.beat(2, want_fence=True)
        cluster.beat(2)
        cluster.carry_out(alter_config(cluster.image, TOPIC_RESOURCE, "t", UNCLEAN, lambda new: None))
        stage.kill(1)
        await stage.fenced_after(1)
        assert stage.running is not None
        stage.running.cancel()
        began = now()
        stage.activate()
        await asyncio.sleep(1)
        stage.pause(2)
        assert await stage.start(2, incarnation=2, port=PORT) == "NONE"  # unfenced anew
        while cluster.partition("t").leader < 0:
            await asyncio.sleep(0.01)
            assert now() < began + 60
        assert 9.0 < now() - began < 10.2
        assert cluster.partition("t").leader == 2

    on(Stage(), scene)


def test_the_dead_that_is_back_before_its_session_is_over_leads_again() -> None:
    async def scene(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.begin()
        cluster.create(topic("t", assigned={0: [1, 2]}))
        cluster.beat(2, want_fence=True)
        cluster.beat(2)
        cluster.carry_out(alter_config(cluster.image, TOPIC_RESOURCE, "t", UNCLEAN, lambda new: None))
        stage.kill(1)
        await stage.fenced_after(1)
        assert await stage.start(1, incarnation=2) == "NONE"
        assert (cluster.partition("t").leader, cluster.partition("t").leader_recovery_state) == (1, 0)
        await asyncio.sleep(30)
        assert cluster.partition("t").leader == 1

    on(Stage(has_elr=False), scene)


# ---- registrations ---------------------------------------------------------------------------------------


def test_a_broker_that_was_killed_registers_again_at_once() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.kill(1)
        began = now()
        assert await stage.start(1, incarnation=2) == "NONE"
        assert now() - began < 0.01
        assert not stage.is_fenced(1)

    on(Stage(), scene)


def test_a_broker_that_was_killed_registers_at_once_with_another_listener() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.kill(1)
        assert await stage.start(1, incarnation=2, port=PORT + 1) == "NONE"

    on(Stage(), scene)


def test_a_twin_is_refused_while_the_first_lives() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        first = stage.life(1)
        for port in (PORT, PORT + 1):
            assert await stage.register(1, incarnation=2, port=port) == "DUPLICATE_BROKER_REGISTRATION"
        # its connection was reset, and a dial is accepted
        stage.connections[1].has_closed()
        assert await stage.register(1, incarnation=2, port=PORT + 1) == "DUPLICATE_BROKER_REGISTRATION"
        assert stage.life(1) == first

    on(Stage(), scene)


def test_a_twin_is_refused_before_the_watch_has_begun() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        assert stage.running is not None
        stage.running.cancel()
        stage.active.contacts = BrokerContacts()
        assert await stage.register(1, incarnation=2, port=PORT + 1) == "DUPLICATE_BROKER_REGISTRATION"

    on(Stage(), scene)


def test_a_broker_that_nobody_can_reach_is_replaced_when_its_session_is_over() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        await stage.beat(1)
        stage.network.partition([CONTROLLER], ["b1"])
        stage.pause(1)
        assert await stage.register(1, incarnation=2, port=PORT + 1) == "DUPLICATE_BROKER_REGISTRATION"
        stage.connections[1].has_closed()
        began = now()
        assert await stage.register(1, incarnation=2, port=PORT + 1) == "DUPLICATE_BROKER_REGISTRATION"
        assert now() - began < 1.1
        await asyncio.sleep(SESSION_S)
        assert await stage.register(1, incarnation=2, port=PORT + 1) == "NONE"

    on(Stage(), scene)


def test_the_first_may_send_a_heartbeat_while_it_is_dialled() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.kill(1)
        stage.network.partition([CONTROLLER], ["b1"])
        registering = asyncio.ensure_future(stage.register(1, incarnation=2, port=PORT + 1))
        await asyncio.sleep(0.5)
        stage.connections[1] = ClientConnection()
        await stage.beat(1)
        stage.network.heal()
        assert await registering == "DUPLICATE_BROKER_REGISTRATION"

    on(Stage(), scene)


def test_a_broker_is_unfenced_when_it_has_replayed_its_registration() -> None:
    async def scene(stage: Stage) -> None:
        await stage.begin()
        stage.cluster.create(topic("t", assigned={index: [1, 2] for index in range(3)}))
        stage.kill(1)
        assert await stage.register(1, incarnation=2) == "NONE"
        epoch, end = stage.life(1).epoch, len(stage.cluster.log)
        assert end - epoch > 1  # its partitions lost it before it was registered
        connection = ClientConnection()

        async def is_fenced(offset: int) -> bool:
            request = BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=epoch,
                current_metadata_offset=offset,
                want_fence=False,
                want_shut_down=False,
            )
            return (await stage.commands.heartbeat(request, connection)).is_fenced

        assert await is_fenced(end - 2)
        assert not await is_fenced(end - 1)

    on(Stage(), scene)


def test_the_broker_of_the_controllers_process_needs_no_dial() -> None:
    async def scene(stage: Stage) -> None:
        first, second = (registration(100, incarnation=each, port=each) for each in (1, 2))
        stage.network.hold(CONTROLLER, "h")
        stage.activate()
        for request in (first, second):
            assert (await stage.commands.register(request, None)).error_code == 0
            epoch = stage.life(100).epoch
            beat = BrokerHeartbeatRequest(
                broker_id=100,
                broker_epoch=epoch,
                current_metadata_offset=epoch,
                want_fence=False,
                want_shut_down=False,
            )
            assert not (await stage.commands.heartbeat(beat, None)).is_fenced
        await asyncio.sleep(100)
        assert not stage.is_fenced(100)
        # another one of that id, elsewhere
        third = registration(100, incarnation=3, port=2)
        refused = await stage.commands.register(third, ClientConnection())
        assert WIRE_ERRORS[refused.error_code].name == "DUPLICATE_BROKER_REGISTRATION"

    on(Stage(0), scene)
