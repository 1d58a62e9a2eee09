"""`barnabas cluster grow-internal`: the topics of the coordinators get replicas on brokers that have joined.

A few partitions at a time are reassigned. As soon as a partition is to have more replicas,
min.insync.replicas may ask for more of them than are in sync, and writes are refused until the new ones have
caught up: this pause is measured for each partition. Partitions that do not arrive in time get their new
replicas taken back, so that writes go on. __transaction_state was made with a min.insync.replicas that is no
larger than its number of replicas; it is raised once all of them are in sync.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.cli.clusters.growth import Plan, Step, plan_growth
from barnabas.cli.clusters.partitions import MIN_IN_SYNC
from barnabas.cli.connecting import Session
from barnabas.cli.failures import FAILED, OK
from barnabas.cli.options import Actions, positive, seconds
from barnabas.cli.output import Output, counted
from barnabas.client.admin import (
    ConfigChange,
    ElectionType,
    PartitionDescription,
    ResourceType,
)
from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut
from barnabas.client.metadata import TopicPartition
from barnabas.core.network import ConnectionLost
from barnabas.metadata.names import TRANSACTION_STATE
from barnabas.protocol.channel import NotSpoken

GROW_EXAMPLES = """
barnabas cluster grow-internal                       three replicas, or as many as there are brokers
barnabas cluster grow-internal --dry-run             what that would do
barnabas cluster grow-internal --spread-leaders      and every broker coordinates about as much
barnabas cluster grow-internal --replicas 5 --json
"""
REPLICAS = 3
AT_ONCE = 5
WAIT_S = 60.0
_POLL_S = 0.02
_TRANSACTION_MIN_IN_SYNC = 2


class Grown(NamedTuple):
    """What became of a partition; the pause is None where writes were accepted all the time."""

    step: Step
    is_done: bool
    pause_s: float | None


def add_grow_internal(actions: Actions, run: object) -> None:
    """The options of the command."""
    parser = actions.add(
        "grow-internal", "add replicas to the topics of groups and transactions", GROW_EXAMPLES, run
    )
    parser.add_argument(
        "--replicas",
        metavar="N",
        type=positive,
        default=REPLICAS,
        help=f"how many, at most one on each broker (default: {REPLICAS})",
    )
    parser.add_argument(
        "--at-once",
        metavar="N",
        type=positive,
        default=AT_ONCE,
        help=f"how many partitions are on their way at a time (default: {AT_ONCE})",
    )
    parser.add_argument(
        "--wait",
        metavar="S",
        type=seconds,
        default=WAIT_S,
        help=f"how long replicas may take to catch up before they are taken back (default: {WAIT_S:g})",
    )
    parser.add_argument(
        "--spread-leaders", action="store_true", help="have leaders on all brokers, about as many on each"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")


class Outcome(NamedTuple):
    """What was to be done, and what was: `raised` are settings of topics, `silent` brokers without a part."""

    plan: Plan
    grown: list[Grown]
    raised: dict[str, int]
    silent: list[int]
    is_dry: bool

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to be done."""
        return not self.plan.left_alone and all(each.is_done for each in self.grown)


async def grow_internal(session: Session, options: argparse.Namespace) -> int:
    """Do what the command is to do."""
    outcome = await grow_topics(
        session,
        options.replicas,
        at_once=options.at_once,
        wait_s=options.wait,
        spreads_leaders=options.spread_leaders,
        is_dry=options.dry_run,
    )
    if session.output.as_json:
        session.output.document(growth_document(outcome))
    else:
        tell_growth(session.output, outcome)
    return OK if outcome.is_whole else FAILED


