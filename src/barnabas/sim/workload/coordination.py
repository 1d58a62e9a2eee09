"""The clients of groups and of transactions: who there is, and who comes at last."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from barnabas.sim.coordination_scenario import GroupPlan
from barnabas.sim.group_events import GroupWanted, Place
from barnabas.sim.scenario import Scenario
from barnabas.sim.workload.client import Client
from barnabas.sim.workload.committing import run_committer
from barnabas.sim.workload.grouped import run_commit_watcher, run_member, run_vanisher
from barnabas.sim.workload.looping import run_leaver, run_loop
from barnabas.sim.workload.watching import (
    drain,
    read_outputs,
    run_output_reader,
    run_stable_watcher,
)
from barnabas.sim.workload.writing import run_writer

Work = Callable[[Client], Coroutine[Any, Any, None]]

SETTLE_GROUPS_S = 36.0  # for the last members of a group to have what they will have
DRAIN_S = 90.0


def input_places(scenario: Scenario) -> list[Place]:
    """What groups and loops work off."""
    return [(topic.name, each) for topic in scenario.topics for each in range(topic.partitions)]


def output_places(scenario: Scenario) -> list[Place]:
    return [(name, each) for name, partitions in scenario.coordination.outputs for each in range(partitions)]


def working_roles(scenario: Scenario) -> dict[str, Work]:
    """Those who are there while there are faults."""
    roles: dict[str, Work] = {}
    plan, places = scenario.coordination, input_places(scenario)
    for group in plan.groups:
        roles |= _members(group, places, is_last=False)
    roles |= _loops(scenario, is_last=False) | _writers(scenario)
    for lone in plan.lone:
        roles[f"committer-{lone}"] = partial(run_committer, group=lone, places=places)
    named = [each.name for each in plan.groups] + [loop.group.name for loop in plan.loops]
    groups = list(dict.fromkeys([*named, *plan.lone]))
    if groups:
        roles["commit-watcher"] = partial(run_commit_watcher, groups=groups, places=places)
    outputs = output_places(scenario)
    if outputs:
        roles["committed-reader"] = partial(run_output_reader, places=outputs, is_committed=True)
        roles["uncommitted-reader"] = partial(run_output_reader, places=outputs, is_committed=False)
        loop = (plan.loops or plan.writers)[0]
        roles["leaver"] = partial(run_leaver, plan=loop, outputs=dict(plan.outputs)[loop.output])
        roles["stable-watcher"] = partial(run_stable_watcher, places=outputs)
    return roles


def last_roles(scenario: Scenario) -> dict[str, Work]:
    """Those who come when the faults are over, and stay until all is settled."""
    roles: dict[str, Work] = {}
    for group in scenario.coordination.groups:
        roles |= _members(group, input_places(scenario), is_last=True)
        roles[f"vanishing-{group.name}"] = partial(run_vanisher, plan=group, places=input_places(scenario))
    return roles | _loops(scenario, is_last=True)


def _members(group: GroupPlan, places: list[Place], *, is_last: bool) -> dict[str, Work]:
    return {
        f"{'last-' if is_last else ''}{group.name}-{number}": partial(
            run_member,
            plan=group,
            instance=f"{group.name}-{number}" if number < group.static else "",
            places=places,
            is_last=is_last,
        )
        for number in range(group.members)
    }


def _loops(scenario: Scenario, *, is_last: bool) -> dict[str, Work]:
    roles: dict[str, Work] = {}
    outputs = dict(scenario.coordination.outputs)
    for plan in scenario.coordination.loops:
        work = partial(
            run_loop,
            plan=plan,
            places=input_places(scenario),
            outputs=outputs[plan.output],
            is_last=is_last,
        )
        roles[f"{'last-' if is_last else ''}{plan.transactional_id}"] = work
        if plan.has_twin and not is_last:
            roles[f"{plan.transactional_id}-twin"] = work
    return roles


def _writers(scenario: Scenario) -> dict[str, Work]:
    roles: dict[str, Work] = {}
    for plan in scenario.coordination.writers:
        roles[plan.transactional_id] = partial(run_writer, plan=plan)
        if plan.has_twin:
            roles[f"{plan.transactional_id}-twin"] = partial(run_writer, plan=plan)
    return roles


async def watch_settling(client: Client, scenario: Scenario) -> None:
    """Return when the last members have had their time, and the last loops have worked everything off."""
    places = input_places(scenario)
    for group in scenario.coordination.groups:
        wanted = GroupWanted(client.now, group.name, group.members, tuple(places))
        client.history.add(wanted)
    if scenario.coordination.groups:
        await client.clock.sleep(SETTLE_GROUPS_S)
    groups = dict.fromkeys(loop.group.name for loop in scenario.coordination.loops)
    for name in groups:
        await drain(client, name, places, DRAIN_S)


async def judge_outputs(client: Client, scenario: Scenario) -> None:
    """The last look at what transactions wrote."""
    await read_outputs(client, output_places(scenario))
