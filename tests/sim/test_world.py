"""A simulation as a whole: it ends, it replays, and whatever never should happen is a violation."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.sim import world as worlds
from barnabas.sim.coordination_scenario import CoordinationPlan
from barnabas.sim.history import Crash, Fault, FaultsEnded, Finished, History, Started
from barnabas.sim.machine import Machine
from barnabas.sim.scenario import FAULTS, GROUPS, KINDS, LOG, TRANSACTIONS, MachinePlan, draw_scenario
from barnabas.sim.world import Outcome, World, simulate, simulate_scenario
from tests.sim import tiny
from tests.sim.seeds import assert_same_in_other_processes

SECONDS = 10.0
# two nodes, each a cluster of its own
TWO = (MachinePlan(1, "broker-1"), MachinePlan(2, "broker-2", port=9093, drift=0.02))


def judge_nothing(history: History) -> list[worlds.Violation]:
    return []


def run_tiny(seed: int) -> Outcome:
    return simulate(seed, seconds=SECONDS, workload=tiny.run, check=judge_nothing)


def test_all_faults_at_once_and_the_workload_is_done() -> None:
    scenario = draw_scenario(3, 60)._replace(faults=dict.fromkeys(FAULTS, 6.0))
    outcome = simulate_scenario(scenario, tiny.run, judge_nothing)
    assert outcome.violations == []
    (ended,) = outcome.history.of(FaultsEnded)
    (finished,) = outcome.history.of(Finished)
    assert 60 <= ended.at <= finished.at < 60 + worlds.PATIENCE_S
    assert outcome.stats.faults.keys() == FAULTS.keys()
    assert outcome.stats.records_acknowledged > 20
    assert outcome.stats.simulated_seconds >= finished.at


def test_a_seed_without_faults() -> None:
    scenario = draw_scenario(3, SECONDS)._replace(faults={})
    outcome = simulate_scenario(scenario, tiny.run, judge_nothing)
    assert outcome.violations == []
    assert not outcome.stats.faults


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_goes_the_same_way_twice(seed: int) -> None:
    one, other = run_tiny(seed), run_tiny(seed)
    assert one.trace_hash == other.trace_hash
    assert one.history.events == other.history.events
    assert one.trace_hash != run_tiny(seed + 100).trace_hash


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_goes_the_same_way_in_another_process_with_another_order_of_sets(kind: str) -> None:
    assert_same_in_other_processes(17, kind, SECONDS)


def test_every_line_of_the_trace_can_be_had() -> None:
    lines: list[str] = []
    outcome = simulate(1, seconds=3, workload=tiny.run, check=judge_nothing, on_line=lines.append)
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    assert {line.split()[1] for line in lines} >= {"net", "disk", "event", "log"}
    assert not any("@" in line.split()[1] or "node=" in line for line in lines)
    assert outcome.trace_hash == simulate(1, seconds=3, workload=tiny.run, check=judge_nothing).trace_hash


async def _raises(world: World) -> None:
    await asyncio.sleep(1)
    raise KeyError("a fault of the workload's own")


async def _hangs(world: World) -> None:
    await world.process("client").spawn(_waits_for_ever())


async def _waits_for_ever() -> None:
    await asyncio.Event().wait()


async def _forgets_an_error(world: World) -> None:
    process = world.process("client")

    async def fails() -> None:
        raise ValueError("nobody looks at this")

    process.spawn(fails())
    await asyncio.sleep(1)


async def _logs_an_error(world: World) -> None:
    try:
        raise ValueError("which nobody had expected")
    except ValueError as error:
        logging.getLogger("barnabas.test").error("caught", exc_info=error)
    await asyncio.sleep(1)


async def _cannot_be_killed(world: World) -> None:
    ends = asyncio.Event()
    asyncio.get_running_loop().call_later(100, ends.set)

    async def immortal() -> None:
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue

    world.process("client").spawn(immortal())
    await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("workload", "what"),
    [
        (_raises, 'KeyError: "a fault of the workload\'s own"'),
        (_hangs, "not done after 605 s; what waits: .*_waits_for_ever"),
        (_forgets_an_error, "nobody looks at this"),
        (_logs_an_error, "caught: ValueError: which nobody had expected"),
        (_cannot_be_killed, "client was killed, and goes on: .*immortal"),
    ],
)
def test_what_never_should_happen_is_a_violation(workload: worlds.Workload, what: str) -> None:
    scenario = draw_scenario(1, 5)._replace(faults={})
    outcome = simulate_scenario(scenario, workload, judge_nothing)
    assert outcome.violations
    with pytest.raises(AssertionError, match=what):
        raise AssertionError(str(outcome.violations[0]))
    assert simulate_scenario(scenario, workload, judge_nothing).trace_hash == outcome.trace_hash


def test_machines_of_a_world() -> None:
    seen: list[World] = []

    async def looks(world: World) -> None:
        await asyncio.sleep(1)
        seen.append(world)

    scenario = draw_scenario(1, 5)._replace(faults={})
    assert simulate_scenario(scenario, looks, judge_nothing).violations == []
    assert simulate_scenario(scenario._replace(machines=TWO), looks, judge_nothing).violations == []
    alone, both = seen
    assert (alone.bootstrap, both.bootstrap) == ("broker:9092", "broker-1:9092,broker-2:9093")
    assert [(each.node, each.host) for each in alone.machines] == [(1, "broker")]
    assert [(each.node, each.host) for each in both.machines] == [(1, "broker-1"), (2, "broker-2")]
    one, other = both.machines
    assert one.drive is not other.drive
    assert one.clock is not other.clock


async def _serve_both(world: World) -> None:
    await asyncio.gather(*(tiny.run_at(world, machine.address) for machine in world.machines))


def test_faults_strike_every_machine_and_name_it() -> None:
    drawn = draw_scenario(4, 60)._replace(faults=dict.fromkeys(FAULTS, 4.0), machines=TWO)
    lines: list[str] = []
    outcome = simulate_scenario(drawn, _serve_both, judge_nothing, on_line=lines.append)
    assert outcome.violations == []
    assert len(list(outcome.history.of(Finished))) == 2
    for kind in FAULTS:
        assert {fault.node for fault in outcome.history.of(Fault) if fault.kind == kind} == {1, 2}, kind
    for event in (Crash, Started):
        assert {each.node for each in outcome.history.of(event)} == {1, 2}
    actors = {line.split()[1] for line in lines}
    assert actors >= {f"{actor}@{plan.host}" for actor in ("disk", "event", "log") for plan in TWO}
    assert not actors & {"disk", "machine"}
    logged = {(line.split()[1], line.split()[2]) for line in lines if line.split()[1].startswith("log")}
    assert ("log", "barnabas.client") in logged  # clients are on none of the machines
    assert {actor for actor, logger in logged if logger == "barnabas.node"} == {
        f"log@{plan.host}" for plan in TWO
    }
    assert simulate_scenario(drawn, _serve_both, judge_nothing).trace_hash == outcome.trace_hash


def test_one_node_crashes_and_another_goes_on_serving() -> None:
    """In a world: the client of the second node is done long before the first one is back."""

    async def workload(world: World) -> None:
        one, other = world.machines
        serving = asyncio.create_task(tiny.run_at(world, other.address))
        await asyncio.sleep(1)
        one.crash("power", 200.0)
        await serving
        assert not one.is_up
        await tiny.run_at(world, one.address)  # which waits for it

    scenario = draw_scenario(3, SECONDS)._replace(faults={}, machines=TWO)
    outcome = simulate_scenario(scenario, workload, judge_nothing)
    assert outcome.violations == []
    assert [(event.kind, event.node) for event in outcome.history.of(Crash)] == [("power", 1)]
    first, second = (event.at for event in outcome.history.of(Finished))
    assert first < 100 < 200 < second


def _in_process(machine: Machine, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    (process,) = machine.processes()
    return process.spawn(work())


async def _says_an_error() -> None:
    logging.getLogger("barnabas.test").error("something is wrong")


async def _raises_in_a_task() -> None:
    raise ValueError("nobody looks at this")


@pytest.mark.parametrize("logs", [0, 1])
def test_an_error_is_blamed_on_the_node_that_logged_it(logs: int) -> None:
    async def workload(world: World) -> None:
        await asyncio.sleep(3)
        world.machines[0].drive.fail("append", errno.EIO, "no such file", 0, 1)
        await _in_process(world.machines[logs], _says_an_error)
        await asyncio.sleep(1)

    scenario = draw_scenario(1, 5)._replace(faults={}, machines=TWO)
    lines: list[str] = []
    outcome = simulate_scenario(scenario, workload, judge_nothing, on_line=lines.append)
    said = "broker-2: barnabas.test says, with a good disk: something is wrong"
    assert [violation.what for violation in outcome.violations] == [said] * logs
    assert any(f"log@{TWO[logs].host} barnabas.test ERROR something is wrong" in line for line in lines)


def test_an_error_of_a_task_is_blamed_on_its_node() -> None:
    async def workload(world: World) -> None:
        await asyncio.sleep(3)
        _in_process(world.machines[1], _raises_in_a_task)
        await asyncio.sleep(1)

    scenario = draw_scenario(1, 5)._replace(faults={}, machines=TWO)
    (violation,) = simulate_scenario(scenario, workload, judge_nothing).violations
    assert violation.what.startswith("broker-2: ")
    assert "exception was never retrieved ValueError: nobody looks at this" in violation.what


def test_an_error_about_a_peer_is_excused_by_no_disk() -> None:
    async def doubts_its_peer() -> None:
        logging.getLogger("barnabas.transport").error("broker-2 does not speak as it should")

    async def workload(world: World) -> None:
        await asyncio.sleep(3)
        world.machines[0].drive.fail("append", errno.EIO, "no such file", 0, 1)
        await _in_process(world.machines[0], doubts_its_peer)
        await asyncio.sleep(1)

    scenario = draw_scenario(1, 5)._replace(faults={}, machines=TWO)
    (violation,) = simulate_scenario(scenario, workload, judge_nothing).violations
    assert violation.what == "broker-1: barnabas.transport says: broker-2 does not speak as it should"


@pytest.mark.parametrize(("where", "who"), [("client", "a client"), (None, "barnabas.test")])
def test_an_error_outside_of_nodes_is_excused_by_no_disk(where: str | None, who: str) -> None:
    async def workload(world: World) -> None:
        await asyncio.sleep(3)
        for machine in world.machines:
            machine.drive.fail("append", errno.EIO, "no such file", 0, 1)
        await (world.process(where).spawn(_says_an_error()) if where else _says_an_error())
        await asyncio.sleep(1)

    outcome = simulate_scenario(draw_scenario(1, 5)._replace(faults={}), workload, judge_nothing)
    assert [violation.what for violation in outcome.violations] == [f"{who} says: something is wrong"]


def test_a_deadlock_of_everything_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: World, workload: worlds.Workload) -> None:
        await _waits_for_ever()

    monkeypatch.setattr(World, "run", nothing)
    outcome = simulate_scenario(draw_scenario(1, 5), _hangs, judge_nothing)
    assert "nothing will ever happen again" in outcome.violations[0].what
    assert "_waits_for_ever" in outcome.violations[0].what


def test_scenarios_differ_and_replay() -> None:
    scenarios = [draw_scenario(seed, kind=LOG) for seed in range(200)]
    assert scenarios[:20] == [draw_scenario(seed, kind=LOG) for seed in range(20)]
    assert all(60 <= scenario.seconds <= 90 for scenario in scenarios)
    for kind in KINDS:
        assert draw_scenario(5, 7.0, kind) == draw_scenario(5, kind=kind)._replace(seconds=7.0)
    kinds = {kind for scenario in scenarios for kind in scenario.faults}
    assert kinds == FAULTS.keys()
    assert any(not scenario.faults for scenario in scenarios)
    policies = {topic.configs["cleanup.policy"] for scenario in scenarios for topic in scenario.topics}
    assert policies == {"delete", "compact", "compact,delete"}
    for scenario in scenarios:
        names = {topic.name: topic for topic in scenario.topics}
        assert len(names) == len(scenario.topics)
        for producer in scenario.producers:
            assert not names[producer.topic].is_compacted or producer.keys


def test_kinds() -> None:
    drawn = [draw_scenario(seed) for seed in range(60)]
    assert {scenario.kind for scenario in drawn} == set(KINDS)
    for scenario in drawn:
        as_log = draw_scenario(scenario.seed, kind=LOG)
        assert scenario.faults == as_log.faults
        assert scenario == draw_scenario(scenario.seed, kind=scenario.kind)
        if scenario.kind == LOG:
            assert scenario == as_log
            assert scenario.coordination == CoordinationPlan()
        else:
            loses_power = any(fault.startswith("power-loss") for fault in scenario.faults)
            assert not loses_power or scenario.broker["log.flush.interval.messages"] == "1"
            assert bool(scenario.coordination.groups) is (scenario.kind == GROUPS)
            assert bool(scenario.coordination.loops) is (scenario.kind == TRANSACTIONS)


def test_what_settings_promise() -> None:
    for seed in range(100):
        for topic in draw_scenario(seed, kind=LOG).topics:
            facts, configs = topic.facts, topic.configs
            assert facts.flush_every_message is (configs.get("flush.messages") == "1")
            assert facts.is_trimmed is (
                "delete" in configs["cleanup.policy"]
                and (configs["retention.ms"] != "-1" or "retention.bytes" in configs)
            )
            assert facts.has_append_time is (configs.get("message.timestamp.type") == "LogAppendTime")