async def grow_topics(
    session: Session,
    replicas: int = REPLICAS,
    *,
    at_once: int = AT_ONCE,
    wait_s: float = WAIT_S,
    spreads_leaders: bool = False,
    is_dry: bool = False,
) -> Outcome:
    """Give the internal topics so many replicas, or as many as there are brokers."""
    racks, silent = await _brokers(session)
    partitions = await _internal(session)
    moving = await session.admin.list_reassignments()
    plan = plan_growth(partitions, racks, replicas, moving=moving, spreads_leaders=spreads_leaders)
    grown: list[Grown] = []
    raised: dict[str, int] = {}
    if not is_dry:
        grown = await _grow(session, plan, at_once, wait_s)
        if spreads_leaders and grown:
            await session.admin.elect_leaders(
                ElectionType.PREFERRED, [each.step.at for each in grown if each.is_done]
            )
        raised = await _raise_min_in_sync(session, plan)
    return Outcome(plan, grown, raised, silent, is_dry)


async def _brokers(session: Session) -> tuple[dict[int, str | None], list[int]]:
    """The racks of the brokers that can take replicas, and the brokers that do not answer."""
    racks: dict[int, str | None] = {}
    silent: list[int] = []
    for broker in (await session.admin.describe_cluster()).brokers:
        try:
            directories = (await session.admin.describe_log_dirs([broker.node_id])).get(broker.node_id, {})
        except (BrokerNotReachable, ConnectionLost, TimedOut):
            silent.append(broker.node_id)
            continue
        except (NotSpoken, BrokerError):
            racks[broker.node_id] = broker.rack  # it does not tell, and may be as good as any
            continue
        if any(each.error is None and not each.is_cordoned for each in directories.values()):
            racks[broker.node_id] = broker.rack
        else:
            silent.append(broker.node_id)
    return racks, silent


async def _internal(session: Session) -> dict[TopicPartition, PartitionDescription]:
    """All partitions of internal topics."""
    topics = await session.admin.describe_topics()
    return {
        TopicPartition(topic.name, each.partition): each
        for topic in topics.values()
        if topic.is_internal
        for each in topic.partitions
    }


# ---- on the way ------------------------------------------------------------------------------------------


async def _grow(session: Session, plan: Plan, at_once: int, wait_s: float) -> list[Grown]:
    names = {step.at.topic for step in plan.steps}
    settings = await session.admin.describe_topic_setting(sorted(names), MIN_IN_SYNC)
    needed = {name: int(value) for name, value in settings.items() if value}
    grown: list[Grown] = []
    for at in range(0, len(plan.steps), at_once):
        batch = plan.steps[at : at + at_once]
        found = await _Batch(session, batch, needed).grow(wait_s)
        grown += found
        if not all(each.is_done for each in found):
            break  # the brokers that get replicas cannot keep up: the others would not arrive either
    return grown


class _Batch:
    """Partitions that are on their way together."""

    def __init__(self, session: Session, steps: Sequence[Step], min_in_sync: Mapping[str, int]) -> None:
        self._session = session
        self._steps = {step.at: step for step in steps}
        self._topics = sorted({step.at.topic for step in steps})
        # how many have to be in sync for writes, where these are not so many yet
        self._needed = {
            at: needed
            for at, step in self._steps.items()
            if (needed := min(min_in_sync.get(at.topic, 1), len(step.replicas))) > len(step.before)
        }
        self._pauses: dict[TopicPartition, float] = {}
        self._done: set[TopicPartition] = set()

    async def grow(self, wait_s: float) -> list[Grown]:
        clock = self._session.clock
        began = clock.monotonic()
        await self._session.admin.alter_reassignments({at: each.replicas for at, each in self._steps.items()})
        while not await self._is_there(began) and clock.monotonic() - began < wait_s:
            await clock.sleep(_POLL_S)
        late = [at for at in self._steps if at not in self._done]
        if late:
            await self._cancel(late)
            for at in late:
                if at in self._needed:
                    self._pauses.setdefault(at, clock.monotonic() - began)
        return [Grown(step, at in self._done, self._pauses.get(at)) for at, step in self._steps.items()]

    async def _is_there(self, began: float) -> bool:
        """Look; whether all have arrived."""
        found = await self._session.admin.describe_topics(self._topics)
        elapsed = self._session.clock.monotonic() - began
        for topic in found.values():
            for each in topic.partitions:
                at = TopicPartition(topic.name, each.partition)
                if (step := self._steps.get(at)) is None or set(each.replicas) != set(step.replicas):
                    continue
                if at in self._needed and len(each.in_sync) >= self._needed[at]:
                    self._pauses.setdefault(at, elapsed)
                if set(each.in_sync) == set(step.replicas):
                    self._done.add(at)
        return len(self._done) == len(self._steps)

    async def _cancel(self, late: Sequence[TopicPartition]) -> None:
        """Take the replicas back; what has arrived at this very moment stays."""
        try:
            await self._session.admin.alter_reassignments(dict.fromkeys(late))
        except BrokerError as error:
            if error.wire.name != "NO_REASSIGNMENT_IN_PROGRESS":
                raise


