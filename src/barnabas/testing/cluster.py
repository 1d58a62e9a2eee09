"""A cluster of real nodes in this process, to be killed, paused and cut off: `with Cluster() as cluster:`.

Each node is broker and controller, at two ports of the loopback interface that stay its own, on a thread of
its own (cluster_node), with its data in memory unless a directory is given. Topics have three replicas and
`min.insync.replicas=2`, the coordinators' topics likewise, so one node may be missing at any time.

What is asked of the cluster (who leads, who coordinates, what is in sync) is answered from the newest
metadata that a node has which serves and is not isolated. Everything waits, with a time limit, and may be
called by any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from barnabas.core.errors import BarnabasError
from barnabas.core.random import SystemRandom, random_id
from barnabas.log.checkpoints import uuid_to_text
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.metadata.parts import PartitionImage
from barnabas.testing.broker import FOR_TESTS
from barnabas.testing.cluster_node import ClusterFailed, ClusterNode
from barnabas.testing.node_network import Cuts

T = TypeVar("T")

TIMEOUT_S = 60.0
POLL_S = 0.005
MAX_NODES = 9
# a node that only seems to live is missed sooner than in production (9 s)
FOR_CLUSTERS = {
    **FOR_TESTS,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def _replicated(nodes: int) -> dict[str, str]:
    """As many replicas as there are nodes, up to three, of which one may be missing."""
    replicas, in_sync = str(min(3, nodes)), str(min(2, nodes))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }


def _empty(directory: Path) -> Path:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ClusterFailed(f"{directory} is not empty: a cluster under test begins with an empty directory")
    return directory


def _offset(image: ClusterImage) -> int:
    return image.offset


def _kill(nodes: Iterable[ClusterNode]) -> None:
    chosen = list(nodes)
    for one in chosen:
        one.strike()
    for one in chosen:
        one.bury()


def _partition_of(image: ClusterImage | None, topic: str, partition: int) -> PartitionImage | None:
    found = None if image is None else image.topic(topic)
    return None if found is None else found.partition(partition)


def _behind(image: ClusterImage | None, topics: tuple[str, ...], nodes: set[int]) -> list[str]:
    """Partitions of these topics, or of all, that are not led, or have a replica on a node that is not in
    sync; topics that are not there."""
    if image is None:
        return ["no metadata"]
    behind = [f"{each} (no such topic)" for each in topics if image.topic(each) is None]
    for topic in image.topics_by_name.values():
        if topics and topic.name not in topics:
            continue
        for number, partition in enumerate(topic.partitions):
            missing = (set(partition.replicas) & nodes) - set(partition.isr)
            if partition.leader not in nodes or missing:
                behind.append(f"{topic.name}-{number} (leader {partition.leader}, ISR {list(partition.isr)})")
    return behind


class Cluster:
    """Nodes `1..nodes`, started by `start` or a `with` block. After `stop` or the block's end, `start` begins
    again with the same data and ports."""

    def __init__(
        self,
        directory: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        nodes: int = 3,
        host: str = "127.0.0.1",
    ) -> None:
        """In an empty `directory`, or in memory; `settings` of all nodes by Kafka's names."""
        if not 1 <= nodes <= MAX_NODES:
            raise ClusterFailed(f"a cluster under test has 1 to {MAX_NODES} nodes, not {nodes}")
        root = None if directory is None else _empty(Path(directory))
        self._settings = {**FOR_CLUSTERS, **_replicated(nodes), **(settings or {})}
        self._cuts = Cuts()
        self._ids = tuple(range(1, nodes + 1))
        cluster_id = uuid_to_text(random_id(SystemRandom()))
        self._nodes = {
            each: ClusterNode(each, cluster_id, root and root / str(each), host, self._cuts)
            for each in self._ids
        }
        self._locks = {each: threading.RLock() for each in self._ids}

    # --- where it is

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of all nodes."""
        return self._ids

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for a client's bootstrap.servers; also of those that do not run."""
        return ",".join(each.address for each in self._nodes.values())

    def address_of(self, node: int) -> str:
        """`host:port` of one node; it stays the same through all lives of the node."""
        return self._node(node).address

    def is_running(self, node: int) -> bool:
        """Whether a node runs: it was not killed or stopped, and is not paused."""
        return self._node(node).is_running

    # --- start and stop

    def start(self) -> Cluster:
        """Start all nodes; returns when all of them serve clients."""
        if any(each.is_alive for each in self._nodes.values()):
            raise ClusterFailed("the cluster is already running")
        try:
            self._start(self._ids)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all nodes at once, as `kill` does, in whatever state they are; harmless when repeated."""
        with self._locked(*self._ids) as nodes:
            _kill([each for each in nodes if each.is_alive])
            for one in nodes:
                one.close()
                self._cuts.heal(one.id)
            self._cuts.close()

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- what can happen to a node

    def kill(self, *nodes: int) -> None:
        """End nodes, also paused ones, as `kill -9` does, at the same moment: the kernel closes connections,
        ports refuse new ones, and what was written is there for `restart`. Nothing is flushed or told."""
        with self._locked(*nodes) as chosen:
            _kill(chosen)

    def stop_node(self, node: int) -> None:
        """Stop a node cleanly: others lead first."""
        with self._locked(node) as (one,):
            one.stop()

    def restart(self, *nodes: int, wait: bool = True) -> None:
        """Start nodes again, together; one that runs is stopped cleanly before. Returns when they serve, or
        at once with `wait=False`."""
        for each in nodes:
            with self._locked(each) as (one,):
                if one.is_alive:
                    one.stop()
        self._start(nodes, is_waiting=wait)

    def pause(self, node: int) -> None:
        """Stop a node where it is, as SIGSTOP does: its connections stay, new ones are made by the kernel,
        and nothing is answered."""
        with self._locked(node) as (one,):
            one.pause()

    def resume(self, node: int) -> None:
        """Let a paused node go on, as SIGCONT does."""
        with self._locked(node) as (one,):
            one.resume()

    def isolate(self, node: int, *, keep_clients: bool = False) -> None:
        """Cut a node off: nothing that is sent arrives, and no connection is lost by it. With `keep_clients`
        it is cut off from the other nodes only, and its clients do not notice."""
        self._node(node)
        self._cuts.isolate(node, keep_clients=keep_clients)

    def heal(self, node: int) -> None:
        """Connect an isolated node again: what was sent meanwhile arrives now."""
        if not self._cuts.is_isolated(node):
            raise ClusterFailed(f"node {node} is not isolated")
        self._cuts.heal(node)
        with self._locked(*self._ids) as nodes:
            for one in nodes:
                one.look_again()

    # --- who does what

    def controller(self, timeout: float = TIMEOUT_S) -> int:
        """The node that is the active controller. Waits while there is none."""
        return self._until(self._controller, timeout, "no controller is active")

    def leader_of(self, topic: str, partition: int = 0, timeout: float = TIMEOUT_S) -> int:
        """The node that leads a partition. Waits while it is led by none that can be reached: until the topic
        is there, and until a leader that was killed, paused or isolated is replaced."""

        def leader() -> int | None:
            found = _partition_of(self._image(), topic, partition)
            if found is None or found.leader not in self._reachable():
                return None
            own = _partition_of(self._nodes[found.leader].image, topic, partition)  # does it know by now?
            return found.leader if own is not None and own.leader_epoch == found.leader_epoch else None

        return self._until(leader, timeout, f"no node leads {topic}-{partition}")

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The in-sync replicas of a partition; none where there is no such partition yet."""
        found = _partition_of(self._image(), topic, partition)
        return () if found is None else found.isr

    def coordinator_of(self, group: str, timeout: float = TIMEOUT_S) -> int:
        """The node that coordinates a consumer group; waits as `leader_of` does."""
        return self._coordinator(CONSUMER_OFFSETS, group, timeout)

    def transaction_coordinator_of(self, transactional_id: str, timeout: float = TIMEOUT_S) -> int:
        """The node that coordinates the transactions of a producer; waits as `leader_of` does."""
        return self._coordinator(TRANSACTION_STATE, transactional_id, timeout)

    # --- waiting

    def wait_until_in_sync(self, *topics: str, timeout: float = TIMEOUT_S) -> None:
        """Wait until every replica on a node that can be reached is in sync, and led; of these topics, or of
        all. Then the loss of any one node loses nothing."""

        def behind() -> list[str]:
            nodes = self._reachable()
            # a leader that has not replayed the newest ISR yet would still refuse what needs it
            by_node = (_behind(self._nodes[each].image, topics, nodes) for each in sorted(nodes))
            return next((each for each in by_node if each), [] if nodes else ["no node can be reached"])

        self._until(lambda: not behind() or None, timeout, lambda: f"not in sync: {', '.join(behind())}")

    def wait_until_serving(self, *nodes: int, timeout: float = TIMEOUT_S) -> None:
        """Wait until these nodes, or all that run, are active brokers to the others; as after `resume`,
        `heal` or `restart(wait=False)`."""

        def missing() -> list[int]:
            wanted = nodes or tuple(each for each in self._ids if self._nodes[each].is_alive)
            there = self._reachable()
            return [each for each in wanted if each not in there or not self._is_active(each)]

        self._until(lambda: not missing() or None, timeout, lambda: f"not serving: nodes {missing()}")

    def wait_until_fenced(self, node: int, timeout: float = TIMEOUT_S) -> None:
        """Wait until the others do without a node: it leads nothing, and is in no ISR that had others."""
        self._node(node)
        is_gone = f"node {node} is not fenced"
        self._until(lambda: None if self._is_active(node) else True, timeout, is_gone)

    # --- inside

    def _node(self, node: int) -> ClusterNode:
        if node not in self._nodes:
            raise ClusterFailed(f"there is no node {node}; the nodes are {', '.join(map(str, self._ids))}")
        return self._nodes[node]

    @contextmanager
    def _locked(self, *nodes: int) -> Iterator[list[ClusterNode]]:
        with ExitStack() as held:
            chosen = [self._node(each) for each in sorted(set(nodes))]
            for one in chosen:
                held.enter_context(self._locks[one.id])
            yield chosen

    def _start(self, nodes: Iterable[int], *, is_waiting: bool = True) -> None:
        chosen = [self._node(each) for each in dict.fromkeys(nodes)]
        running = {one.id for one in self._nodes.values() if one.is_running} | {one.id for one in chosen}
        will_run = {each for each in running if not self._is_cut(each)}
        if is_waiting and 2 * len(will_run) <= len(self._ids):
            raise ClusterFailed(
                f"nodes {sorted(will_run)} are no majority of {len(self._ids)}, and could not serve: "
                "restart others in the same call, or do not wait (wait=False)"
            )
        voters = [each.voter for each in self._nodes.values()]
        starting: dict[Future[None], ClusterNode] = {}
        for one in chosen:
            with self._locked(one.id):
                starting[one.begin(voters, self._settings)] = one
        if is_waiting:
            self._wait_for(starting)

    def _wait_for(self, starting: Mapping[Future[None], ClusterNode]) -> None:
        done, late = wait(starting, timeout=TIMEOUT_S)
        for future in done:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                with self._locked(starting[future].id) as failed:
                    _kill(failed)
                raise error
        if late:
            ids = sorted(starting[each].id for each in late)
            raise ClusterFailed(f"nodes {ids} do not serve within {TIMEOUT_S:g} s")

    def _is_cut(self, node: int) -> bool:
        return self._cuts.is_isolated(node)

    def _reachable(self) -> set[int]:
        """The nodes that serve, and are not isolated."""
        return {each for each in self._ids if self._nodes[each].is_serving and not self._is_cut(each)}

    def _image(self) -> ClusterImage | None:
        """The newest metadata there is."""
        images = [self._nodes[each].image for each in self._reachable()]
        return max((each for each in images if each is not None), key=_offset, default=None)

    def _is_active(self, node: int) -> bool:
        image = self._image()
        broker = None if image is None else image.brokers.get(node)
        return broker is not None and broker.is_active

    def _controller(self) -> int | None:
        active = [(epoch, each) for each in self._reachable() if (epoch := self._nodes[each].led_epoch) >= 0]
        return max(active)[1] if active else None

    def _coordinator(self, topic: str, key: str, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        said: list[str] = []

        def partition() -> int | None:
            for each in self._reachable():
                try:
                    return self._nodes[each].partition_of(topic, key)
                except BarnabasError as error:
                    said.append(str(error))
            return None

        def what() -> str:
            return f"no node coordinates {key!r} ({said[-1] if said else 'no node can be reached'})"

        number = self._until(partition, timeout, what)
        return self.leader_of(topic, number, max(0.0, deadline - time.monotonic()))

    def _until(self, found: Callable[[], T | None], timeout: float, what: str | Callable[[], str]) -> T:
        deadline = time.monotonic() + timeout
        while (result := found()) is None:
            if time.monotonic() > deadline:
                said = what if isinstance(what, str) else what()
                raise ClusterFailed(f"{said} within {timeout:g} s; {self._states()}")
            time.sleep(POLL_S)
        return result

    def _states(self) -> str:
        states = []
        for each in self._ids:
            node = self._nodes[each]
            cut = ", isolated" if self._is_cut(each) else ""
            reason = "" if node.failure is None else f" ({node.failure})"
            states.append(f"node {each} is {node.state.value}{cut}{reason}")
        return "; ".join(states)
