"""Several nodes in one quorum: elected, replicated, killed and brought back, in virtual time."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from barnabas.broker.node import Node
from barnabas.broker.quorum.driver import MetadataLogFailed
from barnabas.broker.settings.unenforced import UnenforcedSecurity
from barnabas.broker.storage.formatting import format_directory
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.controller.decisions import Decision, NotController
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.checkpoints import MetaProperties
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import TopicRecord, UserScramCredentialRecord
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.raft.core import NotLeader
from barnabas.sim.clock import START_MS
from tests.support.clusters import (
    BROKER_PORT,
    CONTROLLER_PORT,
    VirtualCluster,
    directory_of,
    host_of,
    run_cluster,
)


async def create(node: Node, name: str, partitions: int = 1) -> str:
    """Create a topic by way of that node; gives the name of the error."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    response = await node.services.controller.send(request, CreateTopicsResponse)
    return WIRE_ERRORS[response.topics[0].error_code].name


async def new_topic(node: Node, name: str) -> None:
    """Let the active controller on that node decide that there is a topic."""
    record = TopicRecord(name=name, topic_id=name.encode().ljust(16, b"\0"))
    await node.quorum.controller.submit(lambda image: Decision([record], None))


def has_topic(node: Node, name: str) -> bool:
    return node.quorum.metadata.image.topic(name) is not None


def now() -> float:
    return asyncio.get_running_loop().time()


def test_three_nodes_elect_a_leader_and_agree_on_the_metadata() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        assert cluster.leader() is not None
        for node_id, node in cluster.nodes.items():
            assert await create(node, f"of-{node_id}") == "NONE"
            assert has_topic(node, f"of-{node_id}")  # the broker that was asked has it when it answers
        nodes = list(cluster.nodes.values())
        await cluster.until(lambda: all(has_topic(each, "of-3") for each in nodes), "all have the last")
        images = [each.quorum.metadata.image for each in nodes]
        assert sorted(images[0].brokers) == [1, 2, 3]
        assert all(each.is_active for each in images[0].brokers.values())
        assert images[0] == images[1] == images[2]
        await cluster.stop()

    run_cluster(scenario, VirtualCluster())


def test_the_leader_dies_and_another_one_takes_over_at_once() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        leader = cluster.leader()
        assert leader is not None
        assert await create(leader, "before") == "NONE"
        await cluster.kill(leader.node_id)
        killed = now()
        await cluster.until(
            lambda: all(each.quorum.driver.leader_id in cluster.nodes for each in cluster.nodes.values()),
            "the survivors know a new leader",
        )
        assert now() - killed < 0.5
        survivor = next(iter(cluster.nodes.values()))
        assert await create(survivor, "after") == "NONE"
        await cluster.start(leader.node_id)
        returned = cluster.nodes[leader.node_id]
        assert has_topic(returned, "before")
        await cluster.until(lambda: has_topic(returned, "after"), "the one that returned has caught up")

    run_cluster(scenario, VirtualCluster())


def test_a_majority_is_needed() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await cluster.kill(1)
        await cluster.kill(2)
        answer = asyncio.ensure_future(create(cluster.nodes[3], "alone"))
        await asyncio.sleep(30)
        assert not answer.done()
        assert cluster.leader() is None
        await cluster.start(1)
        assert await answer == "NONE"

    run_cluster(scenario, VirtualCluster())


def test_timeouts_of_zero_do_not_keep_a_node_from_leading() -> None:
    settings = {"controller.quorum.election.timeout.ms": "0", "controller.quorum.fetch.timeout.ms": "0"}

    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        assert await create(cluster.nodes[1], "one") == "NONE"

    run_cluster(scenario, VirtualCluster(nodes=1, voters=1, settings=settings))


def test_a_broker_alone_follows_the_quorum() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        broker = cluster.nodes[4]
        assert await create(broker, "by-the-broker", partitions=8) == "NONE"
        assert has_topic(broker, "by-the-broker")
        leader = cluster.leader()
        assert leader is not None
        await cluster.kill(leader.node_id)
        assert await create(broker, "after") == "NONE"

    run_cluster(scenario, VirtualCluster(nodes=4))


def test_a_broker_that_was_unregistered_knows_its_address() -> None:
    """It may have been on its start: then that is what it says when it is ready."""

    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        request = UnregisterBrokerRequest(broker_id=4)
        answer = await cluster.nodes[1].services.controller.send(request, UnregisterBrokerResponse)
        assert answer.error_code == 0
        gone = cluster.nodes[4]
        await cluster.until(lambda: 4 not in gone.quorum.metadata.image.brokers, "it has read that")
        assert gone.endpoints == [f"{host_of(4)}:{BROKER_PORT}"]

    run_cluster(scenario, VirtualCluster(nodes=4))


