"""Requests to the active controller: sent, repeated and given up, by scripted controllers in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from barnabas.broker.cluster.forwarding import (
    RETRY_S,
    TIMEOUT_S,
    Leader,
    RoutedController,
    outcomes,
    tells_not_controller,
)
from barnabas.broker.cluster.remote_controller import RemoteController
from barnabas.broker.connections.requests import BROKER_ROUTER, RequestContext
from barnabas.controller.decisions import ControllerNotAnswering, ForwardingFailed, NotController
from barnabas.core.errors import StorageError, wire_error
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import Address
from barnabas.core.random import SeededRandom
from barnabas.core.settings.sources import resolve
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterResponse
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas.protocol.messages.envelope import EnvelopeResponse
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.protocol.principals import decode_principal
from barnabas.protocol.schema import NO_UUID, Message
from barnabas.sim.loop import LoopClock, run
from tests.support.scripted_controller import Asked, HangUp, ScriptedController

OWN_ID = 1
CLIENT = RequestContext("User:ANONYMOUS", "PLAINTEXT", BROKER_ROUTER, "10.1.2.3", "tool", 7)
BEAT = BrokerHeartbeatRequest(
    broker_id=1, broker_epoch=5, current_metadata_offset=5, want_fence=False, want_shut_down=False
)
M = TypeVar("M", bound=Message)


def code_of(name: str) -> int:
    return wire_error(name).code


def create(*names: str, validate_only: bool = False) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)


def created(error: str = "NONE", *, name: str = "t") -> CreateTopicsResponse:
    result = CreatableTopicResult(
        name=name, topic_id=NO_UUID, error_code=code_of(error), error_message=None, configs=[]
    )
    return CreateTopicsResponse(throttle_time_ms=0, topics=[result])


def beaten(error: str = "NONE") -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=code_of(error), should_shut_down=False)


def not_controller(asked: Asked) -> Message:
    return EnvelopeResponse(response_data=None, error_code=code_of("NOT_CONTROLLER"))


def hang_up(asked: Asked) -> Message:
    raise HangUp


class OwnScripted:
    """The controller of this process, as the test tells it."""

    def __init__(self, answer: Callable[[], Message]) -> None:
        self.answer = answer
        self.contexts: list[RequestContext | None] = []

    async def send(
        self, request: Message, response: type[M], context: RequestContext | None = None, **limits: Any
    ) -> M:
        self.contexts.append(context)
        answer = self.answer()
        assert isinstance(answer, response)
        return answer


class World:
    """A broker that knows whom the test names as the leader, and scripted controllers 2 and 3."""

    def __init__(self, own: OwnScripted | None = None) -> None:
        self.clock = LoopClock()
        self.network = MemoryNetwork()
        self.two = ScriptedController(self.network, 2, lambda asked: created())
        self.three = ScriptedController(self.network, 3, lambda asked: created())
        self.is_active = False
        self.times_caught_up = 0
        self._leader: Leader | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self.controller = RoutedController(
            own,
            is_active=lambda: self.is_active,
            leader=lambda: self._leader,
            until=self._until,
            caught_up=self._caught_up,
            remote=self._remote,
            settings=resolve,
            clock=self.clock,
        )

    def lead(self, leader: ScriptedController | None, *, own: bool = False) -> None:
        """The quorum has this leader from now on, as this node knows."""
        self.is_active = own
        self._leader = (OWN_ID, Address("node1", 9093)) if own else leader.leader if leader else None
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    async def _caught_up(self) -> None:
        self.times_caught_up += 1

    def _remote(self) -> RemoteController:
        return RemoteController(
            node_id=OWN_ID,
            network=self.network.host("node1"),
            clock=self.clock,
            random=SeededRandom(1),
            settings=resolve,
        )

    async def seconds(self, work: Awaitable[Any]) -> float:
        """How long it takes."""
        began = self.clock.monotonic()
        await work
        return self.clock.monotonic() - began


def in_world(work: Callable[[World], Awaitable[None]], own: OwnScripted | None = None) -> None:
    async def main() -> None:
        world = World(own)
        await world.two.start()
        await world.three.start()
        world.lead(world.two)
        await work(world)
        world.controller.close()
        await world.two.close()
        await world.three.close()

    run(main())


# ---- what is sent ----------------------------------------------------------------------------------------


def test_a_clients_request_goes_in_an_envelope_with_its_principal_address_and_name() -> None:
    async def work(world: World) -> None:
        context = CLIENT._replace(principal="User:ann", api_version=5)
        answer = await world.controller.send(create("t"), CreateTopicsResponse, context)
        assert [topic.name for topic in answer.topics] == ["t"]
        (asked,) = world.two.asked
        assert asked.envelope is not None
        principal = decode_principal(asked.envelope.request_principal or b"")
        assert (principal.type, principal.name, principal.token_authenticated) == ("User", "ann", False)
        assert bytes(asked.envelope.client_host_address) == bytes((10, 1, 2, 3))
        assert (asked.header.api_key, asked.header.api_version, asked.header.client_id) == (19, 5, "tool")
        assert asked.request == create("t")

    in_world(work)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("::1", bytes(15) + b"\x01"),
        ("fe80::2%eth0", b"\xfe\x80" + bytes(13) + b"\x02"),
        ("client", bytes((127, 0, 0, 1))),
    ],
)
def test_address_of_the_client(host: str, expected: bytes) -> None:
    async def work(world: World) -> None:
        await world.controller.send(create("t"), CreateTopicsResponse, CLIENT._replace(host=host))
        envelope = world.two.asked[0].envelope
        assert envelope is not None
        assert bytes(envelope.client_host_address) == expected

    in_world(work)


def test_what_the_broker_asks_for_itself_goes_as_it_is() -> None:
    async def work(world: World) -> None:
        await world.controller.send(create("__consumer_offsets"), CreateTopicsResponse)
        (asked,) = world.two.asked
        assert asked.envelope is None
        assert (asked.header.api_version, asked.header.client_id) == (7, "1")

    in_world(work)


def test_the_newest_version_up_to_the_clients_that_the_controller_speaks() -> None:
    async def work(world: World) -> None:
        old = ScriptedController(world.network, 4, lambda asked: created(), versions={19: (2, 4)})
        await old.start()
        world.lead(old)
        for asked_in, sent_in in ((7, 4), (4, 4), (3, 3)):
            await world.controller.send(
                create("t"), CreateTopicsResponse, CLIENT._replace(api_version=asked_in)
            )
            assert old.asked[-1].header.api_version == sent_in
        with pytest.raises(NotSpoken):
            await world.controller.send(create("t"), CreateTopicsResponse, CLIENT._replace(api_version=1))
        await old.close()

    in_world(work)


def test_heartbeats_have_a_connection_of_their_own() -> None:
    async def work(world: World) -> None:
        world.two.answer = lambda asked: None if isinstance(asked.request, CreateTopicsRequest) else beaten()
        waits = asyncio.ensure_future(world.controller.send(create("t"), CreateTopicsResponse, CLIENT))
        await asyncio.sleep(1)
        for _ in range(3):
            assert (await world.controller.send(BEAT, BrokerHeartbeatResponse)).error_code == 0
        assert len(world.two.connections) == 2
        assert not waits.done()
        waits.cancel()

    in_world(work)


# ---- what is repeated ------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [not_controller, hang_up])
def test_repeated_while_the_leader_does_not_answer(failure: Callable[[Asked], Message]) -> None:
    async def work(world: World) -> None:
        def answer(asked: Asked) -> Message:
            return failure(asked) if len(world.two.asked) < 4 else created()

        world.two.answer = answer
        took = await world.seconds(world.controller.send(create("t"), CreateTopicsResponse, CLIENT))
        assert len(world.two.asked) == 4
        assert 3 * RETRY_S * 0.8 <= took < 1

    in_world(work)


def test_not_controller_in_the_response_itself_is_repeated() -> None:
    async def work(world: World) -> None:
        def answer(asked: Asked) -> Message:
            refused = "NOT_CONTROLLER" if len(world.two.asked) < 3 else "NONE"
            return beaten(refused)

        world.two.answer = answer
        assert (await world.controller.send(BEAT, BrokerHeartbeatResponse)).error_code == 0
        assert len(world.two.asked) == 3

    in_world(work)


def test_refused_dials_are_repeated_until_the_leader_is_back() -> None:
    async def work(world: World) -> None:
        world.two.stop()
        sending = asyncio.ensure_future(world.controller.send(create("t"), CreateTopicsResponse, CLIENT))
        await asyncio.sleep(10)
        assert not sending.done()
        await world.two.start()
        assert await world.seconds(sending) < 0.2
        assert world.two.names == ["CreateTopics"]

    in_world(work)


def test_another_leader_is_asked_at_once() -> None:
    """Even while the former one, which may be paused, has neither answered nor closed the connection."""

    async def work(world: World) -> None:
        world.two.answer = lambda asked: None
        sending = asyncio.ensure_future(world.controller.send(create("t"), CreateTopicsResponse, CLIENT))
        await asyncio.sleep(5)
        assert world.two.names == ["CreateTopics"]
        world.lead(None)  # none is known for a while: the one that was asked may still answer
        await asyncio.sleep(5)
        assert not sending.done()
        world.lead(world.three)
        assert await world.seconds(sending) < 0.01
        assert world.three.names == ["CreateTopics"]

    in_world(work)


def test_waits_for_a_leader_to_be_known() -> None:
    async def work(world: World) -> None:
        world.lead(None)
        sending = asyncio.ensure_future(world.controller.send(create("t"), CreateTopicsResponse, CLIENT))
        await asyncio.sleep(20.01)
        world.lead(world.three)
        assert await world.seconds(sending) < 0.01

    in_world(work)


def test_several_requests_are_repeated_together() -> None:
    async def work(world: World) -> None:
        world.two.answer = lambda asked: None
        names = [f"t{number}" for number in range(5)]
        sending = [
            asyncio.ensure_future(world.controller.send(create(name), CreateTopicsResponse, CLIENT))
            for name in names
        ]
        await asyncio.sleep(1)
        world.two.stop()
        world.three.answer = lambda asked: created(name=asked.request.topics[0].name)  # type: ignore[attr-defined]
        world.lead(world.three)
        answers = await asyncio.gather(*sending)
        assert [answer.topics[0].name for answer in answers] == names

    in_world(work)


# ---- what is given up ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 5.0])
def test_given_up_when_its_time_is_over(limit: float | None) -> None:
    async def work(world: World) -> None:
        for outage in ("unknown", "refused", "silent", "not the leader"):
            world.lead(None if outage == "unknown" else world.two)
            if outage == "refused":
                world.two.stop()
            elif outage == "silent":
                await world.two.start()
                world.two.answer = lambda asked: None
            elif outage == "not the leader":
                world.two.answer = not_controller
            began = world.clock.monotonic()
            with pytest.raises(ControllerNotAnswering, match="CreateTopics"):
                await world.controller.send(create("t"), CreateTopicsResponse, CLIENT, timeout_s=limit)
            expected = TIMEOUT_S if limit is None else limit
            assert world.clock.monotonic() - began == pytest.approx(expected, abs=0.1), outage

    in_world(work)


def test_a_heartbeat_is_given_up_after_its_interval_and_leaves_its_connection() -> None:
    async def work(world: World) -> None:
        world.two.answer = lambda asked: None
        for number in (1, 2):
            began = world.clock.monotonic()
            with pytest.raises(ControllerNotAnswering):
                await world.controller.send(BEAT, BrokerHeartbeatResponse)
            assert world.clock.monotonic() - began == pytest.approx(2.0, abs=0.1)
            assert len(world.two.connections) == number
            await asyncio.sleep(0.1)

    in_world(work)


def test_a_node_that_stops_gives_up() -> None:
    async def work(world: World) -> None:
        world.two.answer = lambda asked: None
        sending = asyncio.ensure_future(world.controller.send(create("t"), CreateTopicsResponse, CLIENT))
        await asyncio.sleep(1)
        world.controller.close()
        with pytest.raises(NotController, match="stopping"):
            await sending
        with pytest.raises(NotController, match="stopping"):
            await world.controller.send(create("t"), CreateTopicsResponse)

    in_world(work)


def test_a_version_that_the_controller_refuses_ends_the_clients_connection() -> None:
    async def work(world: World) -> None:
        code = code_of("UNSUPPORTED_VERSION")
        world.two.answer = lambda asked: EnvelopeResponse(response_data=None, error_code=code)
        with pytest.raises(NotSpoken, match="CreateTopics in version 7"):
            await world.controller.send(create("t"), CreateTopicsResponse, CLIENT)
        assert len(world.two.asked) == 1

    in_world(work)


@pytest.mark.parametrize("error", ["PRINCIPAL_DESERIALIZATION_FAILURE", "CLUSTER_AUTHORIZATION_FAILED"])
def test_other_errors_of_an_envelope_are_not_the_clients(error: str) -> None:
    async def work(world: World) -> None:
        code = code_of(error)
        world.two.answer = lambda asked: EnvelopeResponse(response_data=None, error_code=code)
        with pytest.raises(ForwardingFailed, match=error) as raised:
            await world.controller.send(create("t"), CreateTopicsResponse, CLIENT)
        assert raised.value.wire.name == "UNKNOWN_SERVER_ERROR"
        assert len(world.two.asked) == 1

    in_world(work)


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0\x01\0", b"\x7f\xff\xff\xff\0\0\0\0\0\x01\0"])
def test_a_response_that_cannot_be_read(data: bytes | None) -> None:
    async def work(world: World) -> None:
        world.two.answer = lambda asked: EnvelopeResponse(response_data=data, error_code=0)
        with pytest.raises(ForwardingFailed, match="cannot be read"):
            await world.controller.send(create("t"), CreateTopicsResponse, CLIENT)

    in_world(work)


# ---- this node as the active controller ------------------------------------------------------------------


def test_the_own_controller_is_asked_without_the_wire() -> None:
    own = OwnScripted(created)

    async def work(world: World) -> None:
        world.lead(None, own=True)
        await world.controller.send(create("t"), CreateTopicsResponse, CLIENT)
        await world.controller.send(create("t"), CreateTopicsResponse)
        assert own.contexts == [CLIENT, None]
        assert world.times_caught_up == 0  # what it has committed it has published
        assert world.two.asked == []

    in_world(work, own)


@pytest.mark.parametrize("with_context", [True, False])
def test_a_node_that_loses_the_lead_asks_the_next_leader(with_context: bool) -> None:
    worlds: list[World] = []

    def lose() -> Message:
        worlds[0].lead(worlds[0].two)
        if not with_context:
            raise NotController("the decision could not be committed")
        return created("NOT_CONTROLLER")

    async def work(world: World) -> None:
        worlds.append(world)
        world.lead(None, own=True)
        context = CLIENT if with_context else None
        answer = await world.controller.send(create("t"), CreateTopicsResponse, context)
        assert [topic.error_code for topic in answer.topics] == [0]
        assert world.two.names == ["CreateTopics"]
        assert world.times_caught_up == 1

    in_world(work, OwnScripted(lose))


def test_a_leader_that_could_not_write_answers_so() -> None:
    """A full disk: it still leads, and nobody else would be asked."""
    own = OwnScripted(lambda: created("NOT_CONTROLLER"))

    async def work(world: World) -> None:
        world.lead(None, own=True)
        answer = await world.controller.send(create("t"), CreateTopicsResponse, CLIENT)
        assert [topic.error_code for topic in answer.topics] == [code_of("NOT_CONTROLLER")]
        for error in (NotController("full"), StorageError("full")):

            def fail(error: Exception = error) -> Message:
                raise error

            own.answer = fail
            with pytest.raises(type(error), match="full"):
                await world.controller.send(create("t"), CreateTopicsResponse)
        assert world.two.asked == []

    in_world(work, own)


def test_a_node_that_becomes_the_leader_asks_itself() -> None:
    own = OwnScripted(created)

    async def work(world: World) -> None:
        world.two.answer = lambda asked: None
        sending = asyncio.ensure_future(world.controller.send(create("t"), CreateTopicsResponse, CLIENT))
        await asyncio.sleep(1)
        world.two.stop()
        world.lead(None, own=True)
        assert await world.seconds(sending) < 0.01
        assert own.contexts == [CLIENT]

    in_world(work, own)


# ---- when a change is answered ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "answer", "waits"),
    [
        (create("t"), created(), True),
        (create("t"), created("TOPIC_ALREADY_EXISTS"), False),
        (create("t", validate_only=True), created(), False),
        (
            UnregisterBrokerRequest(broker_id=9),
            UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message=None),
            True,
        ),
        (
            DescribeQuorumRequest(topics=[]),
            DescribeQuorumResponse(error_code=0, error_message=None, topics=[], nodes=[]),
            False,
        ),
    ],
)
def test_a_change_that_succeeded_waits_for_the_own_image(
    request_: Message, answer: Message, waits: bool
) -> None:
    async def work(world: World) -> None:
        world.two.answer = lambda asked: answer
        context = CLIENT._replace(api_version=type(request_).__versions__[1])
        assert await world.controller.send(request_, type(answer), context) == answer
        assert world.times_caught_up == waits

    in_world(work)


def test_outcomes_of_responses() -> None:
    several = CreateTopicsResponse(
        throttle_time_ms=0, topics=[*created().topics, *created("INVALID_PARTITIONS").topics]
    )
    assert list(outcomes(several)) == [0, code_of("INVALID_PARTITIONS")]
    assert list(outcomes(DeleteTopicsResponse(throttle_time_ms=0, responses=[]))) == []
    assert DeleteTopicsRequest.__key__ == DeleteTopicsResponse.__key__
    elected = PartitionResult(partition_id=0, error_code=0, error_message=None)
    not_needed = PartitionResult(
        partition_id=1, error_code=code_of("ELECTION_NOT_NEEDED"), error_message=None
    )
    results = [ReplicaElectionResult(topic="t", partition_result=[elected, not_needed])]
    response = ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=results)
    assert list(outcomes(response)) == [0, code_of("ELECTION_NOT_NEEDED")]
    response.error_code = code_of("NOT_CONTROLLER")
    assert list(outcomes(response)) == [code_of("NOT_CONTROLLER")]
    assert tells_not_controller(response)
    assert not tells_not_controller(several)


def test_a_follower_tells_of_the_quorum_that_it_does_not_lead() -> None:
    data = PartitionData(
        partition_index=0,
        error_code=code_of("NOT_LEADER_OR_FOLLOWER"),
        error_message=None,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )
    topics = [TopicData(topic_name="__cluster_metadata", partitions=[data])]
    assert tells_not_controller(
        DescribeQuorumResponse(error_code=0, error_message=None, topics=topics, nodes=[])
    )


@pytest.mark.parametrize("cls", [AddRaftVoterResponse, RemoveRaftVoterResponse])
def test_a_follower_that_is_asked_to_change_the_voters_is_not_the_last_to_be_asked(
    cls: type[AddRaftVoterResponse | RemoveRaftVoterResponse],
) -> None:
    def answer(error: str) -> AddRaftVoterResponse | RemoveRaftVoterResponse:
        return cls(throttle_time_ms=0, error_code=code_of(error), error_message=None)

    assert tells_not_controller(answer("NOT_LEADER_OR_FOLLOWER"))
    assert not tells_not_controller(answer("VOTER_NOT_FOUND"))
    assert not tells_not_controller(answer("NONE"))