async def _raise_min_in_sync(session: Session, plan: Plan) -> dict[str, int]:
    """Raise what was held down by the number of replicas, where all are in sync now."""
    name = TRANSACTION_STATE
    before = {len(step.before) for step in plan.steps if step.at.topic == name}
    if not before:
        return {}
    partitions = [each for at, each in (await _internal(session)).items() if at.topic == name]
    in_sync = min(len(each.in_sync) for each in partitions)
    setting = (await session.admin.describe_topic_setting([name], MIN_IN_SYNC)).get(name)
    wanted = min(_TRANSACTION_MIN_IN_SYNC, *(len(each.replicas) for each in partitions))
    if setting is None or int(setting) not in before or not int(setting) < wanted <= in_sync:
        return {}
    await session.admin.alter_configs(ResourceType.TOPIC, name, [ConfigChange(MIN_IN_SYNC, str(wanted))])
    return {name: wanted}


# ---- what is told ----------------------------------------------------------------------------------------


def tell_growth(output: Output, outcome: Outcome) -> None:
    """Say it to people."""
    plan, grown, raised, silent, is_dry = outcome
    for broker in silent:
        output.say(f"broker {broker} takes no replicas: it does not answer, or its directories do not serve")
    for at, reason in plan.left_alone.items():
        output.say(f"{at} is left alone: {reason}")
    if not plan.steps:
        output.say("nothing to be done")
        return
    if is_dry:
        rows = [(str(step.at), step.before, step.replicas) for step in plan.steps]
        output.table(("partition", "replicas", "then"), rows)
        return
    done = [each for each in grown if each.is_done]
    output.say(f"{counted(len(done), 'partition')} of {len(plan.steps)} have their replicas")
    for each in grown:
        if not each.is_done:
            output.say(f"{each.step.at} did not catch up in time: its new replicas were taken back")
    pauses = [each.pause_s for each in grown if each.pause_s is not None]
    if pauses:
        output.say(
            f"writes were refused in {counted(len(pauses), 'partition')} until enough were in sync, "
            f"for at most {max(pauses):.2f} s each"
        )
    else:
        output.say("writes were accepted all the time")
    for name, value in raised.items():
        output.say(f"{name}: {MIN_IN_SYNC}={value}")


def growth_document(outcome: Outcome) -> dict[str, Any]:
    """The same for machines."""
    plan, grown, raised, silent, is_dry = outcome
    by_place = {each.step.at: each for each in grown}
    return {
        "dry_run": is_dry,
        "partitions": [
            {
                "topic": step.at.topic,
                "partition": step.at.partition,
                "before": list(step.before),
                "replicas": list(step.replicas),
                "done": step.at in by_place and by_place[step.at].is_done,
                "pause_s": by_place[step.at].pause_s if step.at in by_place else None,
            }
            for step in plan.steps
        ],
        "left_alone": [
            {"topic": at.topic, "partition": at.partition, "reason": reason}
            for at, reason in plan.left_alone.items()
        ],
        "brokers_left_out": list(silent),
        "longest_pause_s": max((each.pause_s for each in grown if each.pause_s is not None), default=None),
        "min_insync_replicas": dict(raised),
    }