def test_controllers_alone_decide_for_brokers_alone() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        assert await create(cluster.nodes[4], "letters", partitions=2) == "NONE"
        leader = cluster.leader()
        assert leader is not None
        assert leader.node_id in (1, 2, 3)
        image = cluster.nodes[4].quorum.metadata.image
        assert sorted(image.brokers) == [4, 5]
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(nodes=5, roles=dict.fromkeys((1, 2, 3), "controller")))


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_all_are_restarted_one_by_one(victim: str) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        for turn in range(6):
            leader = cluster.leader()
            assert leader is not None
            others = [each for each in cluster.nodes if each != leader.node_id]
            chosen = leader.node_id if victim == "leader" else others[turn % 2]
            assert await cluster.nodes.pop(chosen).stop()
            assert await create(next(iter(cluster.nodes.values())), f"turn-{turn}") == "NONE"
            await cluster.start(chosen)
            assert has_topic(cluster.nodes[chosen], f"turn-{turn}")

    run_cluster(scenario, VirtualCluster())


def fenced(node: Node, broker_id: int) -> bool:
    return node.quorum.metadata.image.brokers[broker_id].fenced


def test_a_dead_broker_is_fenced_by_its_socket_and_comes_back_at_once() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        epoch = cluster.nodes[1].quorum.metadata.image.brokers[5].epoch
        await cluster.kill(5)
        killed = now()
        await cluster.until(lambda: fenced(cluster.nodes[1], 5), "the dead broker is fenced")
        assert now() - killed < 1.0
        again = now()
        await cluster.start(5)
        assert now() - again < 1.0
        image = cluster.nodes[5].quorum.metadata.image
        assert image.brokers[5].is_active
        assert image.brokers[5].epoch > epoch

    run_cluster(scenario, VirtualCluster(nodes=5))


def test_a_broker_that_is_only_cut_off_is_fenced_by_its_session() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        cluster.network.partition([f"node-{each}" for each in (1, 2, 3, 4)], ["node-5"])
        cut = now()
        await cluster.until(lambda: fenced(cluster.nodes[1], 5), "the silent broker is fenced")
        assert 8.0 < now() - cut < 12.0
        cluster.network.heal()
        await cluster.until(lambda: not fenced(cluster.nodes[1], 5), "it is heard again, and unfenced")

    run_cluster(scenario, VirtualCluster(nodes=5))


def test_controllers_register_and_describe_one_another() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        nodes = list(cluster.nodes.values())
        await cluster.until(
            lambda: all(sorted(each.quorum.metadata.image.controllers) == [1, 2, 3] for each in nodes),
            "all controllers are registered",
        )
        leader = cluster.leader()
        assert leader is not None
        described = leader.quorum.driver.describe()
        assert described is not None
        assert [each.key.id for each in described.voters] == [1, 2, 3]
        assert [each.key.id for each in described.observers] == [4]

    run_cluster(scenario, VirtualCluster(nodes=4))


async def all_equal(cluster: VirtualCluster) -> None:
    """Wait until all nodes have published the same image."""

    def images() -> list[ClusterImage]:
        return [each.quorum.metadata.image for each in cluster.nodes.values()]

    await cluster.until(lambda: len({each.offset for each in images()}) == 1, "all are equally far")
    first, *others = images()
    assert all(each == first for each in others)


def test_a_node_that_was_stopped_comes_back_while_nothing_is_committed() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        assert await create(cluster.nodes[1], "before") == "NONE"
        await cluster.until(lambda: has_topic(cluster.nodes[3], "before"), "the controller has the topic")
        await asyncio.sleep(5)
        controller = cluster.nodes.pop(3)
        committed = controller.quorum.metadata.image.offset
        await controller.stop()
        # from now on nobody has anything to write, and what it knew of the high watermark is still so
        await cluster.start(3)
        returned = cluster.nodes[3]
        await cluster.until(
            lambda: returned.quorum.metadata.image.offset >= committed, "its image is that of the log"
        )
        assert has_topic(returned, "before")

    run_cluster(scenario, VirtualCluster(roles={3: "controller"}))


