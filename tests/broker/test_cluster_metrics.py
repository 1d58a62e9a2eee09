"""What the nodes of a cluster tell of the quorum, of brokers and of themselves: scraped in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.metrics.elections import kind_of
from barnabas.broker.quorum.totals import WINDOW_SECONDS, QuorumTotals, RecentTimes
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.metadata.parts import RECOVERED, RECOVERING, PartitionImage
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.raft.election import Election, State
from tests.broker.test_cluster import create
from tests.support.clusters import VirtualCluster, host_of, run_cluster
from tests.support.replication import create_topic, error_of, log_of, partition_of, send

PORT = 9404
SETTINGS = {"barnabas.metrics.listen": f":{PORT}"}
RAFT = "kafka_server_raft_metrics"
CONTROLLER = "kafka_controller_kafkacontroller"
BROKER = "kafka_server_broker_metadata_metrics"
TOPICS = "kafka_server_brokertopicmetrics"
REPLICAS = "kafka_server_replicamanager"


async def get(cluster: VirtualCluster, node_id: int, path: str) -> tuple[int, str]:
    """Status and text of what a node answers to a scraper on its own machine."""
    connection = await cluster.network.host(host_of(node_id)).connect(host_of(node_id), PORT)
    await connection.write([f"GET {path} HTTP/1.1\r\n\r\n".encode()])
    answer = b""
    while more := await connection.read(65536):
        answer += more
    connection.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


async def scrape(cluster: VirtualCluster, node_id: int) -> dict[str, float]:
    """The samples of a node by name; labels follow it in the order of their names."""
    status, text = await get(cluster, node_id, "/metrics")
    assert status == 200, text
    return {
        "/".join((sample.name, *(sample.labels[each] for each in sorted(sample.labels)))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def partition(
    leader: int,
    isr: tuple[int, ...],
    *,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    is_recovering: bool = False,
) -> PartitionImage:
    state = RECOVERING if is_recovering else RECOVERED
    return PartitionImage((1, 2, 3), isr, (), (), elr, last_known, leader, state, 0, 0, ())


def leader_id(cluster: VirtualCluster) -> int:
    leader = cluster.leader()
    assert leader is not None
    return leader.node_id


def test_all_nodes_tell_of_one_quorum() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await asyncio.sleep(2)
        told = {each: await scrape(cluster, each) for each in cluster.ids}
        leader = leader_id(cluster)
        assert {each[f"{RAFT}_current_leader"] for each in told.values()} == {leader}
        assert {each["kafka_server_metadataloader_currentcontrollerid"] for each in told.values()} == {leader}
        assert {each[f"{RAFT}_number_of_voters"] for each in told.values()} == {3}
        assert {each[f"{RAFT}_current_epoch"] for each in told.values()} == {
            cluster.nodes[1].quorum.driver.epoch
        }
        states = {
            node_id: next(
                name.rpartition("/")[2] for name in each if name.startswith(f"{RAFT}_current_state")
            )
            for node_id, each in told.items()
        }
        followers = {each: "follower" for each in (1, 2, 3) if each != leader}
        assert states == {leader: "leader", **followers, 4: "observer"}
        assert told[leader][f"{RAFT}_number_of_observers"] == 1
        assert all(f"{RAFT}_number_of_observers" not in told[each] for each in followers)
        assert told[leader][f"{RAFT}_current_vote"] == leader

    run_cluster(scenario, VirtualCluster(nodes=4, settings=SETTINGS))


def test_nodes_tell_what_their_roles_have() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        assert await create(cluster.nodes[4], "letters", partitions=3) == "NONE"
        await asyncio.sleep(2)
        controller, broker = await scrape(cluster, 1), await scrape(cluster, 4)
        assert controller[f"{CONTROLLER}_globalpartitioncount"] == 3
        assert controller[f"{CONTROLLER}_activebrokercount"] == 1
        assert controller[f"{CONTROLLER}_brokerregistrationstate/4"] == 30
        assert controller["kafka_server_socket_server_metrics_connection_count/CONTROLLER"] >= 1
        assert controller["kafka_log_log_logendoffset/0/__cluster_metadata"] > 0
        assert broker["kafka_server_replicamanager_leadercount"] == 3
        assert broker["kafka_server_kafkaserver_brokerstate"] == 3
        for prefix in (
            BROKER,
            "kafka_server_replicamanager",
            "kafka_server_kafkaserver",
            "kafka_coordinator",
        ):
            assert not [name for name in controller if name.startswith(prefix)]
        assert not [name for name in broker if name.startswith("kafka_controller")]
        both = {name.partition("/")[0] for name in (*controller, *broker)}
        assert {
            "barnabas_start_seconds",
            "process_cpu_seconds_total",
            "barnabas_brokers_fenced_total",
        } <= both

    cluster = VirtualCluster(nodes=4, roles=dict.fromkeys((1, 2, 3), "controller"), settings=SETTINGS)
    run_cluster(scenario, cluster)


def test_a_controller_is_ready_while_it_hears_from_the_active_one() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        alone = asyncio.ensure_future(cluster.start(1))
        await asyncio.sleep(5)
        assert await get(cluster, 1, "/health") == (200, "the loop turns\n")
        assert await get(cluster, 1, "/ready") == (503, "no active controller is heard from\n")
        await cluster.start(2, 3)
        await alone
        await asyncio.sleep(5)
        assert [await get(cluster, each, "/ready") for each in (1, 2, 3)] == [(200, "ready\n")] * 3
        cluster.network.partition([host_of(1), host_of(2)], [host_of(3)])
        await asyncio.sleep(10)
        assert (await get(cluster, 3, "/ready"))[0] == 503
        assert (await get(cluster, 1, "/ready"))[0] == 200
        cluster.network.heal()
        await asyncio.sleep(10)
        assert (await get(cluster, 3, "/ready"))[0] == 200

    cluster = VirtualCluster(roles=dict.fromkeys((1, 2, 3), "controller"), settings=SETTINGS)
    run_cluster(scenario, cluster)


def test_a_broker_that_waits_for_controllers_says_so() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        waiting = asyncio.ensure_future(cluster.start(4))
        await asyncio.sleep(5)
        assert await get(cluster, 4, "/ready") == (503, "no active controller is heard from\n")
        told = await scrape(cluster, 4)
        assert told["kafka_server_kafkaserver_brokerstate"] == 1
        assert told[f"{RAFT}_current_leader"] == -1
        assert told[f"{BROKER}_last_applied_record_lag_ms"] > 4000
        assert "barnabas_start_seconds" not in told
        await cluster.start(1, 2, 3)
        await waiting
        assert await get(cluster, 4, "/ready") == (200, "ready\n")
        assert (await scrape(cluster, 4))["kafka_server_kafkaserver_brokerstate"] == 3

    run_cluster(scenario, VirtualCluster(nodes=4, settings=SETTINGS))


def test_the_lag_of_a_node_that_is_cut_off_grows() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        lag, offset = f"{BROKER}_last_applied_record_lag_ms", f"{BROKER}_last_applied_record_offset"
        await asyncio.sleep(300)  # in which nothing happens
        assert max([(await scrape(cluster, each))[lag] for each in cluster.ids]) < 1000
        assert (await scrape(cluster, leader_id(cluster)))[f"{CONTROLLER}_lastappliedrecordlagms"] == 0
        cluster.network.partition([host_of(each) for each in (1, 2, 3)], [host_of(4)])
        assert await create(cluster.nodes[1], "letters") == "NONE"
        await asyncio.sleep(60)
        cut_off, leader = await scrape(cluster, 4), await scrape(cluster, leader_id(cluster))
        assert 55_000 < cut_off[lag] < 65_000
        assert cut_off[offset] < leader[offset]
        assert (
            cut_off[f"{BROKER}_last_applied_record_timestamp"]
            < leader[f"{BROKER}_last_applied_record_timestamp"]
        )
        cluster.network.heal()
        await asyncio.sleep(10)
        back = await scrape(cluster, 4)
        assert back[lag] < 1000
        assert back[offset] == (await scrape(cluster, leader_id(cluster)))[offset]
        assert (
            back[f"{BROKER}_metadata_load_error_count"] == back[f"{BROKER}_metadata_apply_error_count"] == 0
        )

    run_cluster(scenario, VirtualCluster(nodes=4, settings=SETTINGS))


def test_elections_commits_and_fenced_brokers_are_counted() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await cluster.kill(5)
        await asyncio.sleep(2)
        first = leader_id(cluster)
        told = await scrape(cluster, first)
        assert told["barnabas_brokers_fenced_total/socket"] == 1
        assert told["barnabas_brokers_fenced_total/session"] == 0
        assert told[f"{CONTROLLER}_brokerregistrationstate/5"] == 10
        assert told[f"{CONTROLLER}_timesincelastheartbeatreceivedms/4"] < 2500
        assert 0 < told[f"{RAFT}_commit_latency_avg"] <= told[f"{RAFT}_commit_latency_max"] < 1000
        before = {
            each: (await scrape(cluster, each))[f"{CONTROLLER}_newactivecontrollerscount"]
            for each in (1, 2, 3)
        }
        await cluster.kill(first)
        await cluster.until(lambda: cluster.leader() is not None, "another one leads")
        await asyncio.sleep(1)
        second = leader_id(cluster)
        told = await scrape(cluster, second)
        assert told[f"{CONTROLLER}_activecontrollercount"] == 1
        assert told[f"{CONTROLLER}_newactivecontrollerscount"] == before[second] + 1
        assert 0 < told[f"{RAFT}_election_latency_max"] < 1500
        cluster.network.partition([host_of(each) for each in cluster.ids if each != 4], [host_of(4)])
        await asyncio.sleep(20)
        told = await scrape(cluster, leader_id(cluster))
        assert told["barnabas_brokers_fenced_total/session"] == 1

    run_cluster(scenario, VirtualCluster(nodes=6, settings=SETTINGS))


def test_a_service_that_cannot_follow_is_counted_and_stops_the_node() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        follower = next(each for each in cluster.nodes.values() if each.node_id != leader_id(cluster))

        def break_down(image: ClusterImage, delta: Delta) -> None:
            raise ZeroDivisionError

        follower.quorum.metadata.subscribe(break_down)
        failed = asyncio.ensure_future(follower.failed())
        await create(cluster.nodes[leader_id(cluster)], "letters")
        assert "could not follow the metadata" in str(await failed)
        assert follower.quorum.driver.totals.apply_errors == 1
        assert follower.quorum.driver.totals.load_errors == 0

    run_cluster(scenario, VirtualCluster())


def test_recent_times_are_those_of_the_last_minute() -> None:
    times = RecentTimes()
    assert times.average(0) != times.average(0)  # not a number: nothing came
    times.observe(0.1, 1)
    times.observe(0.3, 2)
    assert (round(times.average(3), 3), times.maximum(3)) == (0.2, 0.3)
    times.observe(0.1, 2 + WINDOW_SECONDS)
    assert times.maximum(2 + 1.5 * WINDOW_SECONDS) == 0.3
    assert times.maximum(2 + 2 * WINDOW_SECONDS) == 0.1
    assert times.maximum(10 * WINDOW_SECONDS) != times.maximum(10 * WINDOW_SECONDS)


def test_an_election_takes_from_the_first_asking_to_a_leader() -> None:
    totals = QuorumTotals()
    totals.saw(State.FOLLOWER, Election(1, 2), 0)
    totals.saw(State.PROSPECTIVE, Election(1, 2), 10)
    totals.saw(State.CANDIDATE, Election(2), 11)
    totals.saw(State.UNATTACHED, Election(3), 12)
    totals.saw(State.FOLLOWER, Election(3, 3), 13)
    totals.saw(State.FOLLOWER, Election(3, 3), 14)
    assert totals.leaders == 2
    assert totals.elections.maximum(15) == totals.elections.average(15) == 3


def samples(told: dict[str, float], prefix: str) -> dict[str, float]:
    """What is told by one label, by its value."""
    return {name.rpartition("/")[2]: value for name, value in told.items() if name.startswith(prefix + "/")}


def test_leaders_and_followers_tell_how_far_followers_are_behind() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "t", [[1, 2, 3]], min_insync_replicas="2")
        assert error_of(await send(cluster.nodes[1], "t", 5)) == "NONE"
        await asyncio.sleep(2)
        leader, follower = await scrape(cluster, 1), await scrape(cluster, 2)
        assert samples(leader, "barnabas_follower_lag_records") == {"2": 0, "3": 0}
        assert samples(leader, "barnabas_follower_lag_seconds") == {"2": 0, "3": 0}
        assert samples(leader, "barnabas_follower_out_of_sync_partitions") == {"2": 0, "3": 0}
        assert not samples(leader, "barnabas_fetcher_partitions")
        assert samples(follower, "barnabas_fetcher_partitions") == {"1": 1}
        assert samples(follower, "barnabas_fetcher_lag_records") == {"1": 0}
        assert samples(follower, "barnabas_fetcher_lag_seconds") == {"1": 0}
        assert follower["kafka_server_replicafetchermanager_maxlag/Replica"] == 0
        size = log_of(cluster.nodes[1], "t").size_bytes
        assert leader[f"{TOPICS}_bytesin_total"] == size
        assert leader[f"{TOPICS}_replicationbytesout_total"] == 2 * size
        assert leader[f"{TOPICS}_bytesout_total"] == 0  # of consumers alone
        assert follower[f"{TOPICS}_replicationbytesin_total"] == size
        assert samples(follower, "barnabas_fetcher_bytes_total") == {"1": size}
        bytes_kept = sum(samples(follower, "barnabas_log_bytes").values())
        assert bytes_kept == size + metadata_bytes(cluster, 2)
        # one that lives, and does not fetch any more
        fetchers = cluster.nodes[3].broker.fetchers
        assert fetchers is not None
        await fetchers.close()
        assert error_of(await send(cluster.nodes[1], "t", 7, acks=1)) == "NONE"
        await asyncio.sleep(5)
        leader = await scrape(cluster, 1)
        assert samples(leader, "barnabas_follower_lag_records") == {"2": 0, "3": 7}
        assert 5 <= samples(leader, "barnabas_follower_lag_seconds")["3"] < 6
        await asyncio.sleep(60)
        leader = await scrape(cluster, 1)
        assert samples(leader, "barnabas_follower_out_of_sync_partitions") == {"2": 0, "3": 1}
        assert samples(leader, "barnabas_follower_lag_seconds")["3"] > 60
        assert leader[f"{REPLICAS}_isrshrinks_total"] == 1
        assert leader[f"{REPLICAS}_isrexpands_total"] == leader[f"{REPLICAS}_failedisrupdates_total"] == 0
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))


def metadata_bytes(cluster: VirtualCluster, node_id: int) -> int:
    """What the metadata log of a node takes, which is in the same directory."""
    return sum(
        log.size_bytes
        for directory in cluster.nodes[node_id].storage.all.values()
        if (log := directory.opened(CLUSTER_METADATA, 0)) is not None
    )


def controllers_and_brokers() -> VirtualCluster:
    """Controllers 1 to 3, brokers 4 to 6: all brokers may go."""
    roles = {each: "controller" if each < 4 else "broker" for each in range(1, 7)}
    return VirtualCluster(nodes=6, roles=roles, settings=SETTINGS)


async def create_at(
    cluster: VirtualCluster, assignment: list[list[int]], topic: str = "t", **configs: str
) -> None:
    brokers = {each: node for each, node in cluster.nodes.items() if each > 3}
    await create_topic(cluster, topic, assignment, nodes=brokers, **configs)


def test_partitions_that_are_not_as_they_should_be_are_counted_by_their_leader() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_at(cluster, [[4, 5, 6], [6, 5, 4]], min_insync_replicas="2")
        await create_at(cluster, [[6]], "single", min_insync_replicas="2")
        counts = ("underreplicatedpartitions", "atminisrpartitioncount", "underminisrpartitioncount")

        async def told(node_id: int) -> tuple[float, ...]:
            found = await scrape(cluster, node_id)
            return tuple(found[f"{REPLICAS}_{each}"] for each in (*counts, "leadercount"))

        assert await told(4) == (0, 0, 0, 1)
        assert await told(6) == (0, 1, 0, 2)  # a single replica is all that it can ask for
        await cluster.kill(6)
        await cluster.until(lambda: partition_of(cluster.nodes[5], "t", 1).leader == 5, "node 5 leads")
        await cluster.until(lambda: partition_of(cluster.nodes[4], "t", 1).leader == 5, "all know")
        assert await told(4) == (1, 1, 0, 1)
        assert await told(5) == (1, 1, 0, 1)
        assert (await scrape(cluster, 4))["kafka_cluster_partition_atminisr/0/t"] == 1
        await asyncio.sleep(1)
        controller = await scrape(cluster, leader_id(cluster))
        assert controller[f"{CONTROLLER}_offlinepartitionscount"] == 1
        await cluster.kill(4)
        await cluster.until(lambda: partition_of(cluster.nodes[5], "t").leader == 5, "node 5 leads both")
        assert await told(5) == (2, 0, 2, 2)

    run_cluster(scenario, controllers_and_brokers())


def test_elections_and_cuts_are_counted() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_at(cluster, [[4, 5, 6]])
        assert error_of(await send(cluster.nodes[4], "t", 5)) == "NONE"
        cluster.network.partition([host_of(4)], [host_of(each) for each in cluster.ids if each != 4])
        assert error_of(await send(cluster.nodes[4], "t", 7, acks=1)) == "NONE"
        await cluster.until(lambda: partition_of(cluster.nodes[5], "t").leader == 5, "node 5 leads")
        assert error_of(await send(cluster.nodes[5], "t", 3)) == "NONE"
        cluster.network.heal()
        await cluster.until(lambda: set(partition_of(cluster.nodes[5], "t").isr) == {4, 5, 6}, "it is back")
        assert log_of(cluster.nodes[4], "t").end_offset == 8
        told = await scrape(cluster, 4)
        assert told["barnabas_log_truncations_total"] == 1
        assert told["barnabas_log_truncated_records_total"] == 7
        assert told["barnabas_log_restarts_total"] == 0
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=60_000)
        await cluster.nodes[5].services.controller.send(request, ElectLeadersResponse)
        await cluster.until(lambda: partition_of(cluster.nodes[5], "t").leader == 4, "node 4 leads again")
        await asyncio.sleep(1)
        for each in (1, 2, 3):
            told = await scrape(cluster, each)
            kinds = samples(told, "barnabas_leader_elections_total")
            assert kinds == {"preferred": 1, "isr": 1, "elr": 0, "last_known": 0, "unclean": 0}
            prefix = "kafka_controller_controllerstats"
            assert told[f"{prefix}_uncleanleaderelections_total"] == 0
            assert told[f"{prefix}_electionfromeligibleleaderreplicas_total"] == 0

    run_cluster(scenario, controllers_and_brokers())


def test_partitions_on_their_way_are_counted_and_those_to_come_are_not_missed() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_at(cluster, [[4, 5]])
        assert error_of(await send(cluster.nodes[4], "t", 5)) == "NONE"
        await cluster.kill(6)
        moved = ReassignablePartition(partition_index=0, replicas=[4, 6])
        topic = ReassignableTopic(name="t", partitions=[moved])
        request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=60_000)
        answer = await cluster.nodes[4].services.controller.send(request, AlterPartitionReassignmentsResponse)
        assert answer.responses[0].partitions[0].error_code == 0
        await cluster.until(lambda: partition_of(cluster.nodes[4], "t").adding_replicas == (6,), "it begins")
        told = await scrape(cluster, 4)
        assert told[f"{REPLICAS}_reassigningpartitions"] == 1
        assert told[f"{REPLICAS}_underreplicatedpartitions"] == 0
        assert told["kafka_cluster_partition_replicascount/0/t"] == 2
        await cluster.start(6)
        await cluster.until(lambda: partition_of(cluster.nodes[4], "t").replicas == (4, 6), "it has ended")
        assert (await scrape(cluster, 4))[f"{REPLICAS}_reassigningpartitions"] == 0

    run_cluster(scenario, controllers_and_brokers())


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (partition(2, (1, 2)), partition(1, (1, 2)), "preferred"),
        (partition(1, (1, 2)), partition(2, (1, 2)), "isr"),  # a controlled shutdown
        (partition(1, (1, 2)), partition(2, (2,)), "isr"),
        (partition(-1, (1,)), partition(1, (1,)), "isr"),
        (partition(-1, (), elr=(2, 3)), partition(2, (2,), elr=(3,)), "elr"),
        (partition(-1, (), last_known=(1,)), partition(1, (1,), is_recovering=True), "last_known"),
        (partition(-1, (), last_known=(1,)), partition(2, (2,), is_recovering=True), "unclean"),
        (partition(-1, (1,)), partition(2, (2,), is_recovering=True), "unclean"),
        # the one that was elected uncleanly comes back before it has said that it has recovered
        (partition(-1, (), elr=(2,), is_recovering=True), partition(2, (2,), is_recovering=True), "elr"),
        (partition(1, (1, 2)), partition(3, (3,)), "isr"),  # the end of a move
        (partition(1, (1, 2)), partition(1, (1,)), None),
        (partition(1, (1,)), partition(-1, (), elr=(1,)), None),
    ],
)
def test_the_kind_of_an_election(old: PartitionImage, new: PartitionImage, kind: str | None) -> None:
    assert kind_of(old, new) == kind
