"""The faults of a simulated cluster: those of every simulation, and those that take several nodes.

Which node leads is known from outside, by who writes as a leader; faults meet it more often than chance would
have it. Partitions cut nodes off from each other, and sometimes from clients too; what was sent waits and
arrives when they heal, or is lost with its connection.
"""

from __future__ import annotations

import asyncio

from barnabas.core.random import SeededRandom
from barnabas.sim.chance import between, happens, log_between, pick
from barnabas.sim.cluster.events import Led
from barnabas.sim.machine import Machine
from barnabas.sim.nemesis import OUTAGE_S, Nemesis, Strike

LEADER = 0.4  # how often it is the leader whom a fault strikes
PARTITION_S = (0.3, 12.0)
CUT_OFF_S = (1.0, 6.0)
SOON_S = 0.05  # a leader that has just been elected dies within this time
ROLLING_S = (0.5, 6.0)  # between two nodes of a rolling restart

Links = list[tuple[str, str]]


class ClusterNemesis(Nemesis):
    """Does what the scenario has drawn to the machines of a cluster."""

    def kinds(self) -> dict[str, Strike]:
        return super().kinds() | {
            "leader-crash": self._leader_crash,
            "crash-after-election": self._crash_after_election,
            "partition": self._partition,
            "leader-cut-off": self._leader_cut_off,
            "links-dropped": self._links_dropped,
            "dials-refused": self._dials_refused,
            "dials-hang": self._dials_hang,
            "pause": self._pause,
            "rolling-restart": self._rolling_restart,
        }

    @property
    def _leader(self) -> Machine | None:
        """The machine that has led last."""
        node = next((each.node for each in reversed(self.history.events) if isinstance(each, Led)), None)
        return next((each for each in self.machines if each.node == node), None)

    def victim(self, choice: SeededRandom) -> Machine:
        machine, is_leader = pick(choice, self.machines), happens(choice, LEADER)
        return self._leader or machine if is_leader else machine

    # Crashes

    async def _leader_crash(self, random: SeededRandom, machine: Machine) -> None:
        self.crash_now(random, self._leader or machine, "leader-crash")

    def crash_now(self, random: SeededRandom, machine: Machine, name: str) -> None:
        kind = pick(random, ("process", "process", "power"))
        outage_s = log_between(random, *OUTAGE_S)
        if machine.is_up:
            self.note(machine, name, f"{kind}, for {outage_s:.3f} s")
            machine.crash(self.allowed(machine, "power" if kind == "power" else "process"), outage_s)

    async def _crash_after_election(self, random: SeededRandom, machine: Machine) -> None:
        leader = self._leader
        while self._leader is leader:  # noqa: ASYNC110 - nobody tells, and time is virtual
            await asyncio.sleep(0.02)
        await asyncio.sleep(between(random, 0.0, SOON_S))
        self.crash_now(random, self._leader or machine, "crash-after-election")

    async def _rolling_restart(self, random: SeededRandom, machine: Machine) -> None:
        self.note(machine, "rolling-restart", "of all")
        for each in self.machines:
            each.restart(log_between(random, 0.1, 2.0))
            await asyncio.sleep(log_between(random, *ROLLING_S))

    async def _pause(self, random: SeededRandom, machine: Machine) -> None:
        seconds = log_between(random, 0.2, 15)
        self.note(machine, "pause", f"for {seconds:.3f} s")
        machine.pause()
        await asyncio.sleep(seconds)
        machine.resume()

    # The network

    async def _partition(self, random: SeededRandom, machine: Machine) -> None:
        shape, links = self._shape(random, machine)
        seconds = log_between(random, *PARTITION_S)
        if happens(random, 0.1):
            seconds = self.scenario.seconds  # healed in the end
        self.note(machine, "partition", f"{shape}, for {seconds:.3f} s")
        await self.hold(links, seconds)

    async def _leader_cut_off(self, random: SeededRandom, machine: Machine) -> None:
        """Clients still reach it, and it decides what it cannot commit."""
        leader, seconds = self._leader or machine, log_between(random, *CUT_OFF_S)
        links = both([leader.host], [each.host for each in self.machines if each is not leader])
        self.note(leader, "leader-cut-off", f"for {seconds:.3f} s")
        await self.hold(links, seconds)

    async def hold(self, links: Links, seconds: float) -> None:
        """Deliver nothing there for a while."""
        for link in links:
            self.network.hold(*link)
        await asyncio.sleep(seconds)
        for link in links:
            self.network.release(*link)

    def _shape(self, random: SeededRandom, machine: Machine) -> tuple[str, Links]:
        """Which links are cut, and what that is called."""
        hosts, one = [each.host for each in self.machines], machine.host
        others = [each for each in hosts if each != one]
        shape = pick(random, ("one way", "ring", "alone", "alone", "deaf", "mute", "split", "bridge"))
        if shape == "one way":
            return shape, [(one, pick(random, others))]
        if shape == "ring":
            near = {frozenset(pair) for pair in zip(hosts, [*hosts[1:], hosts[0]], strict=True)}
            return shape, [pair for pair in _pairs(hosts, hosts) if frozenset(pair) not in near]
        if shape == "deaf":
            return shape, [(each, one) for each in others]
        if shape == "mute":
            return shape, [(one, each) for each in others]
        if shape == "alone":
            with_clients = happens(random, 0.3)
            cut_off = [*others, *self.network.peers_of(one)] if with_clients else others
            return shape, both([one], cut_off)
        side = [each for each in others if happens(random, 0.5)]
        rest = [each for each in others if each not in side]
        return (shape, both(side, rest)) if shape == "bridge" else (shape, both([one, *side], rest))

    async def _links_dropped(self, random: SeededRandom, machine: Machine) -> None:
        peers = [each.host for each in self.machines if each is not machine]
        dropped = peers if happens(random, 0.4) else [pick(random, peers)]
        self.note(machine, "links-dropped", f"with {', '.join(dropped)}")
        for wire in self.network.wires_of(machine.host):
            if wire.caller.name in dropped or wire.callee.name in dropped:
                wire.drop()

    async def _dials_refused(self, random: SeededRandom, machine: Machine) -> None:
        links, seconds = self._dials(random, machine), log_between(random, 0.2, 8)
        self.note(machine, "dials-refused", f"{_told(links)} for {seconds:.3f} s")
        for link in links:
            self.network.refuse(*link)
        await self._let_dial(links, seconds)

    async def _dials_hang(self, random: SeededRandom, machine: Machine) -> None:
        links, seconds = self._dials(random, machine), log_between(random, 0.2, 8)
        self.note(machine, "dials-hang", f"{_told(links)} for {seconds:.3f} s")
        for link in links:
            self.network.hang(*link)
        await self._let_dial(links, seconds)

    async def _let_dial(self, links: Links, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for link in links:
            self.network.let_dial(*link)

    def _dials(self, random: SeededRandom, machine: Machine) -> Links:
        """From some or all nodes to one; often its connections are lost as well."""
        others = [each.host for each in self.machines if each is not machine]
        sources = others if happens(random, 0.6) else [pick(random, others)]
        if happens(random, 0.5):
            for wire in self.network.wires_of(machine.host):
                if wire.caller.name in sources:
                    wire.drop()
        return [(source, machine.host) for source in sources]


def _pairs(some: list[str], others: list[str]) -> Links:
    return [(one, other) for one in some for other in others if one != other]


def both(some: list[str], others: list[str]) -> Links:
    """Each way between them."""
    return _pairs(some, others) + _pairs(others, some)


def _told(links: Links) -> str:
    return ", ".join(f"{source} to {target}" for source, target in links)
