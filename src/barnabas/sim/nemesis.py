"""The nemesis: everything that can go wrong, each kind at its own rate, all at once, until the faults end.

Each kind is a task with randomness of its own. A fault strikes one machine, which is drawn from a stream of
its own: what else is drawn for a fault does not depend on how many machines there are. In the end everything
is healed: disks have room and work, the network delivers, nodes come back; only clocks stay where they are.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from math import log

from barnabas.core.random import SeededRandom
from barnabas.sim.chance import happens, log_between, pick, stream
from barnabas.sim.history import Fault, FaultsEnded, History
from barnabas.sim.machine import Kind, Machine
from barnabas.sim.network import SimNetwork
from barnabas.sim.scenario import Scenario

OUTAGE_S = (0.1, 8.0)
FREE_BYTES = 65_536
MUTATIONS = 150  # within how many changes on the drive a crash in the middle of one comes
# or of files that seldom change, and then as part of something larger
RARE, RARE_MUTATIONS = 0.4, 15
RARE_FILES = ("*.snapshot*", "*checkpoint*")
COMPACTED_FILES = ("*.cleaned", "*.cleaned", "*.swap", "*.swap")
# A clock is set by seconds to hours, and never further away than that: a day away, producers are forgotten.
MAX_AWAY_MS = 12 * 3_600_000
# What fails, the more often the more it stands here
FAILING = (
    ("sync",) * 4
    + ("append",) * 4
    + ("read",) * 3
    + ("sync_dir", "rename", "truncate", "write_at", "open", "create", "remove", "list", "mkdir")
    + ("set_modified",)
)
ANY_FILE = ("*", "*")
KEPT_FILES = ("*.log", "*.index", "*.timeindex", "*.snapshot", "*checkpoint*", "__cluster_metadata*")
WHERE = (*ANY_FILE, *KEPT_FILES, "*.cleaned", "*.swap", "*.deleted")

Strike = Callable[[SeededRandom, Machine], Awaitable[None]]


class Nemesis:
    """Does what the scenario has drawn to machines and their network."""

    def __init__(
        self, scenario: Scenario, machines: Sequence[Machine], network: SimNetwork, history: History
    ) -> None:
        self.scenario = scenario
        self.machines = machines
        self.network = network
        self.history = history

    async def run(self) -> None:
        """Return when the faults have ended and all is healed."""
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._repeat(kind, mean_s)) for kind, mean_s in self.scenario.faults.items()
        ]
        ending = loop.create_task(asyncio.sleep(self.scenario.seconds))
        done, _ = await asyncio.wait((ending, *tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in (ending, *tasks):
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)
        for task in tasks:
            if task in done:
                task.result()
        self.heal()
        self.history.add(FaultsEnded(loop.time()))

    def heal(self) -> None:
        """Take back whatever still goes on."""
        for machine in self.machines:
            machine.drive.heal()
            machine.resume()
        self.network.heal()

    async def _repeat(self, kind: str, mean_s: float) -> None:
        seed = self.scenario.seed
        random, choice = stream(seed, f"nemesis {kind}"), stream(seed, f"nemesis {kind} machine")
        strike = self.kinds()[kind]
        while True:
            await asyncio.sleep(-mean_s * log(1 - random.uniform()))
            await strike(random, self.victim(choice))

    def victim(self, choice: SeededRandom) -> Machine:
        return pick(choice, self.machines)

    def allowed(self, machine: Machine, kind: Kind) -> Kind:
        """How a machine crashes that is to crash so."""
        return kind

    def kinds(self) -> dict[str, Strike]:
        return {
            "process-crash": self._process_crash,
            "process-crash-in-write": self._process_crash_in_write,
            "power-loss": self._power_loss,
            "power-loss-in-write": self._power_loss_in_write,
            "restart": self._restart,
            "slow-disk": self._slow_disk,
            "disk-full": self._disk_full,
            "disk-error": self._disk_error,
            "connection-dropped": self._connection_dropped,
            "connection-half-open": self._connection_half_open,
            "network-delay": self._network_delay,
            "network-held": self._network_held,
            "clock-jump": self._clock_jump,
        }

    def note(self, machine: Machine, kind: str, detail: str) -> None:
        self.history.add(Fault(asyncio.get_running_loop().time(), kind, detail, machine.node))

    # Crashes

    async def _process_crash(self, random: SeededRandom, machine: Machine) -> None:
        self._crash(random, machine, "process-crash", "process")

    async def _power_loss(self, random: SeededRandom, machine: Machine) -> None:
        self._crash(random, machine, "power-loss", "power")

    async def _process_crash_in_write(self, random: SeededRandom, machine: Machine) -> None:
        self._crash_in_write(random, machine, "process-crash-in-write", "process")

    async def _power_loss_in_write(self, random: SeededRandom, machine: Machine) -> None:
        self._crash_in_write(random, machine, "power-loss-in-write", "power")

    def _crash(self, random: SeededRandom, machine: Machine, name: str, kind: Kind) -> None:
        if machine.is_up or kind == "power":
            outage_s = log_between(random, *OUTAGE_S)
            self.note(machine, name, f"for {outage_s:.3f} s")
            machine.crash(self.allowed(machine, kind), outage_s)

    def _crash_in_write(self, random: SeededRandom, machine: Machine, name: str, kind: Kind) -> None:
        outage_s = log_between(random, *OUTAGE_S)
        where, most = "*", MUTATIONS
        if happens(random, RARE):
            has_compacted = any(topic.is_compacted for topic in self.scenario.topics)
            where, most = pick(random, RARE_FILES + COMPACTED_FILES * has_compacted), RARE_MUTATIONS
        mutations = int(log_between(random, 1, most))

        def crash() -> None:
            self.note(machine, name, f"for {outage_s:.3f} s")
            machine.crash(self.allowed(machine, kind), outage_s)

        machine.drive.crash_at(mutations, crash, where)

    async def _restart(self, random: SeededRandom, machine: Machine) -> None:
        if machine.is_up:
            outage_s = log_between(random, *OUTAGE_S)
            self.note(machine, "restart", f"for {outage_s:.3f} s")
            machine.restart(outage_s)

    # The disk

    async def _slow_disk(self, random: SeededRandom, machine: Machine) -> None:
        seconds, part = log_between(random, 0.5, 15), log_between(random, 0.01, 1)
        self.note(machine, "slow-disk", f"{part:.3f} of all calls for {seconds:.3f} s")
        machine.drive.slow = part
        await asyncio.sleep(seconds)
        machine.drive.slow = 0.0

    async def _disk_full(self, random: SeededRandom, machine: Machine) -> None:
        seconds, free_bytes = log_between(random, 0.5, 15), random.below(FREE_BYTES)
        if happens(random, 0.3):
            free_bytes = 0
        self.note(machine, "disk-full", f"but for {free_bytes} bytes, for {seconds:.3f} s")
        machine.drive.leave_free(free_bytes)
        await asyncio.sleep(seconds)
        machine.drive.leave_free(None)

    async def _disk_error(self, random: SeededRandom, machine: Machine) -> None:
        operation, where = pick(random, FAILING), pick(random, WHERE)
        after, times = int(log_between(random, 1, 30)) - 1, 1 if happens(random, 0.8) else 1 + random.below(5)
        self.note(machine, "disk-error", f"{operation} of {where} after {after}, {times} times")
        machine.drive.fail(operation, errno.EIO, where, after, times)

    # The network

    async def _connection_dropped(self, random: SeededRandom, machine: Machine) -> None:
        wires = self.network.wires_of(machine.host)
        if wires:
            wire = pick(random, wires)
            self.note(machine, "connection-dropped", wire.name)
            wire.drop()

    async def _connection_half_open(self, random: SeededRandom, machine: Machine) -> None:
        wires = [wire for wire in self.network.wires_of(machine.host) if not wire.is_cut]
        if not wires:
            return
        wire, told = pick(random, wires), pick(random, ("nobody", "the client", "the broker"))
        self.note(machine, "connection-half-open", f"{wire.name}, {told} is told")
        wire.cut()
        if told == "the client":
            wire.coming.drop()
        elif told == "the broker":
            wire.going.drop()

    async def _network_delay(self, random: SeededRandom, machine: Machine) -> None:
        seconds, delay_s = log_between(random, 0.5, 15), log_between(random, 0.01, 3)
        self.note(machine, "network-delay", f"up to {delay_s:.3f} s, for {seconds:.3f} s")
        self.network.delay(machine.host, delay_s)
        await asyncio.sleep(seconds)
        self.network.delay(machine.host, 0.0)

    async def _network_held(self, random: SeededRandom, machine: Machine) -> None:
        peers = self.network.peers_of(machine.host)
        if not peers:
            return
        held = peers if happens(random, 0.3) else [pick(random, peers)]
        directions = pick(random, (("to", "from"), ("to", "from"), ("to",), ("from",)))
        seconds = log_between(random, 0.2, 15)
        self.note(
            machine, "network-held", f"{' and '.join(directions)} {', '.join(held)} for {seconds:.3f} s"
        )
        links = [(name, machine.host) for name in held if "to" in directions]
        links += [(machine.host, name) for name in held if "from" in directions]
        for source, target in links:
            self.network.hold(source, target)
        await asyncio.sleep(seconds)
        for source, target in links:
            self.network.release(source, target)

    # The clock

    async def _clock_jump(self, random: SeededRandom, machine: Machine) -> None:
        jump_ms = int(log_between(random, 100, 6 * 3_600_000)) * pick(random, (1, -1))
        if abs(machine.clock.away_ms + jump_ms) > MAX_AWAY_MS:
            jump_ms = -jump_ms
        self.note(machine, "clock-jump", f"{jump_ms:+d} ms")
        machine.clock.jump_ms(jump_ms)