def test_a_broker_that_dies_right_after_a_fail_over_is_fenced_at_once_too() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        old = cluster.leader()
        assert old is not None
        await cluster.kill(old.node_id)
        await cluster.until(lambda: cluster.leader() is not None, "another leads")
        leader = cluster.leader()
        assert leader is not None
        await asyncio.sleep(0.5)  # the new controller has dialled all brokers by then
        await cluster.kill(4)
        killed = now()
        await cluster.until(lambda: fenced(leader, 4), "the new controller has noticed")
        assert now() - killed < 1.0

    run_cluster(scenario, VirtualCluster(nodes=4))


def test_a_controller_that_is_cut_off_is_replaced_and_its_broker_fenced_by_its_session() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        old = cluster.leader()
        assert old is not None
        others = [cluster.nodes[each] for each in cluster.ids if each != old.node_id]
        cluster.network.partition([host_of(old.node_id)], [host_of(each.node_id) for each in others])
        cut = now()
        await cluster.until(lambda: any(each.quorum.controller.is_active for each in others), "another leads")
        assert now() - cut < 4.0
        await cluster.until(lambda: all(fenced(each, old.node_id) for each in others), "its broker is fenced")
        assert now() - cut < 11.0  # the new controller counts from when the voter had heard the old one
        cluster.network.heal()
        await cluster.until(lambda: not fenced(others[0], old.node_id), "it is heard again, and unfenced")
        await all_equal(cluster)

    run_cluster(scenario, VirtualCluster())


def test_a_controller_that_was_alone_registers_when_another_one_comes() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start(1)
        image = cluster.nodes[1].quorum.metadata
        await asyncio.sleep(5)
        assert not image.image.controllers  # nobody else looks for it
        await cluster.start(2)  # an observer, which may become a voter
        await cluster.until(lambda: set(image.image.controllers) == {1, 2}, "both have registered")

    run_cluster(scenario, VirtualCluster(nodes=2, voters=1, roles={2: "broker,controller"}))


def test_what_a_leader_that_was_cut_off_has_decided_is_taken_back() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        old = cluster.leader()
        assert old is not None
        others = [each for each in cluster.ids if each != old.node_id]
        cluster.network.partition([host_of(old.node_id)], [host_of(each) for each in others])
        lost = asyncio.ensure_future(create(old, "never-committed"))
        await cluster.until(
            lambda: any(cluster.nodes[each].quorum.controller.is_active for each in others), "another leads"
        )
        assert await create(cluster.nodes[others[0]], "committed") == "NONE"
        await cluster.until(lambda: not old.quorum.controller.is_active, "the old one has stepped back")
        assert not lost.done()  # its broker looks for another controller
        assert not has_topic(old, "never-committed")
        cluster.network.heal()
        assert await lost == "NONE"  # and finds one
        await all_equal(cluster)
        assert has_topic(old, "committed")

    run_cluster(scenario, VirtualCluster())


def test_what_becomes_of_a_decision_is_not_known_when_the_lead_is_lost() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        leader = cluster.leader()
        assert leader is not None
        others = [each for each in cluster.ids if each != leader.node_id]
        cluster.network.partition([host_of(leader.node_id)], [host_of(each) for each in others])
        with pytest.raises(NotController, match="may count or not"):
            await new_topic(leader, "in-doubt")

    run_cluster(scenario, VirtualCluster())


def test_a_node_that_was_away_for_long_is_sent_a_snapshot() -> None:
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "1",
    }

    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start(1, 2, 3)
        for number in range(100):
            assert await create(cluster.nodes[1], f"t{number}", partitions=3) == "NONE"
        await cluster.until(
            lambda: all(
                cluster.nodes[each].quorum.driver.core.log.start_offset > 0 for each in cluster.voter_ids
            ),
            "the voters have removed the beginning of their logs",
            seconds=300,
        )
        await cluster.start(4)
        broker = cluster.nodes[4]
        assert broker.quorum.driver.core.log.start_offset > 0
        assert has_topic(broker, "t0")
        await cluster.kill(3)
        cluster.disks[3].crash_power()
        for number in range(100, 200):
            assert await create(cluster.nodes[1], f"t{number}") == "NONE"
        await cluster.start(3)
        await all_equal(cluster)

    run_cluster(scenario, VirtualCluster(nodes=4, settings=settings))


