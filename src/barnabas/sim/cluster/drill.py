"""What happens once more when all is well: a node is killed or stopped, or a newcomer wants a broker's id.

Under faults almost everything is excused: a broker is fenced late because nobody could write, and stops
without being let go because nobody answered. Here nothing is. The drill of a seed is drawn apart from
everything else that the seed decides. A voter is killed or stopped only where the others are a majority.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from barnabas.client.admin import Admin
from barnabas.client.errors import wire_error_of
from barnabas.controller.bootstrap import REGISTERED_FEATURES
from barnabas.core.errors import BarnabasError
from barnabas.core.network import Address
from barnabas.core.random import SeededRandom
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from barnabas.protocol.schema import Message
from barnabas.sim.chance import happens, pick, stream
from barnabas.sim.cluster.events import Calm, Drill, ImageSeen, Led
from barnabas.sim.cluster.plan import CLUSTER_ID, CONTROLLER_PORT, PORT, host_of
from barnabas.sim.cluster.workload import PAUSE_S, Brokers, addresses, look
from barnabas.sim.machine import Machine
from barnabas.sim.workload.client import CLIENT, Client
from barnabas.transport.connection import open_connection

BrokerAnswer = TypeVar("BrokerAnswer", BrokerHeartbeatResponse, BrokerRegistrationResponse)

KINDS = ("kill", "kill", "stop", "newcomer")
LEADER = 0.5  # how often it is the leader, where it is a voter that may die
DOWN_S = 3.0
ENOUGH_S = 30.0
INCARNATION = UUID(int=0x4E65 << 64)
DIRECTORY = UUID(int=0x4E66 << 64)
HOST = "newcomer"


async def drill(client: Client, machines: Sequence[Machine]) -> None:
    """One of them, and everything that comes back after it."""
    plan = client.world.scenario.cluster
    assert plan is not None
    whole = {each.broker for each in client.history.of(Calm) if each.what == "whole"}
    if whole != set(addresses(client.world)):
        return  # all is not well
    async with Brokers(client) as brokers:
        work = asyncio.ensure_future(_drill(client, machines, brokers))
        await asyncio.wait((work,), timeout=ENOUGH_S)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if not work.cancelled():
            work.result()


async def _drill(client: Client, machines: Sequence[Machine], brokers: Brokers) -> None:
    plan = client.world.scenario.cluster
    assert plan is not None
    random = stream(client.world.scenario.seed, "drill")
    voters, leader = await _quorum(client, brokers)
    kind = pick(random, KINDS)
    if kind == "newcomer":
        await _come_newly(client, pick(random, plan.brokers), leader)
        return
    candidates = [each for each in machines if each.node not in voters or len(voters) > 2]
    if not candidates:
        return
    machine = _victim(random, candidates, leader)
    client.history.add(Drill(client.now, kind, machine.node))
    if kind == "kill":
        machine.crash("process", DOWN_S)
    else:
        machine.restart(DOWN_S)
    await client.clock.sleep(DOWN_S)
    for address in addresses(client.world):
        await _see_whole(client, brokers, address)
    client.history.add(Drill(client.now, "over", machine.node))


async def _quorum(client: Client, brokers: Brokers) -> tuple[list[int], int]:
    """The voters, and who leads them."""
    found: list[tuple[list[int], int]] = []

    async def step() -> None:
        admin: Admin = await brokers.at(addresses(client.world)[0])
        quorum = await admin.describe_quorum()
        found.append(([each.node_id for each in quorum.voters], quorum.leader_id))

    while not found:
        await client.go_on("looking at the quorum", step)
    return found[0]


def _victim(random: SeededRandom, candidates: Sequence[Machine], leader: int) -> Machine:
    chosen, is_leader = pick(random, candidates), happens(random, LEADER)
    return next((each for each in candidates if is_leader and each.node == leader), chosen)


async def _see_whole(client: Client, brokers: Brokers, address: str) -> None:
    plan = client.world.scenario.cluster
    assert plan is not None
    shown: list[tuple[int, ...]] = []

    async def step() -> None:
        shown.append((await look(client, await brokers.at(address), address)).brokers)

    while not shown or shown[-1] != plan.brokers:
        await client.go_on("looking", step)
        await client.pause(PAUSE_S)


async def _come_newly(client: Client, broker: int, leader: int) -> None:
    """Beat as an earlier incarnation of a broker that lives, and register under its id from another place."""
    client.history.add(Drill(client.now, "newcomer", broker))
    beating = BrokerHeartbeatRequest(
        broker_id=broker,
        broker_epoch=_epoch(client, broker) - 1,
        current_metadata_offset=0,
        want_fence=True,
        want_shut_down=True,
        offline_log_dirs=[],
        cordoned_log_dirs=None,
    )
    beat = await _until_answered(client, leader, beating, BrokerHeartbeatResponse)
    client.history.add(Drill(client.now, "heartbeat", broker, beat))
    registering = BrokerRegistrationRequest(
        broker_id=broker,
        cluster_id=CLUSTER_ID,
        incarnation_id=INCARNATION.bytes,
        listeners=[Listener(name="PLAINTEXT", host=HOST, port=PORT, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in REGISTERED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[DIRECTORY.bytes],
        previous_broker_epoch=-1,
    )
    registered = await _until_answered(client, leader, registering, BrokerRegistrationResponse)
    client.history.add(Drill(client.now, "registration", broker, registered))


def _epoch(client: Client, broker: int) -> int:
    """The epoch under which a broker is registered, by what was published last."""
    latest = max(client.history.of(ImageSeen), key=lambda each: each.offset)
    return next(each.epoch for each in latest.brokers if each.id == broker)


async def _until_answered(client: Client, leader: int, request: Message, response: type[BrokerAnswer]) -> str:
    """The name of the active controller's error."""
    answer = await _ask(client, leader, request, response)
    while answer in ("", "NOT_CONTROLLER"):
        leader = [each.node for each in client.history.of(Led)][-1]
        await client.pause(PAUSE_S)
        answer = await _ask(client, leader, request, response)
    return answer


async def _ask(client: Client, leader: int, request: Message, response: type[BrokerAnswer]) -> str:
    """The name of the answer's error; "" without an answer."""
    network, clock, _, _ = client.seams
    try:
        connection = await open_connection(
            network,
            clock,
            Address(host_of(leader), CONTROLLER_PORT),
            client_id=HOST,
            software_version="1",
            connect_timeout_s=CLIENT.connect_timeout_ms / 1000,
            request_timeout_s=CLIENT.request_timeout_ms / 1000,
            scratch=memoryview(bytearray(65_536)),
        )
        try:
            answer = await connection.ask(request, response)
        finally:
            connection.close()
    except BarnabasError:
        return ""
    return wire_error_of(answer.error_code).name
