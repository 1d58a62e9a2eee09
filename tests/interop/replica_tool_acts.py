"""What happens to a cluster between the steps of replica_tool_steps.py, the same on both systems.

Nodes go and come back, moves begin that no tool would begin, and it is waited until every broker has heard.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
)
from tests.support.apache_kafka import java
from tests.support.combined_cluster import CombinedCluster
from tests.support.raw_client import TIMEOUT_S, wait_until
from tests.support.raw_transactions import name_of

_METADATA, _ALTER, _LIST, _SET, _DESCRIBE = 12, 0, 0, 1, 4
_GROUP, _TIMEOUT = 32, "consumer.session.timeout.ms"
_SHORTEST_MS = 45_000
NOBODY = -1


class ClusterAct(NamedTuple):
    """Something that is done to a cluster; `does` tells what came of it."""

    name: str
    does: Callable[[CombinedCluster], str]


class State(NamedTuple):
    """What a broker says of a partition."""

    leader: int
    isr: frozenset[int]


def states(cluster: CombinedCluster, node_id: int) -> dict[tuple[str, int], State]:
    """All partitions, as a broker knows them."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    with cluster.client(node_id) as client:
        told = client.ask(request, _METADATA, MetadataResponse)
    return {
        (topic.name or "", each.partition_index): State(each.leader_id, frozenset(each.isr_nodes))
        for topic in told.topics
        for each in topic.partitions
    }


def running(cluster: CombinedCluster) -> list[int]:
    """The nodes that run."""
    return [each for each in cluster.ids if cluster.is_running(each)]


def _until_all_say(cluster: CombinedCluster, what: str, holds: Callable[[int], bool]) -> None:
    for node_id in running(cluster):
        wait_until(lambda node_id=node_id: holds(node_id), f"{what}, as node {node_id} says")  # type: ignore[misc]


def settled(expected: Mapping[tuple[str, int], tuple[int, Iterable[int]]]) -> ClusterAct:
    """Until all brokers know of these leaders and ISRs."""
    wanted = {place: State(leader, frozenset(isr)) for place, (leader, isr) in expected.items()}

    def does(cluster: CombinedCluster) -> str:
        def is_known(node_id: int) -> bool:
            found = states(cluster, node_id)
            return all(found.get(place) == state for place, state in wanted.items())

        _until_all_say(cluster, f"{wanted}", is_known)
        return ""

    return ClusterAct(f"{', '.join(f'{topic}-{partition}' for topic, partition in wanted)} settled", does)


def known_to_all(cluster: CombinedCluster, number: int) -> None:
    """Wait until all brokers have what is in the metadata by now: the setting of a group that does not exist
    comes after it. `number` is another one each time."""
    value = str(_SHORTEST_MS + number)
    setting = AlterableConfig(name=_TIMEOUT, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=_GROUP, resource_name="barrier", configs=[setting])
    with cluster.client(running(cluster)[0]) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = client.ask(request, _SET, IncrementalAlterConfigsResponse)
        assert name_of(answer.responses[0].error_code) == "NONE"
    asked = DescribeConfigsResource(
        resource_type=_GROUP, resource_name="barrier", configuration_keys=[_TIMEOUT]
    )

    def has_it(node_id: int) -> bool:
        with cluster.client(node_id) as client:
            told = client.ask(DescribeConfigsRequest(resources=[asked]), _DESCRIBE, DescribeConfigsResponse)
        return [each.value for each in told.results[0].configs] == [value]

    _until_all_say(cluster, "the metadata has come", has_it)


def whole() -> ClusterAct:
    """Until all partitions have leaders and all their replicas are in sync."""

    def is_whole(each: MetadataResponsePartition, _: Collection[int]) -> bool:
        return each.leader_id != NOBODY and len(each.isr_nodes) == len(each.replica_nodes)

    return _synced("all replicas in sync", is_whole)


def joined() -> ClusterAct:
    """Until all replicas of brokers that run are in sync with their leaders, where there are any."""

    def are_in_sync(each: MetadataResponsePartition, there: Collection[int]) -> bool:
        return each.leader_id == NOBODY or {*each.replica_nodes} & {*there} == {*each.isr_nodes}

    return _synced("all replicas of running brokers in sync", are_in_sync)