def test_a_voter_with_a_full_disk_does_not_stop_the_others() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        leader = cluster.leader()
        assert leader is not None
        full = next(each for each in cluster.ids if each != leader.node_id)
        cluster.disks[full].capacity_bytes = 0
        for number in range(5):
            assert await create(leader, f"t{number}") == "NONE"
        assert not has_topic(cluster.nodes[full], "t4")
        cluster.disks[full].capacity_bytes = None
        await cluster.until(lambda: has_topic(cluster.nodes[full], "t4"), "it goes on where it was")
        await all_equal(cluster)

    run_cluster(scenario, VirtualCluster())


def test_a_full_disk_of_the_leader_takes_back_only_what_is_not_in_its_log() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        leader = cluster.leader()
        assert leader is not None
        controller, driver = leader.quorum.controller, leader.quorum.driver
        others = [each for each in cluster.ids if each != leader.node_id]
        cluster.network.partition([host_of(leader.node_id)], [host_of(each) for each in others])
        committed = driver.high_watermark
        written = asyncio.ensure_future(new_topic(leader, "written"))
        await cluster.until(lambda: driver.end_offset > committed, "the first topic is in the log")
        cluster.disks[leader.node_id].capacity_bytes = 0
        with pytest.raises(NotController, match="does not count"):
            await new_topic(leader, "no-room")
        assert driver.is_leader
        assert driver.high_watermark == committed
        assert not written.done()
        assert controller.decided.topic("written") is not None
        assert controller.decided.topic("no-room") is None
        cluster.disks[leader.node_id].capacity_bytes = None
        cluster.network.heal()
        await written
        await new_topic(leader, "later")
        await all_equal(cluster)
        assert all(has_topic(each, "written") and has_topic(each, "later") for each in cluster.nodes.values())

    run_cluster(scenario, VirtualCluster())


def test_requests_of_an_idle_cluster_leave_nothing_that_waits() -> None:
    """Heartbeats wait for an answer, or for another leader, which does not come for days."""

    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await asyncio.sleep(10)
        before = {each: len(node.quorum._waiting) for each, node in cluster.nodes.items()}
        await asyncio.sleep(100)
        after = {each: len(node.quorum._waiting) for each, node in cluster.nodes.items()}
        assert all(after[each] <= before[each] + 1 for each in after)  # one may be under way
        assert max(after.values()) < 10

    run_cluster(scenario, VirtualCluster(nodes=4))


@pytest.mark.parametrize("roles", ["broker,controller", "controller"])
def test_a_controller_whose_metadata_log_fails_says_it_once(
    caplog: pytest.LogCaptureFixture, roles: str
) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await cluster.until(lambda: cluster.leader() is not None, "one leads")
        failed = next(node for node in cluster.nodes.values() if not node.quorum.controller.is_active)
        cluster.disks[failed.node_id].fail("sync", errno.EIO, path_glob="*__cluster_metadata*.log", times=1)
        leader = cluster.leader()
        assert leader is not None
        await new_topic(leader, "new")
        await cluster.until(lambda: failed.life.has_failed, "it stops")
        await asyncio.sleep(1)
        told = [each.getMessage() for each in caplog.records if each.levelno >= logging.CRITICAL]
        assert len(told) == 1
        assert "the metadata log is in doubt" in told[0]
        assert "unexpected error" not in caplog.text

    run_cluster(scenario, VirtualCluster(roles=dict.fromkeys((1, 2, 3), roles)))


