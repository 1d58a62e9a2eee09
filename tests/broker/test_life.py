"""The life of a node: its states, what answers in each of them, and what a stop does in which order."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.broker.cluster.membership import Membership
from barnabas.broker.life import TRANSITIONS, NodeLife, NodeState
from barnabas.broker.node import Node
from barnabas.core.errors import InvariantViolation, StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import Address
from barnabas.core.random import SeededRandom
from barnabas.core.settings.sources import resolve
from barnabas.core.workers import InlineWorkers
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import NO_UUID
from barnabas.sim.loop import LoopClock, run
from barnabas.transport.connection import BrokerConnection, open_connection

PORT, CONTROLLER_PORT = 9092, 10092
SETTINGS = {
    "log.dirs": "memory",
    "listeners": f"PLAINTEXT://node:{PORT},CONTROLLER://node:{CONTROLLER_PORT}",
    "controller.listener.names": "CONTROLLER",
}


class Site:
    """A disk and a network, and the nodes that are started on them."""

    def __init__(self) -> None:
        self.disk, self.network, self.clock = MemoryDisk(), MemoryNetwork(), LoopClock()

    async def start(self) -> Node:
        return await Node.start(
            resolve(flags=SETTINGS),
            disk=lambda path: self.disk,
            network=self.network.host("node"),
            clock=self.clock,
            random=SeededRandom(1),
            workers=InlineWorkers(),
        )

    async def connect(self, port: int) -> BrokerConnection:
        return await open_connection(
            self.network.host("client"),
            self.clock,
            Address("node", port),
            client_id="test",
            software_version="1",
            connect_timeout_s=5,
            request_timeout_s=30,
            scratch=memoryview(bytearray(1000)),
        )


def on_a_site(work: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    run(work(Site()))


def all_topics() -> MetadataRequest:
    topic = MetadataRequestTopic(topic_id=NO_UUID, name="t")
    return MetadataRequest(topics=[topic], allow_auto_topic_creation=True)


def controllers() -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=2, include_fenced_brokers=False
    )


def test_every_state_ends_and_only_the_listed_transitions_are_made() -> None:
    for state in NodeState:
        for after in NodeState:
            life = NodeLife()
            life.state = state
            if after in TRANSITIONS[state]:
                life.become(after)
                assert life.state is after
            else:
                with pytest.raises(InvariantViolation):
                    life.become(after)
        if state is not NodeState.STOPPED:
            assert NodeState.STOPPED in TRANSITIONS[state]


def test_a_failure_after_the_end_changes_nothing() -> None:
    life = NodeLife()
    life.become(NodeState.STOPPED)
    life.fail()
    assert life.state is NodeState.STOPPED


def test_the_controller_answers_before_the_broker_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what comes to the broker's listener by then waits, and is answered when it serves."""

    async def work(site: Site) -> None:
        held, states = asyncio.Event(), []
        register = Membership.register

        async def wait(membership: Membership, **options: Any) -> None:
            await held.wait()
            await register(membership, **options)

        monkeypatch.setattr(Membership, "register", wait)
        starting = asyncio.ensure_future(site.start())
        controller = await site.connect(CONTROLLER_PORT)
        described = await controller.ask(controllers(), DescribeClusterResponse)
        states.append((described.error_code, [each.broker_id for each in described.brokers]))
        early = asyncio.ensure_future(site.connect(PORT))
        await asyncio.sleep(5)
        assert not early.done()  # it is connected, but nobody answers its ApiVersions yet
        assert not starting.done()
        held.set()
        node = await starting
        assert node.life.state is NodeState.SERVING
        connection = await early
        answer = await connection.ask(all_topics(), MetadataResponse)
        assert [broker.node_id for broker in answer.brokers] == [1]
        assert states == [(0, [1])]
        await node.stop()

    on_a_site(work)