def _synced(what: str, is_synced: Callable[[MetadataResponsePartition, Collection[int]], bool]) -> ClusterAct:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)

    def does(cluster: CombinedCluster) -> str:
        def are_synced(node_id: int) -> bool:
            with cluster.client(node_id) as client:
                told = client.ask(request, _METADATA, MetadataResponse)
            partitions = [each for topic in told.topics for each in topic.partitions]
            return all(is_synced(each, running(cluster)) for each in partitions)

        _until_all_say(cluster, what, are_synced)
        return ""

    return ClusterAct(what, does)


def killed(node_id: int) -> ClusterAct:
    """kill -9, and all others know that it is gone."""

    def does(cluster: CombinedCluster) -> str:
        cluster.kill(node_id)
        cluster.wait_until_fenced(node_id)
        return ""

    return ClusterAct(f"node {node_id} killed", does)


def stopped(node_id: int) -> ClusterAct:
    """A clean stop."""

    def does(cluster: CombinedCluster) -> str:
        cluster.stop(node_id)
        cluster.wait_until_fenced(node_id)
        return ""

    return ClusterAct(f"node {node_id} stopped", does)


def started(node_id: int) -> ClusterAct:
    """A node that comes back."""

    def does(cluster: CombinedCluster) -> str:
        cluster.spawn(node_id)
        cluster.wait_until_active(len(running(cluster)))
        return ""

    return ClusterAct(f"node {node_id} started", does)


def moved(topic: str, partition: int, *replicas: int) -> ClusterAct:
    """A move that is begun by hand: the tool begins none to a broker that is down."""
    asked = ReassignablePartition(partition_index=partition, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=60_000, topics=[ReassignableTopic(name=topic, partitions=[asked])]
    )

    def does(cluster: CombinedCluster) -> str:
        with cluster.client(running(cluster)[0]) as client:
            answer = client.ask(request, _ALTER, AlterPartitionReassignmentsResponse)
        return " ".join(name_of(each.error_code) for each in answer.responses[0].partitions)

    return ClusterAct(f"{topic}-{partition} is to move to {replicas}", does)


def arrived() -> ClusterAct:
    """Until no partition moves any more."""
    request = ListPartitionReassignmentsRequest(timeout_ms=60_000, topics=None)

    def does(cluster: CombinedCluster) -> str:
        def have_arrived() -> bool:
            with cluster.client(running(cluster)[0]) as client:
                return not client.ask(request, _LIST, ListPartitionReassignmentsResponse).topics

        wait_until(have_arrived, "no partition moves")
        return ""

    return ClusterAct("all moves have arrived", does)


def verified(topics: str, partitions: int) -> ClusterAct:
    """kafka-replica-verification, which never ends by itself: its first report."""

    def does(cluster: CombinedCluster) -> str:
        arguments = ["--broker-list", cluster.bootstrap, "--topics-include", topics]
        command = java("org.apache.kafka.tools.ReplicaVerificationTool", *arguments)
        command += ["--report-interval-ms", "100"]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if "max lag" in line and f"among {partitions} partitions" in line:
                        return line.partition(": ")[2].strip()
                raise AssertionError("kafka-replica-verification has ended by itself")
            finally:
                process.kill()

    return ClusterAct(f"kafka-replica-verification --topics-include {topics}", does)


def told_by_barnabas(*arguments: str) -> ClusterAct:
    """What `barnabas cluster` says to machines."""

    def does(cluster: CombinedCluster) -> str:
        command = [sys.executable, "-m", "barnabas", "cluster", *arguments, "--json"]
        command += ["--bootstrap", cluster.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        for name in ("cluster_id", "controller_id", "quorum", "features", "log_dirs"):
            told.pop(name, None)  # of other tests
        for broker in told.get("brokers", ()):
            assert broker["bytes"] is None or broker["bytes"] >= 0
            del broker["port"], broker["bytes"]
        for shown in told.get("shown", ()):
            shown["in_sync"].sort()
        return json.dumps(told)

    return ClusterAct(f"barnabas cluster {' '.join(arguments)}", does)