def test_a_broker_asks_again_what_is_committed_after_an_election(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        broker, leader = cluster.nodes[4], cluster.leader()
        assert leader is not None
        driver, asked = broker.quorum.driver, list[int]()
        ask = driver.ask_high_watermark

        async def ask_twice() -> int:
            asked.append(driver.epoch)
            if len(asked) == 1:
                raise NotLeader("it leads another epoch")
            return await ask()

        monkeypatch.setattr(driver, "ask_high_watermark", ask_twice)
        await new_topic(leader, "new")
        committed = leader.quorum.driver.high_watermark
        await broker.quorum.refreshed()
        assert len(asked) == 2
        assert broker.quorum.metadata.image.offset >= committed
        assert has_topic(broker, "new")

    run_cluster(scenario, VirtualCluster(nodes=4))


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_voter_with_a_full_disk_votes_when_there_is_room(is_stopped: bool) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        leader = cluster.leader()
        assert leader is not None
        others = [each for each in cluster.ids if each != leader.node_id]
        full = cluster.nodes[others[0]]
        cluster.disks[full.node_id].capacity_bytes = 0
        await cluster.kill(leader.node_id)
        await asyncio.sleep(30)
        assert cluster.leader() is None  # its vote is needed
        assert full.quorum.driver.failure is None
        if is_stopped:
            began = now()
            assert not await cluster.nodes.pop(full.node_id).stop()
            assert now() < began + 60
            return
        cluster.disks[full.node_id].capacity_bytes = None
        await cluster.until(lambda: cluster.leader() is not None, "one of the two leads")
        await cluster.start(leader.node_id)
        await all_equal(cluster)

    run_cluster(scenario, VirtualCluster())


def test_a_leader_with_a_full_disk_is_followed_by_another_when_it_stops() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        leader = cluster.leader()
        assert leader is not None
        cluster.disks[leader.node_id].capacity_bytes = 0
        with pytest.raises(NotController):
            await new_topic(leader, "no-room")
        assert leader.quorum.controller.is_active
        await cluster.nodes.pop(leader.node_id).stop()
        await cluster.until(lambda: cluster.leader() is not None, "another leads")
        assert await create(next(iter(cluster.nodes.values())), "one") == "NONE"

    run_cluster(scenario, VirtualCluster())


def test_a_node_that_stops_tells_of_no_change_that_it_has_not_seen() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        leader = cluster.leader()
        assert leader is not None
        broker = cluster.nodes[4]
        cluster.network.hold(host_of(leader.node_id), host_of(4))
        refreshed = asyncio.ensure_future(broker.quorum.refreshed())
        await asyncio.sleep(0.1)
        broker.quorum.driver.fail(OSError("the disk is gone"))
        with pytest.raises(MetadataLogFailed):
            await refreshed

    run_cluster(scenario, VirtualCluster(nodes=4))


def test_security_that_arrives_and_cannot_be_enforced_stops_the_nodes() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        leader = cluster.leader()
        assert leader is not None
        await leader.quorum.controller.write(
            [
                UserScramCredentialRecord(
                    name="k", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
                )
            ]
        )
        for node in cluster.nodes.values():
            reason = await node.failed()
            assert isinstance(reason, UnenforcedSecurity)
            assert str(reason).startswith("the metadata of ")  # it has started long ago

    run_cluster(scenario, VirtualCluster())


def test_controllers_that_find_what_cannot_be_enforced_say_why_they_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    credential = UserScramCredentialRecord(
        name="k", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )

    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await cluster.until(lambda: cluster.leader() is not None, "one leads")
        leader = cluster.leader()
        assert leader is not None
        await leader.quorum.controller.write([credential])
        for node_id in cluster.ids:
            await cluster.kill(node_id)
        await cluster.start()
        for node in cluster.nodes.values():
            assert isinstance(await node.failed(), UnenforcedSecurity)

    run_cluster(scenario, VirtualCluster(roles=dict.fromkeys((1, 2, 3), "controller")))
    assert "unexpected" not in caplog.text


def test_a_node_that_finds_no_leader_says_what_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    """Of another cluster, or asking where there is no controller: not only that it waits."""

    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start(1, 2, 3)
        cluster.disks[4] = MemoryDisk()
        await format_directory(
            cluster.disks[4],
            MetaProperties("b3RoZXIgY2x1c3RlciBpZA", 4, directory_of(4)),
            bootstrap=bootstrap_records(),
            listener="CONTROLLER",
            now_ms=START_MS,
        )
        servers = f"{host_of(1)}:{BROKER_PORT},{host_of(2)}:{CONTROLLER_PORT},{host_of(3)}:1"
        cluster.settings["controller.quorum.bootstrap.servers"] = servers
        starting = asyncio.ensure_future(cluster.start(4))
        await asyncio.sleep(15)
        starting.cancel()
        await asyncio.wait((starting,))

    with caplog.at_level(logging.WARNING):
        run_cluster(scenario, VirtualCluster(nodes=4))
    (waiting,) = [each for each in caplog.messages if each.startswith("waiting for a majority")]
    assert "node-1:9092 answers UNKNOWN_TOPIC_ID" in waiting
    assert "node-2:9093 belongs to another cluster than this node, which is of b3Ro" in waiting
    assert "node-3:1 refuses connections" in waiting


def test_the_last_one_does_not_wait_for_others_to_take_over() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        assert await create(cluster.nodes[1], "letters", partitions=6) == "NONE"
        for each in (1, 2):
            assert await cluster.nodes.pop(each).stop()
        began = now()
        assert await cluster.nodes.pop(3).stop()
        assert now() - began < 5.0

    run_cluster(scenario, VirtualCluster())
