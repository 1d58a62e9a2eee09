"""The long form of `test_mixed_quorum`: quorums of Apache Kafka 4.3.0 and Barnabas, as real processes.

Each scenario has a cluster of its own, with a broker of either kind, and ends with the same checks: all that
was made under any leader is told by every broker, `kafka-dump-log` says the same of every node's log, and
Apache Kafka complains of nothing in its own logs. It takes about ten minutes.

    python -m tests.interop.mixed_quorum_run                    all scenarios, with both kinds in the majority
    python -m tests.interop.mixed_quorum_run leaders kills      some of them
    python -m tests.interop.mixed_quorum_run --control leaders  Apache Kafka alone: what it logs by itself
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from tests.interop.mixed_quorum_acts import MixedActs
from tests.support.apache_kafka import KafkaFailed
from tests.support.kafka_tools import KafkaTools
from tests.support.mixed_cluster import MixedCluster
from tests.support.mixed_node import BARNABAS, KAFKA, ClusterFailed, MixedNode

MIXED = ((KAFKA, KAFKA, BARNABAS), (BARNABAS, BARNABAS, KAFKA))
CONTROL = ((KAFKA, KAFKA, KAFKA),)
AUTO_JOIN = {"controller.quorum.auto.join.enable": "true"}
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
KILLS = 6
# more than one answer of Fetch, and of FetchSnapshot, holds
LARGE_TOPICS, LARGE_BYTES = 60, 30_000


class Stage(NamedTuple):
    """Where a scenario takes place: `kinds` are those of the controllers 1, 2 and 3."""

    home: Path
    kinds: Sequence[str]
    tools: KafkaTools

    @property
    def broker_kinds(self) -> list[str]:
        return [KAFKA, KAFKA] if BARNABAS not in self.kinds else [BARNABAS, KAFKA]

    @contextmanager
    def cluster(self, *, static: bool = False, brokers: int = 2) -> Iterator[MixedActs]:
        """A cluster that runs; the checks follow what is done to it."""
        controllers = dict(enumerate(self.kinds, 1))
        with MixedCluster(
            self.home, controllers, self.tools, static=static, settings=SNAPSHOTS, newcomers=(4, 5, 6)
        ) as cluster:
            kinds = self.broker_kinds[:brokers]
            acts = MixedActs(cluster, *(cluster.add_broker(11 + n, kind) for n, kind in enumerate(kinds)))
            cluster.start()
            acts.wait_for_brokers()
            yield acts
            acts.check_things()
            acts.stop_and_check_logs()
            if complaints := cluster.complaints():
                raise ClusterFailed("Apache Kafka complains:\n" + "\n".join(complaints))

    def other_than(self, node: MixedNode) -> str:
        """The kind that takes the place of a node."""
        return node.kind if BARNABAS not in self.kinds else BARNABAS if node.kind == KAFKA else KAFKA


def leaders(stage: Stage, *, static: bool = False) -> None:
    """Each voter is made to lead."""
    with stage.cluster(static=static) as acts:
        for node_id in (3, 1, 2):
            acts.cluster.make_lead(acts.cluster.nodes[node_id])
            acts.make_things()


def static_leaders(stage: Stage) -> None:
    """The same with voters by the settings (kraft.version 0)."""
    leaders(stage, static=True)


def replaced(stage: Stage) -> None:
    """Each voter is replaced by one of the other kind: under another leader, under itself, and under one that
    has come in the place of another."""
    with stage.cluster() as acts:
        cluster = acts.cluster
        for old_id, new_id, leader_id in ((1, 4, 3), (2, 5, 2), (3, 6, 4)):
            old = cluster.nodes[old_id]
            cluster.make_lead(cluster.nodes[leader_id])
            acts.replace_voter(old, new_id, stage.other_than(old))
            cluster.settle()
            old.stop()
            acts.make_things()
        assert sorted(each.node_id for each in cluster.voters()) == [4, 5, 6]
        for node_id in (5, 6):
            cluster.make_lead(cluster.nodes[node_id])
            acts.make_things()


def kills(stage: Stage) -> None:
    """The leader is killed, and comes back."""
    with stage.cluster() as acts:
        for _ in range(KILLS):
            leader = acts.cluster.settle()
            leader.kill()
            acts.make_things()
            leader.start()


def upgraded(stage: Stage) -> None:
    """kraft.version is upgraded under the one that is alone of its kind; then a voter is replaced."""
    with stage.cluster(static=True) as acts:
        cluster, last = acts.cluster, acts.cluster.nodes[3]
        cluster.make_lead(last)
        acts.raise_kraft_version()
        acts.make_things()
        acts.replace_voter(cluster.nodes[1], 4, stage.other_than(cluster.nodes[1]))
        cluster.nodes[1].stop()
        for node_id in (2, 4):
            cluster.make_lead(cluster.nodes[node_id])
            acts.make_things()


def moved(stage: Stage) -> None:
    """Voters of both kinds move to other ports: the others find them there, and they lead. One stays, which
    is still found by the settings."""
    with stage.cluster() as acts:
        cluster = acts.cluster
        for node_id in (1, 3):
            node = cluster.nodes[node_id]
            node.stop()
            node.listen()
            node.start()
            acts.wait_for_address(node)
        for node_id in (3, 1):
            cluster.make_lead(cluster.nodes[node_id])
            acts.make_things()


def joined(stage: Stage) -> None:
    """Controllers of both kinds join by themselves, under a leader of the other kind, and lead."""
    with stage.cluster() as acts:
        cluster = acts.cluster
        for leader_id, new_id, old_id in ((1, 4, 2), (3, 5, 1)):
            leader, old = cluster.nodes[leader_id], cluster.nodes[old_id]
            cluster.make_lead(leader)
            node = cluster.add_controller(new_id, stage.other_than(leader), AUTO_JOIN)
            node.start()
            acts.wait_for_voter(node)
            acts.remove_voter(old)
            old.stop()
            cluster.make_lead(node)
            acts.make_things()


def large(stage: Stage) -> None:
    """Brokers come to metadata that fills several answers, under leaders of both kinds."""
    with stage.cluster(brokers=1) as acts:
        acts.make_large_topics(LARGE_TOPICS, LARGE_BYTES)
        for leader_id, new_id in ((3, 13), (1, 14)):
            leader = acts.cluster.nodes[leader_id]
            acts.cluster.make_lead(leader)
            acts.wait_for_snapshot(leader, 2**20)
            broker = acts.cluster.add_broker(new_id, stage.other_than(leader))
            broker.start()
            acts.brokers.append(broker)
            acts.make_things()


SCENARIOS: dict[str, Callable[[Stage], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (leaders, static_leaders, replaced, kills, upgraded, moved, joined, large)
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="one quorum of Apache Kafka and Barnabas")
    parser.add_argument("scenarios", nargs="*", choices=[[], *SCENARIOS], metavar="SCENARIO")
    parser.add_argument("--control", action="store_true", help="Apache Kafka alone")
    parser.add_argument("--home", type=Path, help="where the nodes are, and stay (a temporary folder)")
    arguments = parser.parse_args(argv)
    home = arguments.home or Path(mkdtemp(prefix="mixed-quorum-"))
    failed = 0
    for name in arguments.scenarios or SCENARIOS:
        for kinds in CONTROL if arguments.control else MIXED:
            failed += not _play(name, kinds, home / name / "-".join(kinds))
    print(f"{failed} failed; the nodes' homes are in {home}")
    return 1 if failed else 0


def _play(name: str, kinds: Sequence[str], home: Path) -> bool:
    began = time.monotonic()
    why = ""
    try:
        with KafkaTools() as tools:
            SCENARIOS[name](Stage(home, kinds, tools))
    except (AssertionError, KafkaFailed) as error:
        why = str(error)
    seconds = time.monotonic() - began
    print(f"{name:16}{'-'.join(kinds):26}{'FAILED' if why else 'passed'} after {seconds:.0f} s", flush=True)
    if why:
        (home / "failure.txt").write_text(why)
        print(why[:1000], flush=True)
    return not why


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