def test_a_stop_begins_with_the_controlled_shutdown_and_closes_listeners_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(site: Site) -> None:
        node = await site.start()
        connection = await site.connect(PORT)
        assert (await connection.ask(all_topics(), MetadataResponse)).topics[0].error_code == 0
        held, leave = asyncio.Event(), Membership.leave

        async def wait(membership: Membership) -> None:
            await leave(membership)
            await held.wait()

        monkeypatch.setattr(Membership, "leave", wait)
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.sleep(1)
        assert node.life.state is NodeState.CONTROLLED_SHUTDOWN
        late = await site.connect(PORT)  # still served, and told that nobody leads
        answer = await late.ask(all_topics(), MetadataResponse)
        assert [each.leader_id for each in answer.topics[0].partitions] == [-1]
        assert node.quorum.metadata.image.brokers[1].fenced
        held.set()
        await stopping
        assert node.life.state is NodeState.STOPPED
        again = await site.start()
        assert again.storage.logs.was_clean
        await again.stop()

    on_a_site(work)


def test_a_node_that_fails_says_so_and_is_stopped_when_it_is_abandoned() -> None:
    async def work(site: Site) -> None:
        node = await site.start()
        node.fail(RuntimeError("first"))
        node.fail(RuntimeError("second"))
        assert node.life.state is NodeState.FAILED
        assert str(await node.failed()) == "first"
        await node.abandon()
        assert node.life.state is NodeState.STOPPED

    on_a_site(work)


def test_to_stop_again_is_to_wait_for_the_first_stop() -> None:
    async def work(site: Site) -> None:
        node = await site.start()
        assert await asyncio.gather(node.stop(), node.stop()) == [True, True]
        assert await node.stop()
        await node.abandon()
        assert node.life.state is NodeState.STOPPED

    on_a_site(work)


def test_a_stop_that_fails_on_the_way_is_not_clean() -> None:
    async def work(site: Site) -> None:
        node = await site.start()
        site.disk.fail("sync", errno.EIO, path_glob="*__cluster_metadata*.log", times=1)
        assert not await node.stop()
        assert node.life.state is NodeState.STOPPED
        assert not await node.stop()
        site.disk.crash_process()
        again = await site.start()
        assert not again.storage.logs.was_clean
        await again.stop()

    on_a_site(work)


@pytest.mark.parametrize("path_glob", ["*", "*.snapshot.tmp"])  # no room at all, or not for one log
def test_a_stop_that_finds_a_full_disk_is_not_clean(path_glob: str) -> None:
    async def work(site: Site) -> None:
        node = await site.start()
        connection = await site.connect(PORT)
        assert (await connection.ask(all_topics(), MetadataResponse)).topics[0].error_code == 0
        site.disk.fail("append", errno.ENOSPC, path_glob=path_glob)
        assert not await node.stop()
        assert node.life.state is NodeState.STOPPED
        site.disk.heal()
        again = await site.start()
        assert not again.storage.logs.was_clean
        assert again.quorum.metadata.image.topic("t") is not None
        assert await again.stop()

    on_a_site(work)


def test_a_node_that_is_abandoned_while_it_stops_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(site: Site) -> None:
        node = await site.start()

        async def never(membership: Membership) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(Membership, "leave", never)
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.sleep(1)
        await node.abandon()
        assert node.life.state is NodeState.STOPPED
        with pytest.raises(asyncio.CancelledError):
            await stopping

    on_a_site(work)


def test_a_start_that_fails_meanwhile_ends_by_that_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(site: Site) -> None:
        register = Membership.register

        async def fail(membership: Membership, **options: Any) -> None:
            await register(membership, **options)
            nodes[0].fail(StorageError("the disk is gone"))

        nodes: list[Node] = []
        init = Node.__init__

        def remember(node: Node, *arguments: Any) -> None:
            nodes.append(node)
            init(node, *arguments)

        monkeypatch.setattr(Node, "__init__", remember)
        monkeypatch.setattr(Membership, "register", fail)
        with pytest.raises(StorageError, match="the disk is gone"):
            await site.start()
        assert nodes[0].life.state is NodeState.STOPPED

    on_a_site(work)
