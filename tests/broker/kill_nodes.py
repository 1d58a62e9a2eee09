"""kill -9 of nodes of a cluster, by role, again and again; nothing that was answered may be missing.

    python -m tests.broker.kill_nodes --rounds 100 [--seed 1] [--pause] [--system kafka]

Three voters that are brokers too and a broker alone, default settings. Every round one of them is killed: the
active controller, another voter, or the broker alone, by the seed. Measured is the time from the kill until
every surviving voter knows a new leader, and until a topic that is created by way of a survivor is answered.
Then the node is started again. Every topic whose creation was answered must be known to every node in the
end. With `--pause` a node is stopped (SIGSTOP) instead of killed, which only its timeouts tell.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from random import Random

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.combined_cluster import BARNABAS, KAFKA, POLL_S, CombinedCluster
from tests.support.raw_client import RawClient, wait_until

ROLES = ("active controller", "voter", "broker")


class Round:
    """One kill, and what was measured of it."""

    def __init__(self, cluster: CombinedCluster, role: str, random: Random) -> None:
        self.cluster = cluster
        leader = cluster.leader()
        voters = [each for each in cluster.voter_ids if each != leader]
        alone = [each for each in cluster.ids if each not in cluster.voter_ids]
        self.victim = {"active controller": leader, "voter": random.choice(voters)}.get(role) or alone[0]
        self.leader_ms = self.answered_ms = 0.0

    def run(self, topic: str, *, pause: bool) -> None:
        cluster = self.cluster
        began = cluster.pause(self.victim) if pause else cluster.kill(self.victim)
        while cluster.leader(but=self.victim) == self.victim:
            time.sleep(POLL_S)
        self.leader_ms = (time.monotonic() - began) * 1000
        survivor = next(each for each in cluster.ids if each != self.victim)
        create(cluster.ports[survivor], topic)
        self.answered_ms = (time.monotonic() - began) * 1000


def create(port: int, topic: str) -> None:
    """Create a topic by way of that broker; returns when the cluster has it."""
    created = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[created], timeout_ms=30_000, validate_only=False)
    with RawClient(port) as client:
        while True:
            error = client.ask(request, 7, CreateTopicsResponse).topics[0].error_code
            name = WIRE_ERRORS[error].name
            if name in ("NONE", "TOPIC_ALREADY_EXISTS"):
                return
            assert name in ("NOT_CONTROLLER", "REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE"), name
            time.sleep(POLL_S)


def topics_of(port: int) -> set[str]:
    with RawClient(port) as client:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return {each.name or "" for each in client.ask(request, 12, MetadataResponse).topics}


def run(
    root: Path, rounds: int, seed: int, *, system: str = BARNABAS, pause: bool = False
) -> dict[str, list[Round]]:
    """Kill so often; gives the rounds by role. AssertionError where anything is missing."""
    random, answered = Random(seed), set[str]()
    found: dict[str, list[Round]] = {role: [] for role in ROLES}
    with CombinedCluster(system, root, nodes=4) as cluster:
        for number in range(rounds):
            role, topic = ROLES[number % len(ROLES)], f"round-{number}"
            this = Round(cluster, role, random)
            this.run(topic, pause=pause)
            answered.add(topic)
            found[role].append(this)
            if pause:
                cluster.resume(this.victim)
            else:
                cluster.spawn(this.victim)
            cluster.wait_until_active(len(cluster.ids))
        for port in cluster.ports.values():
            wait_until(lambda port=port: answered <= topics_of(port), "every node has all")  # type: ignore[misc]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", action="store_true")
    parser.add_argument("--system", choices=(BARNABAS, KAFKA), default=BARNABAS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        found = run(Path(root), options.rounds, options.seed, system=options.system, pause=options.pause)
    for role, rounds in found.items():
        if rounds:
            known = sorted(each.leader_ms for each in rounds)
            answered = sorted(each.answered_ms for each in rounds)
            print(
                f"{role}: {len(rounds)} times; leader known by all after {statistics.median(known):.0f} ms, "
                f"at most {known[-1]:.0f}; a topic created after {statistics.median(answered):.0f} ms, "
                f"at most {answered[-1]:.0f}"
            )


if __name__ == "__main__":
    main()
