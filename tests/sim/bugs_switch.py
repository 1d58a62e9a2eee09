"""What a deliberate bug is: a few patches of production code, in place as long as its switch is on.

A bug is a function that is given `patch(owner, name, replacement)`; `switched_on` undoes what it did. Nothing
in production code knows of any of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from barnabas.sim.scenario import LOG, Scenario

Patch = Callable[[Any, str, Any], None]


class Bug(NamedTuple):
    """`checkers`: who may be the one to say so ("world": the simulation itself breaks).

    `needs`: what a scenario must have for the bug to show at all; a seed without it need not be run.
    `kind`: of which kind the simulations are.
    `unseen`: why nobody can see it from outside, as things are; it is tried only when asked for by name.
    """

    name: str
    what: str
    checkers: tuple[str, ...]
    apply: Callable[[Patch], None]
    needs: tuple[Callable[[Scenario], bool], ...] = ()
    unseen: str = ""
    kind: str = LOG

    def may_show(self, scenario: Scenario) -> bool:
        return all(need(scenario) for need in self.needs)


BUGS: dict[str, Bug] = {}


def bug(
    what: str,
    *checkers: str,
    needs: Sequence[Callable[[Scenario], bool]] = (),
    unseen: str = "",
    kind: str = LOG,
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Make a bug of a function, under its name."""

    def make(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = apply.__name__.replace("_", "-")
        BUGS[name] = Bug(name, what, checkers, apply, tuple(needs), unseen, kind)
        return apply

    return make


def power_losses(scenario: Scenario) -> bool:
    return any(kind.startswith("power-loss") for kind in scenario.faults)


def starts(scenario: Scenario) -> bool:
    """More than one: after crashes, clean stops, or a disk's errors, which end the node."""
    return any(
        kind.startswith(("power-loss", "process-crash", "restart", "disk")) for kind in scenario.faults
    )


def crashes(scenario: Scenario) -> bool:
    return any(kind.startswith(("power-loss", "process-crash")) for kind in scenario.faults)


def loops_in_group(scenario: Scenario) -> bool:
    return any(loop.partition < 0 for loop in scenario.coordination.loops)


def new_way(scenario: Scenario) -> bool:
    return any(loop.way.is_implicit for loop in scenario.coordination.loops)


def clean_stops(scenario: Scenario) -> bool:
    return "restart" in scenario.faults


def roll_backs(scenario: Scenario) -> bool:
    """Something that makes a leader lose what it has decided, and another thing that makes it lead again."""
    return "leader-cut-off" in scenario.faults and not {"leader-crash", "crash-after-election"}.isdisjoint(
        scenario.faults
    )


def disk_errors(scenario: Scenario) -> bool:
    return "disk-error" in scenario.faults


def full_disks(scenario: Scenario) -> bool:
    return "disk-full" in scenario.faults


def retries(scenario: Scenario) -> bool:
    """Something that makes a producer send again."""
    return bool(scenario.faults)


def compaction(scenario: Scenario) -> bool:
    return any(topic.is_compacted for topic in scenario.topics)


def prompt_compaction(scenario: Scenario) -> bool:
    return any(
        topic.is_compacted and topic.facts.max_compaction_lag_ms is not None for topic in scenario.topics
    )


def retention(scenario: Scenario) -> bool:
    return any(topic.facts.is_trimmed for topic in scenario.topics)


def flushed_messages(scenario: Scenario) -> bool:
    return any(topic.facts.flush_every_message for topic in scenario.topics)


def flushed_in_time(scenario: Scenario) -> bool:
    return any(
        topic.facts.flush_ms is not None and not topic.facts.flush_every_message for topic in scenario.topics
    )


@contextmanager
def switched_on(one: Bug | None) -> Iterator[None]:
    """Production code with that bug; as it is where there is none."""
    with ExitStack() as stack:

        def patch(owner: Any, name: str, replacement: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, replacement))

        if one is not None:
            one.apply(patch)
        yield
