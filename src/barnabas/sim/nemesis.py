"""The nemesis: everything that can go wrong, each kind at its own rate, all at once, until the faults end.

Each kind is a task with randomness of its own. Then everything is healed: the disk has room and works, the
network delivers, the broker comes back; only the clock stays where it is.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from math import log

from barnabas.core.random import SeededRandom
from barnabas.sim.chance import happens, log_between, pick, stream
from barnabas.sim.history import Fault, FaultsEnded, History
from barnabas.sim.machine import HOST, Kind, Machine
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


class Nemesis:
    """Does what the scenario has drawn to a machine and its network."""

    def __init__(self, scenario: Scenario, machine: Machine, network: SimNetwork, history: History) -> None:
        self._scenario = scenario
        self._machine = machine
        self._network = network
        self._history = history

    async def run(self) -> None:
        """Return when the faults have ended and all is healed."""
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._repeat(kind, mean_s)) for kind, mean_s in self._scenario.faults.items()
        ]
        ending = loop.create_task(asyncio.sleep(self._scenario.seconds))
        done, _ = await asyncio.wait((ending, *tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in (ending, *tasks):
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)
        for task in tasks:
            if task in done:
                task.result()
        self.heal()
        self._history.add(FaultsEnded(loop.time()))

    def heal(self) -> None:
        """Take back whatever still goes on."""
        self._machine.drive.heal()
        self._network.heal()

    async def _repeat(self, kind: str, mean_s: float) -> None:
        random = stream(self._scenario.seed, f"nemesis {kind}")
        strike = self._kinds()[kind]
        while True:
            await asyncio.sleep(-mean_s * log(1 - random.uniform()))
            await strike(random)

    def _kinds(self) -> dict[str, Callable[[SeededRandom], Awaitable[None]]]:
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

    def _note(self, kind: str, detail: str) -> None:
        self._history.add(Fault(asyncio.get_running_loop().time(), kind, detail))

    # Crashes

    async def _process_crash(self, random: SeededRandom) -> None:
        self._crash(random, "process-crash", "process")

    async def _power_loss(self, random: SeededRandom) -> None:
        self._crash(random, "power-loss", "power")

    async def _process_crash_in_write(self, random: SeededRandom) -> None:
        self._crash_in_write(random, "process-crash-in-write", "process")

    async def _power_loss_in_write(self, random: SeededRandom) -> None:
        self._crash_in_write(random, "power-loss-in-write", "power")

    def _crash(self, random: SeededRandom, name: str, kind: Kind) -> None:
        if self._machine.is_up or kind == "power":
            outage_s = log_between(random, *OUTAGE_S)
            self._note(name, f"for {outage_s:.3f} s")
            self._machine.crash(kind, outage_s)

    def _crash_in_write(self, random: SeededRandom, name: str, kind: Kind) -> None:
        outage_s = log_between(random, *OUTAGE_S)
        where, most = "*", MUTATIONS
        if happens(random, RARE):
            has_compacted = any(topic.is_compacted for topic in self._scenario.topics)
            where, most = pick(random, RARE_FILES + COMPACTED_FILES * has_compacted), RARE_MUTATIONS
        mutations = int(log_between(random, 1, most))

        def crash() -> None:
            self._note(name, f"for {outage_s:.3f} s")
            self._machine.crash(kind, outage_s)

        self._machine.drive.crash_at(mutations, crash, where)

    async def _restart(self, random: SeededRandom) -> None:
        if self._machine.is_up:
            outage_s = log_between(random, *OUTAGE_S)
            self._note("restart", f"for {outage_s:.3f} s")
            self._machine.restart(outage_s)

    # The disk

    async def _slow_disk(self, random: SeededRandom) -> None:
        seconds, part = log_between(random, 0.5, 15), log_between(random, 0.01, 1)
        self._note("slow-disk", f"{part:.3f} of all calls for {seconds:.3f} s")
        self._machine.drive.slow = part
        await asyncio.sleep(seconds)
        self._machine.drive.slow = 0.0

    async def _disk_full(self, random: SeededRandom) -> None:
        seconds, free_bytes = log_between(random, 0.5, 15), random.below(FREE_BYTES)
        if happens(random, 0.3):
            free_bytes = 0
        self._note("disk-full", f"but for {free_bytes} bytes, for {seconds:.3f} s")
        self._machine.drive.leave_free(free_bytes)
        await asyncio.sleep(seconds)
        self._machine.drive.leave_free(None)

    async def _disk_error(self, random: SeededRandom) -> None:
        operation, where = pick(random, FAILING), pick(random, WHERE)
        after, times = int(log_between(random, 1, 30)) - 1, 1 if happens(random, 0.8) else 1 + random.below(5)
        self._note("disk-error", f"{operation} of {where} after {after}, {times} times")
        self._machine.drive.fail(operation, errno.EIO, where, after, times)

    # The network

    async def _connection_dropped(self, random: SeededRandom) -> None:
        wires = self._network.wires()
        if wires:
            wire = pick(random, wires)
            self._note("connection-dropped", wire.name)
            wire.drop()

    async def _connection_half_open(self, random: SeededRandom) -> None:
        wires = [wire for wire in self._network.wires() if not wire.is_cut]
        if not wires:
            return
        wire, told = pick(random, wires), pick(random, ("nobody", "the client", "the broker"))
        self._note("connection-half-open", f"{wire.name}, {told} is told")
        wire.cut()
        if told == "the client":
            wire.coming.drop()
        elif told == "the broker":
            wire.going.drop()

    async def _network_delay(self, random: SeededRandom) -> None:
        seconds, delay_s = log_between(random, 0.5, 15), log_between(random, 0.01, 3)
        self._note("network-delay", f"up to {delay_s:.3f} s, for {seconds:.3f} s")
        self._network.delay(HOST, delay_s)
        await asyncio.sleep(seconds)
        self._network.delay(HOST, 0.0)

    async def _network_held(self, random: SeededRandom) -> None:
        callers = sorted({wire.caller.name for wire in self._network.wires()})
        if not callers:
            return
        held = callers if happens(random, 0.3) else [pick(random, callers)]
        directions = pick(random, (("to", "from"), ("to", "from"), ("to",), ("from",)))
        seconds = log_between(random, 0.2, 15)
        self._note("network-held", f"{' and '.join(directions)} {', '.join(held)} for {seconds:.3f} s")
        links = [(name, HOST) for name in held if "to" in directions]
        links += [(HOST, name) for name in held if "from" in directions]
        for source, target in links:
            self._network.hold(source, target)
        await asyncio.sleep(seconds)
        for source, target in links:
            self._network.release(source, target)

    # The clock

    async def _clock_jump(self, random: SeededRandom) -> None:
        jump_ms = int(log_between(random, 100, 6 * 3_600_000)) * pick(random, (1, -1))
        if abs(self._machine.clock.away_ms + jump_ms) > MAX_AWAY_MS:
            jump_ms = -jump_ms
        self._note("clock-jump", f"{jump_ms:+d} ms")
        self._machine.clock.jump_ms(jump_ms)
