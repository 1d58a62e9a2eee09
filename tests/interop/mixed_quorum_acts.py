"""What is done to a cluster of both kinds of nodes, and what is to be true of it afterwards.

`MixedActs` makes topics, settings, producer ids and records by way of every broker, under the leader of the
moment, remembers them, and asks every broker for all of them. Apache Kafka's own tools do it, but for what
they cannot: producer ids come in blocks of a thousand, so a broker is asked for more than one block.
"""

from __future__ import annotations

import base64
import re
from functools import partial

from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.interop.dump import sections
from tests.support.kafka_tools import Done
from tests.support.mixed_cluster import MixedCluster
from tests.support.mixed_node import ClusterFailed, MixedNode
from tests.support.raw_client import RawClient
from tests.support.raw_quorum import METADATA

BLOCK = 1000  # producer ids that a broker is given at a time
FIRST_SNAPSHOT = "00000000000000000000-0000000000.checkpoint"  # written by formatting, and never fetched
_POSITION = re.compile(r" position: \d+")
_BATCH = re.compile(r"baseOffset: (\d+) lastOffset: (\d+)")
_RECORD = re.compile(r"\| offset: (\d+)")


class MixedActs:
    """`brokers` are those through which things are done; more may be appended."""

    def __init__(self, cluster: MixedCluster, *brokers: MixedNode) -> None:
        self.cluster = cluster
        self.brokers = list(brokers)
        self.topics: dict[str, str] = {}  # by name, their retention.ms
        self.records: dict[str, list[str]] = {}
        self.producer_ids: list[int] = []
        self.led: list[str] = []  # the leaders under which things were made

    # --- changes

    def make_things(self) -> None:
        """A topic over all brokers, a setting, producer ids and records by way of each of them."""
        leader = self.cluster.settle()
        self.led.append(str(leader))
        self.wait_for_brokers()
        for broker in self.brokers:
            name = f"of-{len(self.topics)}-{leader.kind}-{leader.node_id}-{broker.kind}"
            self._make_topic(broker, name)
            self._produce(broker, name)
            self._take_producer_ids(broker)
        assert self.cluster.leader() is leader, "the leader has changed meanwhile"

    def make_large_topics(self, count: int, size_bytes: int) -> None:
        """Topics with a setting that is that large."""
        broker = self.brokers[0]
        text = ",".join(f"{partition}:{broker.node_id}" for partition in range(size_bytes))[:size_bytes]
        text = text.rpartition(",")[0]
        for number in range(count):
            name = f"large-{number}"
            self.topics[name] = retention_ms = str(200_000 + number)
            values = (f"retention.ms={retention_ms}", f"leader.replication.throttled.replicas={text}")
            configs = [part for value in values for part in ("--config", value)]
            self.tool("topics", broker, "--create", "--topic", name, "--partitions", "1", *configs)

    def _make_topic(self, broker: MixedNode, name: str) -> None:
        placed = ",".join(str(each.node_id) for each in self.brokers)
        self.tool("topics", broker, "--create", "--topic", name, "--replica-assignment", placed)
        retention_ms = str(100_000 + len(self.topics))
        entity = ("--entity-type", "topics", "--entity-name", name)
        self.tool("configs", broker, "--alter", *entity, "--add-config", f"retention.ms={retention_ms}")
        self.topics[name] = retention_ms

    def _produce(self, broker: MixedNode, name: str) -> None:
        """Records with keys, so that every partition, and so every broker, gets some."""
        records = [f"{key}:{name}" for key in range(20)]
        options = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
        given = "".join(f"{each}\n" for each in records)
        self.tool("console-producer", broker, "--topic", name, *options, given=given)
        self.records[name] = records

    def _take_producer_ids(self, broker: MixedNode) -> None:
        with RawClient(broker.port) as client:
            for _ in range(BLOCK + 1):
                producer_id = self.cluster.wait_for("a producer id", lambda: _producer_id(client))
                self.producer_ids += producer_id

    def replace_voter(self, old: MixedNode, new_id: int, kind: str) -> MixedNode:
        """Have a controller of that kind vote in the place of another, by `kafka-metadata-quorum`."""
        cluster, broker = self.cluster, self.brokers[0]
        new = cluster.add_controller(new_id, kind)
        new.start()
        cluster.wait_for(f"{new} has the log", lambda: new_id in self._caught_up_observers())
        self.tool("metadata-quorum", broker, "--command-config", str(new.properties), then=["add-controller"])
        self.wait_for_voter(new)
        self.remove_voter(old)
        return new

    def remove_voter(self, node: MixedNode) -> None:
        """The same without another one in its place."""
        command = ["remove-controller", "--controller-id", str(node.node_id)]
        directory_id = self._directory_id(node)
        self.tool(
            "metadata-quorum", self.brokers[0], then=[*command, "--controller-directory-id", directory_id]
        )
        self.cluster.wait_for(f"{node} does not vote", lambda: node not in self.cluster.voters())

    def raise_kraft_version(self) -> None:
        """Move the voters from the settings to the log: possible once all of them have told what they are."""
        asked = ["--bootstrap-server", self.brokers[0].address, "upgrade", "--feature", "kraft.version=1"]

        def is_raised() -> bool:
            done = self.cluster.tools.run("features", *asked)
            assert done.status == 0 or "not all of the voters support it" in done.out, done
            return done.status == 0

        self.cluster.wait_for("kraft.version 1", is_raised)

    def _caught_up_observers(self) -> list[int]:
        told = self.cluster.describe()
        if told is None:
            return []
        return [each.replica_id for each in told.observers if each.log_end_offset >= told.high_watermark - 1]

    def _directory_id(self, node: MixedNode) -> str:
        told = self.cluster.wait_for("an answer of the leader", self.cluster.describe)
        (found,) = (each for each in told.current_voters if each.replica_id == node.node_id)
        return base64.urlsafe_b64encode(bytes(found.replica_directory_id)).decode().rstrip("=")

    def tool(
        self, name: str, broker: MixedNode, *arguments: str, then: list[str] | None = None, given: str = ""
    ) -> Done:
        """Run a tool of Apache Kafka against a broker; `then` is the command of tools that have several."""
        asked = ["--bootstrap-server", broker.address, *arguments, *(then or [])]

        def run() -> Done | None:
            done = self.cluster.tools.run(name, *asked, given=given)
            # a broker of Apache Kafka that keeps a connection to a former leader hands its answer on
            return None if "NotLeaderOrFollowerException" in done.err else done

        done = self.cluster.wait_for(f"an answer to {name} {asked}", run)
        if done.status != 0:
            raise ClusterFailed(f"{name} {asked}: {done}\n{self.cluster.diagnosis()}")
        return done

    # --- what is to be true

    def wait_for_brokers(self) -> None:
        """Wait until all brokers serve and know of one another."""
        ids = sorted(each.node_id for each in self.brokers)
        for broker in self.brokers:
            self.cluster.wait_for(f"brokers {ids} at {broker}", partial(_are_brokers, broker, ids))

    def check_things(self) -> None:
        """Every broker tells of everything that was made; every record is there."""
        for broker in self.brokers:
            told = self.tool("topics", broker, "--describe").out
            found = dict(re.findall(r"^Topic: (\S+).*retention\.ms=(\d+)", told, re.MULTILINE))
            assert found == self.topics, broker
            assert "Leader: none" not in told, told
        for place, (name, records) in enumerate(self.records.items()):
            assert self._consume(self.brokers[place % len(self.brokers)], name) == sorted(records), name
        assert len(set(self.producer_ids)) == len(self.producer_ids), "a producer id was given twice"

    def _consume(self, broker: MixedNode, name: str) -> list[str]:
        options = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
        count = str(len(self.records[name]))
        read = ("--from-beginning", "--max-messages", count, "--timeout-ms", "60000", "--group", f"g-{name}")
        return sorted(self.tool("console-consumer", broker, "--topic", name, *read, *options).out.split())

    def snapshots(self, node: MixedNode) -> set[str]:
        """The names of the snapshots that a node has."""
        found = {each.name for each in (node.data / f"{METADATA}-0").glob("*.checkpoint")}
        return found - {FIRST_SNAPSHOT}

    def wait_for_snapshot(self, node: MixedNode, size_bytes: int = 1) -> None:
        """Wait until a node has a snapshot of at least that size."""
        folder = node.data / f"{METADATA}-0"
        self.cluster.wait_for(
            f"a snapshot of {node}",
            lambda: any((folder / each).stat().st_size >= size_bytes for each in self.snapshots(node)),
        )

    def wait_for_voter(self, node: MixedNode) -> None:
        self.cluster.wait_for(f"{node} votes", lambda: node in self.cluster.voters())

    def wait_for_address(self, node: MixedNode) -> None:
        """Wait until the quorum knows where a voter has moved to."""
        what = f"{node} is known at {node.address}"
        self.cluster.wait_for(what, lambda: node.address in self._addresses())

    def _addresses(self) -> set[str]:
        """Where the voters are, by what a broker is told."""
        told = self.tool("metadata-quorum", self.brokers[0], then=["describe", "--status"]).out
        return set(re.findall(r"CONTROLLER://([^\"]+)", told))

    def stop_and_check_logs(self) -> None:
        """`kafka-dump-log` says the same of every node's log, up to what is committed now. A node that left
        before has less of it at the end; one that was sent a snapshot, at the beginning."""
        self.cluster.settle()
        running = [each for each in self.cluster.nodes.values() if each.is_running]
        told = self.cluster.wait_for("an answer of the leader", self.cluster.describe)
        self.cluster.stop()
        dumped = {node: self._dump(node) for node in self.cluster.nodes.values()}
        reference: dict[int, str] = {}
        for log in dumped.values():
            reference |= {offset: said for offset, said in log.items() if offset < told.high_watermark}
        for node, log in dumped.items():
            last = max(reference) if node in running else max(log)
            expected = {each: said for each, said in reference.items() if min(log) <= each <= last}
            assert {each: said for each, said in log.items() if each in reference} == expected, node

    def _dump(self, node: MixedNode) -> dict[int, str]:
        """What the tool says of each batch and its records, by the batch's offset."""
        files = sorted((node.data / f"{METADATA}-0").glob("*.log"))
        asked = ["--cluster-metadata-decoder", "--files", ",".join(map(str, files))]
        done = self.cluster.tools.run("dump-log", *asked)
        assert done.status == 0, done
        found: dict[int, str] = {}
        offset = -1
        for lines in sections(done.out, node.data).values():
            for line in lines:
                if begins := _BATCH.match(line):
                    offset = int(begins[1])
                    found[offset] = _POSITION.sub("", line)
                elif _RECORD.match(line):
                    found[offset] += "\n" + line
                else:
                    assert re.match(r"Log starting offset|Snapshot end offset", line), line
        return found


def _producer_id(client: RawClient) -> list[int] | None:
    """One in a list; None where the broker has none at the moment."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = client.ask(request, 2, InitProducerIdResponse)
    return None if answer.error_code else [answer.producer_id]


def _are_brokers(broker: MixedNode, ids: list[int]) -> bool:
    return _brokers(broker) == ids


def _brokers(broker: MixedNode) -> list[int]:
    try:
        with RawClient(broker.port) as client:
            answer = client.ask(
                MetadataRequest(topics=[], allow_auto_topic_creation=False), 9, MetadataResponse
            )
    except (OSError, EOFError):
        return []
    return sorted(each.node_id for each in answer.brokers)
