"""Nodes of a cluster are killed, paused or cut off, by role, again and again; nothing answered may be lost.

    python -m tests.broker.kill_nodes [--rounds 99] [--seed 1] [--pause | --isolate]
                                      [--system barnabas|kafka|both] [--kafka-rounds N]

Three voters that are brokers too and a broker alone, default settings. Every round one of them is killed
(SIGKILL), or with `--pause` stopped (SIGSTOP), or with `--isolate` cut off from the other nodes: the active
controller, another voter, or the broker alone, in turn. Measured is, from then on, the time until

- every surviving voter knows a new active controller,
- a topic is created by way of a surviving broker, which is asked at once,
- every survivor knows the broker as fenced,

and, from the moment at which the node is started again, continued or connected, until every node knows all
brokers as active. A node that is paused or isolated is asked for a topic too, by a client beside it, and may
answer when it is back. Every topic whose creation was answered must be known to every node in the end. A
voter that comes back should unseat nobody; how often another one is active then is printed.

`--isolate` puts each node into a network namespace of its own, which needs Linux, root and iproute2.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support import apache_kafka, node_networks
from tests.support.combined_cluster import BARNABAS, KAFKA, POLL_S, CombinedCluster
from tests.support.node_networks import Namespaces
from tests.support.raw_client import RawClient, wait_until

ROLES = ACTIVE, VOTER, BROKER = ("active controller", "voter", "broker alone")
KILL, PAUSE, ISOLATE = "kill", "pause", "isolate"
NODES = 4
RETRIABLE = ("NOT_CONTROLLER", "REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE")


class Measured(NamedTuple):
    """What was measured of one round; `back_ms` from the end of the fault on, the others from its begin."""

    leader_ms: float
    answered_ms: float
    fenced_ms: float
    back_ms: float
    is_unseated: bool  # another active controller than before the node came back
    answered_beside: bool  # the node that was paused or cut off has created the topic that it was asked for


MEASURES: tuple[tuple[str, Callable[[Measured], float]], ...] = (
    ("new active controller known to all", lambda each: each.leader_ms),
    ("a topic created by way of a survivor", lambda each: each.answered_ms),
    ("broker known to all as fenced", lambda each: each.fenced_ms),
    ("back: all brokers active again", lambda each: each.back_ms),
)


class Round:
    """One fault and its end."""

    def __init__(self, cluster: CombinedCluster, victim: int, fault: str, topic: str) -> None:
        self.cluster = cluster
        self.victim = victim
        self.fault = fault
        self.topic = topic
        self.answered: set[str] = set()

    def run(self) -> Measured:
        cluster, victim = self.cluster, self.victim
        with ThreadPoolExecutor() as threads, ExitStack() as connections:
            began = self._begin()
            survivor = next(each for each in cluster.ids if each != victim)
            created = threads.submit(self._create, survivor)
            beside = None if self.fault == KILL else connections.enter_context(self._ask_victim())
            cluster.leader(but=victim)
            leader_at = time.monotonic()
            fenced_at = cluster.wait_until_fenced(victim)
            created_at = created.result()
            leader_before = cluster.leader(but=victim)
            ended = self._end()
            back_at = cluster.wait_until_active(len(cluster.ids))
            is_answered = beside is not None and self._is_created(beside)
        return Measured(
            (leader_at - began) * 1000,
            (created_at - began) * 1000,
            (fenced_at - began) * 1000,
            (back_at - ended) * 1000,
            cluster.leader() != leader_before,
            is_answered,
        )

    def _begin(self) -> float:
        if self.fault == ISOLATE:
            return self.cluster.isolate(self.victim)
        return self.cluster.pause(self.victim) if self.fault == PAUSE else self.cluster.kill(self.victim)

    def _end(self) -> float:
        at = time.monotonic()
        if self.fault == ISOLATE:
            self.cluster.heal(self.victim)
        elif self.fault == PAUSE:
            self.cluster.resume(self.victim)
        else:
            self.cluster.spawn(self.victim)
        return at

    def _create(self, survivor: int) -> float:
        """Create the topic by way of that broker; when the cluster has it."""
        with self.cluster.client(survivor) as client:
            while True:
                name = self._error(client.ask(create_request(self.topic), 7, CreateTopicsResponse))
                if name in ("NONE", "TOPIC_ALREADY_EXISTS"):
                    self.answered.add(self.topic)
                    return time.monotonic()
                assert name in RETRIABLE, name
                time.sleep(POLL_S)

    @property
    def _beside(self) -> str:
        return f"{self.topic}-beside"

    def _ask_victim(self) -> RawClient:
        """Ask the node that is paused or cut off, from where it is."""
        with self.cluster.network.beside(self.victim):
            client = self.cluster.client(self.victim)
        client.send(create_request(self._beside), 7)
        return client

    def _is_created(self, client: RawClient) -> bool:
        try:
            _, answer = client.receive_response(CreateTopicsResponse, 7, flexible=True)
        except EOFError:
            return False
        if self._error(answer) != "NONE":
            return False
        self.answered.add(self._beside)
        return True

    @staticmethod
    def _error(answer: CreateTopicsResponse) -> str:
        return WIRE_ERRORS[answer.topics[0].error_code].name


def create_request(topic: str) -> CreateTopicsRequest:
    created = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[created], timeout_ms=30_000, validate_only=False)


def topics_of(cluster: CombinedCluster, node_id: int) -> set[str]:
    """All topics that a broker knows."""
    with cluster.client(node_id) as client:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return {each.name or "" for each in client.ask(request, 12, MetadataResponse).topics}


def victim_of(cluster: CombinedCluster, role: str, random: Random) -> int:
    """A node of that role."""
    leader = cluster.leader()
    if role == ACTIVE:
        return leader
    voters = cluster.voter_ids
    return random.choice(
        [each for each in cluster.ids if (each in voters) == (role == VOTER) and each != leader]
    )


def run(root: Path, rounds: int, seed: int, *, system: str, fault: str) -> dict[str, list[Measured]]:
    """So many rounds; what was measured, by role. AssertionError where anything is missing."""
    random, answered = Random(seed), set[str]()
    found: dict[str, list[Measured]] = {role: [] for role in ROLES}
    with ExitStack() as stack:
        network = stack.enter_context(Namespaces(range(1, NODES + 1))) if fault == ISOLATE else None
        cluster = stack.enter_context(CombinedCluster(system, root, nodes=NODES, network=network))
        for number in range(rounds):
            role = ROLES[number % len(ROLES)]
            this = Round(cluster, victim_of(cluster, role, random), fault, f"round-{number}")
            found[role].append(this.run())
            answered |= this.answered
        for each in cluster.ids:
            wait_until(lambda each=each: answered <= topics_of(cluster, each), f"node {each} has all")  # type: ignore[misc]
    return found


def table(results: dict[str, dict[str, list[Measured]]]) -> str:
    """What was measured, the systems side by side: the median and the highest."""
    lines = [f"{'':18}{'milliseconds until':40}" + "".join(f"{system:^30}" for system in results)]
    lines.append(f"{'':58}" + f"{'median':>10}{'at most':>10}{'times':>8}  " * len(results))
    for role in ROLES:
        for name, measure in MEASURES if role == ACTIVE else MEASURES[1:]:
            cells = ""
            for found in results.values():
                values = [measure(each) for each in found[role]]
                if values:
                    cells += f"{statistics.median(values):10,.0f}{max(values):10,.0f}{len(values):8}  "
                else:
                    cells += f"{'-':>10}{'-':>10}{0:8}  "
            lines.append(f"{role:18}{name:40}{cells}".rstrip())
    for system, found in results.items():
        rounds = [each for of_role in found.values() for each in of_role]
        beside = sum(each.answered_beside for each in rounds)
        unseated = sum(each.is_unseated for each in rounds)
        lines += (
            f"{system}: every answered topic is on every node, {beside} of them created by nodes that were",
            f"  paused or cut off when they were asked; another active controller after {unseated} returns",
        )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=99)
    parser.add_argument("--kafka-rounds", type=int, help="with --system both (default: as --rounds)")
    parser.add_argument("--seed", type=int, default=1)
    faults = parser.add_mutually_exclusive_group()
    for fault in (PAUSE, ISOLATE):
        faults.add_argument(f"--{fault}", action="store_const", const=fault, dest="fault", default=KILL)
    parser.add_argument("--system", choices=(BARNABAS, KAFKA, "both"), default=BARNABAS)
    return parser.parse_args()


def _missing(systems: Sequence[str], fault: str) -> str | None:
    lacks = node_networks.missing() if fault == ISOLATE else None
    return lacks or (apache_kafka.missing() if KAFKA in systems else None)


def main() -> None:
    options = _arguments()
    systems = (BARNABAS, KAFKA) if options.system == "both" else (options.system,)
    lacks = _missing(systems, options.fault)
    if lacks is not None:
        sys.exit(f"cannot run here: {lacks}")
    if KAFKA in systems:
        apache_kafka.shared_classes()  # what it fetches is not to be had in a namespace
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything is removed
    results = {}
    for system in systems:
        rounds = options.kafka_rounds if system == KAFKA and options.kafka_rounds else options.rounds
        with tempfile.TemporaryDirectory() as root:
            results[system] = run(Path(root), rounds, options.seed, system=system, fault=options.fault)
    print(table(results))


if __name__ == "__main__":
    main()
