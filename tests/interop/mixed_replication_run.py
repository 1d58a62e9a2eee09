"""The long form of `test_mixed_replication`: partitions whose replicas are on brokers of Apache Kafka 4.3.0
and of Barnabas, as real processes, under a controller of each kind.

Each scenario has a cluster of its own and ends with the same checks: the replicas' files are equal
(`replica_files` says what of them), and Apache Kafka complains of nothing in its own logs.

    python -m tests.interop.mixed_replication_run                      all of it
    python -m tests.interop.mixed_replication_run stories              one scenario
    python -m tests.interop.mixed_replication_run kills --rounds 50    longer
    python -m tests.interop.mixed_replication_run --control kills      Apache Kafka alone: what it logs then
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from tests.interop.mixed_coordinators import SETTINGS as COORDINATED
from tests.interop.mixed_coordinators import Coordinated
from tests.interop.mixed_load import MixedLoad
from tests.interop.mixed_partitions import STORIES, tell
from tests.interop.mixed_replication_acts import ReplicationActs
from tests.support.group_members import NEW_JAVA
from tests.support.kafka_tools import KafkaTools
from tests.support.mixed_cluster import MixedCluster
from tests.support.mixed_node import BARNABAS, KAFKA, MixedNode

A, B, C = 11, 12, 13
SETTINGS = {
    # a broker that is killed is fenced soon, and one that is busy is not
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "log.cleaner.backoff.ms": "500",
    "transaction.state.log.replication.factor": "2",
}
SLOW_TO_FENCE = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "4000"}


class Stage(NamedTuple):
    """Where a scenario takes place."""

    home: Path
    controller: str
    is_control: bool
    rounds: int
    tools: KafkaTools

    @contextmanager
    def cluster(self, *kinds: str, **settings: str) -> Iterator[ReplicationActs]:
        """A cluster that runs; the checks follow what is done to it."""
        home = self.home / "-".join(kinds)
        more = {key.replace("_", "."): value for key, value in settings.items()}
        with MixedCluster(home, {1: self.controller}, self.tools, settings=SETTINGS | more) as cluster:
            for node_id, kind in zip((A, B, C), kinds, strict=False):
                cluster.add_broker(node_id, KAFKA if self.is_control else kind)
            cluster.start()
            acts = ReplicationActs(cluster)
            acts.wait_for_brokers()
            yield acts
            acts.stop_and_compare()


def stories(stage: Stage) -> None:
    """What can happen to a partition while a replica is away: each kind leads, and the other one is killed,
    or stopped."""
    for end in (MixedNode.kill, MixedNode.stop):
        with stage._replace(home=stage.home / end.__name__).cluster(KAFKA, BARNABAS) as acts:
            for leader, other in ((A, B), (B, A)):
                tell(acts, STORIES, leader, other, end)


def lagging(stage: Stage) -> None:
    """Each kind in turn is stopped for so long that the leader has it leave the ISR, by AlterPartition."""
    with stage.cluster(KAFKA, BARNABAS, **SLOW_TO_FENCE) as acts:
        topics = _make_topics(acts)
        with MixedLoad(acts.cluster, acts.bootstrap, topics) as load:
            load.progress()
            for slow, _ in islice(cycle(((A, B), (B, A))), 2 * stage.rounds):
                acts.lag(slow, [name for name in topics if acts.topics[name][0] != slow])
                load.progress()
        _check(acts, load)


def moved(stage: Stage) -> None:
    """Under load, a partition moves from one kind to the other, and back."""
    with stage.cluster(KAFKA, BARNABAS) as acts:
        topics = _make_topics(acts)
        with MixedLoad(acts.cluster, acts.bootstrap, topics) as load:
            for target in islice(cycle(([A], [B], [A, B], [B], [A], [B, A])), 6 * stage.rounds):
                for name in topics:
                    acts.reassign(name, target)
                load.progress()
        _check(acts, load)


def swapped(stage: Stage) -> None:
    """Under load, each broker stops, and the other kind goes on with its directory; and back."""
    with stage.cluster(KAFKA, BARNABAS) as acts:
        topics = _make_topics(acts)
        with MixedLoad(acts.cluster, acts.bootstrap, topics) as load:
            for swapping in islice(cycle((A, B)), 4 * stage.rounds):
                load.progress()
                node = acts.cluster.nodes[swapping]
                node.stop()
                load.progress()
                node.kind = KAFKA if node.kind == BARNABAS or stage.is_control else BARNABAS
                node.start_again()
                for name in topics:
                    acts.wait_for_state(name, None, [A, B])
                for name in topics:
                    acts.lead(name, swapping)
        _check(acts, load)


def kills(stage: Stage) -> None:
    """Under load, brokers are killed one after another, and leaders move."""
    for kinds in ((KAFKA, BARNABAS, KAFKA), (BARNABAS, KAFKA, BARNABAS)):
        with stage.cluster(*kinds) as acts:
            topics = _make_topics(acts)
            with MixedLoad(acts.cluster, acts.bootstrap, topics) as load:
                for victim in islice(cycle((A, B, C)), 3 * stage.rounds):
                    _kill(acts, load, victim)
            _check(acts, load)


def coordinators(stage: Stage) -> None:
    """Coordinators move between the kinds, and are killed, while groups and transactions go on."""
    kinds = (KAFKA, KAFKA, BARNABAS) if stage.controller == BARNABAS else (BARNABAS, BARNABAS, KAFKA)
    with (
        stage.cluster(*kinds, **COORDINATED) as acts,
        Coordinated(acts, ("confluent", NEW_JAVA), java=True) as coordinated,
    ):
        for node_id in islice(cycle((C, A, C, B)), 4 * stage.rounds):
            coordinated.move_to(node_id)
            coordinated.kill(node_id)
        coordinated.finish()
        print(f"  {coordinated.told()}", flush=True)


def _kill(acts: ReplicationActs, load: MixedLoad, victim: int) -> None:
    everybody = sorted(each.node_id for each in acts.brokers)
    node = acts.cluster.nodes[victim]
    load.progress()
    node.kill()
    for name in acts.topics:
        acts.wait_for_state(name, None, [each for each in everybody if each != victim])
    load.progress()
    node.start_again()
    for name in acts.topics:
        acts.wait_for_state(name, None, everybody)
    for name in acts.topics:
        acts.lead(name, victim)  # it serves what it has caught up with
    load.progress()
    for name, place in zip(acts.topics, cycle(everybody), strict=False):
        acts.lead(name, place)


def _make_topics(acts: ReplicationActs) -> list[str]:
    """A topic led by each broker, with replicas on all."""
    everybody = [each.node_id for each in acts.brokers]
    for place, leader in enumerate(everybody):
        replicas = everybody[place:] + everybody[:place]
        acts.create(f"led-by-{leader}", replicas, min_insync_replicas=max(1, len(everybody) - 1))
    return list(acts.topics)


def _check(acts: ReplicationActs, load: MixedLoad) -> None:
    for name in acts.topics:
        load.check(name, acts.read(name))
    print(f"  {sum(load.sent.values()):,} records, each there once and in order", flush=True)


SCENARIOS: dict[str, Callable[[Stage], None]] = {
    each.__name__: each for each in (stories, lagging, moved, swapped, kills, coordinators)
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="partitions replicated by Apache Kafka and Barnabas")
    parser.add_argument("scenarios", nargs="*", choices=[[], *SCENARIOS], metavar="SCENARIO")
    parser.add_argument("--control", action="store_true", help="Apache Kafka alone")
    parser.add_argument("--controller", choices=(KAFKA, BARNABAS), help="that kind only")
    parser.add_argument("--rounds", type=int, default=2, help="of those scenarios that have rounds")
    parser.add_argument("--home", type=Path, help="where the nodes are, and stay (a temporary folder)")
    arguments = parser.parse_args(argv)
    home = arguments.home or Path(mkdtemp(prefix="mixed-replication-"))
    controllers = [arguments.controller] if arguments.controller else [KAFKA, BARNABAS]
    failed = 0
    for name in arguments.scenarios or SCENARIOS:
        for controller in [KAFKA] if arguments.control else controllers:
            with KafkaTools() as tools:
                at = home / name / controller
                failed += not _play(name, Stage(at, controller, arguments.control, arguments.rounds, tools))
    print(f"{failed} failed; the nodes' homes are in {home}")
    return 1 if failed else 0


def _play(name: str, stage: Stage) -> bool:
    began = time.monotonic()
    why = ""
    try:
        SCENARIOS[name](stage)
    except Exception:  # noqa: BLE001 the others are played all the same
        why = traceback.format_exc()
    seconds = time.monotonic() - began
    print(
        f"{name:10}controller of {stage.controller:10}{'FAILED' if why else 'passed'} after {seconds:.0f} s",
        flush=True,
    )
    if why:
        (stage.home / "failure.txt").write_text(why)
        print(why[-3000:], flush=True)
    return not why


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
