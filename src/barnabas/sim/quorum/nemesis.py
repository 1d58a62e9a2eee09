"""The faults of a simulated quorum, each at its own pace, and their end: `heal` undoes all of them.

Faults of machines and links last a while and end by themselves. Nothing here knows of a node's state, but for
which node leads, so that faults meet the leader more often than chance would have it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import TYPE_CHECKING

from barnabas.raft.election import State
from barnabas.sim.chance import between, happens, log_between, pick, stream
from barnabas.sim.quorum.node import Node
from barnabas.sim.quorum.stability import CALM_US, FAILOVER, FAILOVER_S

if TYPE_CHECKING:
    from barnabas.sim.quorum.world import QuorumWorld

SECOND_US = 1_000_000
ELECTED, VOTED, APPENDED = "elected", "voted", "appended"
EARLY_US = 6_000  # a node dies within this time of what it has done


class Nemesis:
    """Made with the world; `begin` starts it, `heal` ends it."""

    def __init__(self, world: QuorumWorld) -> None:
        self.world = world
        self.engine = world.engine
        self.network = world.network
        self.random = stream(world.plan.seed, "quorum nemesis")
        self._is_over = False
        self._armed: set[str] = set()
        self._victim = world.nodes[0]
        self.quiet_us = 0  # nothing is broken from then on, as far as is known
        self.last_us = 0  # when the last fault came
        self._kinds: dict[str, Callable[[], None]] = {
            "process-crash": lambda: self._crash(self._any()),
            "leader-crash": lambda: self._crash(self._victim),
            "crash-after-election": lambda: self._armed.add(ELECTED),
            "crash-after-vote": lambda: self._armed.add(VOTED),
            "crash-after-append": lambda: self._armed.add(APPENDED),
            "power-loss": self._lose_power,
            "rolling-restart": self._roll,
            "partition": self._partition,
            "lossy-network": self._lossy,
            "slow-network": self._slow,
            "connection-reset": self._reset,
            "dials-hang": self._hang,
            "dials-refused": self._refuse,
            "pause": self._pause,
            "clock-jump": self._jump,
            "disk-full": self._fill,
            "disk-error": self._fail,
            "slow-disk": self._slow_disk,
            "slow-reads": self._slow_reads,
        }

    def begin(self) -> None:
        for kind in self.world.plan.faults:
            self._next(kind)

    def _next(self, kind: str) -> None:
        mean_s = self.world.plan.faults[kind]
        self.engine.after(int(-log(1 - self.random.uniform()) * mean_s * SECOND_US), self._strike, kind)

    def _strike(self, kind: str) -> None:
        if self._is_over:
            return
        self.world.fault(kind)
        if kind == "leader-crash":
            self._victim = self._leader()
            self._watch_failover(self._victim)
        self.last_us = self.engine.now_us
        self.quiet_us = max(self.quiet_us, self.last_us)
        self._kinds[kind]()
        self._next(kind)

    def _for_a_while(self, undo: Callable[..., None], *arguments: object, most_s: float = 6.0) -> None:
        delay_us = int(log_between(self.random, 0.05, most_s) * SECOND_US)
        self.quiet_us = max(self.quiet_us, self.engine.now_us + delay_us)
        self.engine.after(delay_us, undo, *arguments)

    def _any(self) -> Node:
        return pick(self.random, self.world.nodes)

    def _leader(self) -> Node:
        leaders = [each for each in self.world.nodes if each.raft and each.raft.state is State.LEADER]
        return pick(self.random, leaders) if leaders else self._any()

    def _either(self) -> Node:
        return self._leader() if happens(self.random, 0.4) else self._any()

    @property
    def is_calm(self) -> bool:
        """Whether nothing has happened for a while, and nothing is broken."""
        return self.engine.now_us - self.quiet_us > CALM_US

    def _watch_failover(self, dying: Node) -> None:
        """Where all was well before, and nothing else happens meanwhile, a new leader must come soon."""
        if self.is_calm and self.world.is_well():
            check = int(FAILOVER_S * SECOND_US)
            self.engine.after(check, self._check_failover, self.engine.now_us, self.world.epoch, dying)

    def _check_failover(self, since_us: int, epoch: int, dead: Node) -> None:
        if self.last_us != since_us or self._is_over or self.world.is_changing:
            return
        self.world.count("fail-overs in calm")
        for node in self.world.nodes:
            if node is not dead and node.raft and (node.raft.epoch <= epoch or node.raft.leader_id < 0):
                what = f"node {node.id} knows no leader {FAILOVER_S} s after that of epoch {epoch} died"
                self.world.say(FAILOVER, what)

    def noticed(self, what: str, node: Node) -> None:
        """A node was elected, has voted, or has appended something: it may be time for it to die."""
        if what in self._armed and not self._is_over:
            self._armed.discard(what)
            self.last_us = self.engine.now_us
            self.engine.after(self.random.below(EARLY_US), self._crash, node)

    # --- processes and machines

    def _crash(self, node: Node) -> None:
        node.stop()
        if not self._is_over:
            self._for_a_while(node.start)
        else:
            node.start()

    def _lose_power(self) -> None:
        nodes = self.world.nodes if happens(self.random, 0.1) else [self._either()]
        for node in nodes:
            node.lose_power()
            self._for_a_while(node.regain_power)

    def _roll(self) -> None:
        """One node after another is stopped and started, as an upgrade does it; leaders resign first."""
        at_us = 0
        for node in self.world.nodes:
            self.engine.after(at_us, self._stop_cleanly, node)
            at_us += int(between(self.random, 0.2, 3.0) * SECOND_US)
            self.engine.after(at_us, node.start)
        self.quiet_us = max(self.quiet_us, self.engine.now_us + at_us)

    def _stop_cleanly(self, node: Node) -> None:
        raft = node.raft
        if self._is_over or raft is None or node.is_paused:
            return
        if raft.state is State.LEADER:
            node.guarded(raft.resign, node.now_ms())
        self.engine.after(50_000, node.stop)

    def _pause(self) -> None:
        node = self._either()
        node.pause()
        self._for_a_while(node.resume)

    def _jump(self) -> None:
        """The clock of a machine that was suspended goes on later."""
        self._any().jumped_ms += int(log_between(self.random, 10, 5_000))

    # --- links

    def _partition(self) -> None:
        pairs = self._shape()
        self.network.blocked |= pairs
        self._for_a_while(self.network.blocked.difference_update, pairs, most_s=10.0)

    def _shape(self) -> set[tuple[int, int]]:
        ids = [node.id for node in self.world.nodes]
        shape = self.random.below(5)
        if shape == 0:  # one way, from one to another
            return {(pick(self.random, ids), pick(self.random, ids))}
        if shape == 1:  # a ring: each reaches only its neighbours
            near = {
                (one, ids[(index + step) % len(ids)]) for index, one in enumerate(ids) for step in (1, -1)
            }
            return {(one, other) for one in ids for other in ids if one != other} - near
        if shape == 2:  # one node alone, the leader more often than others
            one = self._either().id
            return {pair for other in ids if other != one for pair in ((one, other), (other, one))}
        if shape == 3:  # one that hears nothing, or is not heard
            one = self._either().id
            hears = happens(self.random, 0.5)
            return {(one, other) if hears else (other, one) for other in ids if other != one}
        side = {each for each in ids if happens(self.random, 0.5)}
        return {(one, other) for one in ids for other in ids if (one in side) != (other in side)}

    def _lossy(self) -> None:
        self.network.drops = log_between(self.random, 0.01, 0.4)
        self.network.doubles = log_between(self.random, 0.01, 0.3)
        self._for_a_while(self._clear_loss)

    def _clear_loss(self) -> None:
        self.network.drops = self.network.doubles = 0.0

    def _slow(self) -> None:
        self.network.slow_us = int(log_between(self.random, 2_000, 1_500_000))
        self._for_a_while(self._clear_slow)

    def _clear_slow(self) -> None:
        self.network.slow_us = 0

    def _reset(self) -> None:
        self.network.reset(self._any(), self._either())

    def _hang(self) -> None:
        node = self._either()
        node.hangs = True
        self._for_a_while(setattr, node, "hangs", False)

    def _refuse(self) -> None:
        """A node that lives, and takes no connections: it looks dead to those that lose theirs."""
        node = self._either()
        node.refuses = True
        for peer in self.world.nodes:
            if happens(self.random, 0.5):
                self.network.reset(peer, node)
        self._for_a_while(setattr, node, "refuses", False)

    # --- disks

    def _fill(self) -> None:
        node = self._either()
        node.is_disk_full = True
        self._for_a_while(setattr, node, "is_disk_full", False)

    def _fail(self) -> None:
        node = self._either()
        node.fails_next_write = True
        self._for_a_while(node.start)

    def _slow_disk(self) -> None:
        node = self._either()
        self.world.slow_disks[node.id] = int(log_between(self.random, 5_000, 800_000))
        self._for_a_while(self.world.mend_disk, node)

    def _slow_reads(self) -> None:
        """A machine reads what others fetch from it long after it was asked, now and then while it is cut off
        from the other voters for so long that they elect another leader: what it reads may be cut by then."""
        node = self._either()
        if happens(self.random, 0.5) or node.raft is None:
            self.world.slow_reads[node.id] = (1_000, 1_000_000)
            self._for_a_while(self.world.mend_reads, node)
            return
        self.world.slow_reads[node.id] = (300_000, 1_500_000)
        far = {each for each in node.raft.voters.ids if each != node.id}
        ids = [each.id for each in self.world.nodes]
        pairs = {(one, other) for one in ids for other in ids if (one in far) != (other in far)}
        self.network.blocked |= pairs
        cut_us = int(between(self.random, 2.0, 3.0) * SECOND_US)
        self.quiet_us = max(self.quiet_us, self.engine.now_us + 2 * cut_us)
        self.engine.after(cut_us, self.network.blocked.difference_update, pairs)
        self.engine.after(2 * cut_us, self.world.mend_reads, node)

    # --- the end

    def heal(self) -> None:
        """No more faults; everything that was broken is mended, and every node runs."""
        self._is_over = True
        network = self.network
        network.blocked.clear()
        self._clear_loss()
        self._clear_slow()
        self.world.slow_disks.clear()
        self.world.slow_reads.clear()
        for node in self.world.nodes:
            node.hangs = node.refuses = node.is_disk_full = node.fails_next_write = False
            node.resume()
            node.regain_power()
