"""`barnabas up add` and `barnabas up remove`: a local cluster with one node more, or one less.

A node that is added registers as a broker. While there are fewer than three voters it is a controller as well
and makes itself a voter; the topics of groups and transactions then get replicas on it. A node that is
removed is emptied first: its replicas are copied to other nodes, a few partitions at a time, and only when it
has none any more does it give up its vote, stop in a controlled way, and have its registration deleted. Where
replication could not be kept nothing is changed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.cli.clusters.evacuation import Evacuation, plan_evacuation
from barnabas.cli.clusters.grow_internal import (
    REPLICAS,
    Outcome,
    grow_topics,
    growth_document,
    tell_growth,
)
from barnabas.cli.clusters.growth import Step
from barnabas.cli.clusters.partitions import partitions_of
from barnabas.cli.clusters.wholeness import quorum_of, some
from barnabas.cli.connecting import Session
from barnabas.cli.failures import FAILED, OK, CommandFailed
from barnabas.cli.local_cluster.actions import event_teller, node_of, running_cluster
from barnabas.cli.local_cluster.control import ask_supervisor
from barnabas.cli.local_cluster.plan import ClusterPlan, NodePlan
from barnabas.cli.local_cluster.sessions import in_session, wait_for
from barnabas.cli.local_cluster.state import ClusterState, read_state
from barnabas.cli.options import wants_json
from barnabas.cli.output import Output, counted
from barnabas.client.errors import BrokerError

AT_ONCE = 20
_POLL_S = 0.05
_ROUNDS = 5  # topics may be created on the node meanwhile


# --- add


def add(options: argparse.Namespace) -> int:
    """Add a node, and wait until it has its part."""
    directory, _ = running_cluster(options)
    output = Output(as_json=wants_json(options))
    done = ask_supervisor(directory, "add", event_teller(output))
    state = read_state(directory)
    assert state is not None
    node = node_of(state, int(done["id"]))

    async def join(session: Session) -> Outcome | None:
        await _joined(session, node, options.wait)
        if state.plan.replication == 1:
            return None
        return await grow_topics(session, state.plan.replication or REPLICAS, wait_s=options.wait)

    grown = in_session(options, state.plan.nodes, join)
    if output.as_json:
        output.document({**done, "internal_topics": None if grown is None else growth_document(grown)})
    else:
        _tell_added(output, state.plan, node, grown)
    return OK if grown is None or grown.is_whole else FAILED


async def _joined(session: Session, node: NodePlan, wait_s: float) -> None:
    """Wait until the others know a node, and its vote counts if it is to have one."""

    async def is_there() -> bool:
        brokers = (await session.admin.describe_cluster()).brokers
        if node.node_id not in [each.node_id for each in brokers]:
            return False
        quorum = await quorum_of(session.admin)
        return not node.is_voter or (
            quorum is not None and node.node_id in [each.node_id for each in quorum.voters]
        )

    text = f"node {node.node_id} has not joined the cluster"
    await wait_for(session, is_there, wait_s, text, f"see {node.log_file}")


def _tell_added(output: Output, plan: ClusterPlan, node: NodePlan, grown: Outcome | None) -> None:
    voters = sum(each.is_voter for each in plan.nodes)
    role = f"broker and controller, voter {voters} of {voters}" if node.is_voter else "broker"
    output.say(f"node {node.node_id} has joined: {role}, at {node.address}")
    if node.is_voter and voters == 2:
        output.say("two voters are no more than one: both are needed; `barnabas up add` adds the third")
    if grown is not None and grown.plan.steps:
        tell_growth(output, grown)
    output.say("partitions that are there stay where they are; new ones use it")
    before = plan.without(node.node_id).replicas
    if before != plan.replicas:
        output.say(
            f"topics get {plan.replicas} replicas by default, no longer {before}, once `barnabas up roll` "
            "has restarted the other nodes"
        )


# --- remove


class _Moved(NamedTuple):
    """What was done for a node that leaves."""

    partitions: int
    seconds: float


def remove(options: argparse.Namespace) -> int:
    """Remove a node, when nothing is on it any more."""
    directory, state = running_cluster(options)
    output = Output(as_json=wants_json(options))
    node = state.plan.node(options.id)
    if node is None:
        return _unregister_late(output, state, options)
    others = [each for each in state.plan.nodes if each is not node]
    _refuse_without(state, node, others)

    async def leave(session: Session) -> _Moved:
        moved = await _empty(session, node, options)
        await _give_up_vote(session, node, options.wait)
        return moved

    moved = in_session(options, others, leave)
    ask_supervisor(directory, "remove", event_teller(output), id=node.node_id)
    in_session(options, others, lambda session: _unregister_empty(session, node, options.wait))
    _tell_removed(output, node, moved, others)
    return OK


def _refuse_without(state: ClusterState, node: NodePlan, others: Sequence[NodePlan]) -> None:
    """Refuse where the other nodes could not go on."""
    if not others:
        raise CommandFailed(f"node {node.node_id} is the only one", "`barnabas up stop` stops the cluster")
    voters = [each for each in others if each.is_voter]
    if not voters:
        raise CommandFailed(
            f"node {node.node_id} is the only controller",
            "`barnabas up add` adds another one first, which has its log",
        )
    away = [each.node_id for each in others if not state.nodes[each.node_id].is_alive]
    if away:
        names = ", ".join(map(str, away))
        raise CommandFailed(
            f"node {names} does not run, so nothing can be moved safely",
            f"`barnabas up restart {away[0]}`, and see `barnabas up status`",
        )


async def _empty(session: Session, node: NodePlan, options: argparse.Namespace) -> _Moved:
    """Move everything away from a node, and what comes meanwhile; plan it all before anything is done."""
    began = time.monotonic()
    moved = 0
    for _ in range(_ROUNDS):
        plan = await _plan(session, node, options)
        if not plan.steps:
            return _Moved(moved, time.monotonic() - began)
        if not session.output.as_json:
            count = counted(len(plan.steps), "partition")
            session.output.line(f"node {node.node_id} has {count}: moved to the other nodes")
        for at in range(0, len(plan.steps), AT_ONCE):
            batch = plan.steps[at : at + AT_ONCE]
            await _move(session, node.node_id, batch, options.wait)
            moved += len(batch)
            if not session.output.as_json:
                session.output.line(f"{moved:,} moved, {time.monotonic() - began:.1f} s")
    raise CommandFailed(
        f"topics are created on node {node.node_id} as fast as it is emptied", "try again when that is over"
    )


async def _plan(session: Session, node: NodePlan, options: argparse.Namespace) -> Evacuation:
    brokers = (await session.admin.describe_cluster()).brokers
    racks = {each.node_id: each.rack for each in brokers if each.node_id != node.node_id}
    found = (await partitions_of(session.admin)).every
    plan = plan_evacuation(found, racks, node.node_id, may_have_fewer=options.fewer_replicas)
    if plan.stuck:
        by_place = {each.at: each for each in found}
        reason, stuck = next(iter(plan.reasons.items()))
        names = some([by_place[at] for at in stuck])
        count = counted(len(stuck), "partition")
        raise CommandFailed(f"{count} cannot leave node {node.node_id}: {reason} ({names})", _advice(reason))
    return plan


def _advice(reason: str) -> str:
    if "would be left" in reason:
        return "`barnabas up add` adds a node first; or allow fewer copies with --fewer-replicas"
    if "leads" in reason:
        return "`barnabas doctor --bootstrap ...` says why, and what to do"
    return "wait until the reassignment has ended: `barnabas cluster partitions --moving`"


async def _move(session: Session, leaving: int, steps: Sequence[Step], wait_s: float) -> None:
    """Move some partitions, and wait until they have arrived; those that do not in time are left where they
    were."""
    targets = {step.at: set(step.replicas) for step in steps}
    await session.admin.alter_reassignments({step.at: step.replicas for step in steps})
    deadline = time.monotonic() + wait_s
    late = dict(targets)
    while late:
        found = {each.at: each for each in (await partitions_of(session.admin)).every}
        arrived = [
            at
            for at, replicas in late.items()
            if at not in found or (set(found[at].partition.replicas) == replicas and not found[at].is_moving)
        ]
        for at in arrived:  # topics may be deleted meanwhile
            del late[at]
        if late and time.monotonic() >= deadline:
            await _cancel(session, list(late))
            names = some([found[at] for at in late if at in found])
            raise CommandFailed(
                f"{counted(len(late), 'partition')} did not arrive within {wait_s:g} s, and stay with node "
                f"{leaving}: {names}",
                "see that the other nodes keep up, and give it longer with --wait",
            )
        if late:
            await session.clock.sleep(_POLL_S)


async def _cancel(session: Session, late: Sequence[Any]) -> None:
    try:
        await session.admin.alter_reassignments(dict.fromkeys(late))
    except BrokerError as error:
        if error.wire.name != "NO_REASSIGNMENT_IN_PROGRESS":  # it has arrived at this very moment
            raise


async def _give_up_vote(session: Session, node: NodePlan, wait_s: float) -> None:
    quorum = await session.admin.describe_quorum()
    for voter in quorum.voters:
        if voter.node_id == node.node_id and voter.directory_id is not None:
            await session.admin.remove_voter(voter.node_id, voter.directory_id)

    async def is_none() -> bool:
        now = await quorum_of(session.admin)
        return (
            now is not None
            and now.leader_id not in (-1, node.node_id)
            and node.node_id not in [each.node_id for each in now.voters]
        )

    text = f"the quorum goes on with node {node.node_id} among its voters: it was not taken out"
    await wait_for(session, is_none, wait_s, text, "`barnabas cluster describe` shows the quorum")


async def _unregister_empty(session: Session, node: NodePlan, wait_s: float) -> None:
    """Unregister a node that has stopped, unless a topic was created on it at the last moment."""
    await _require_empty(session, node.node_id, f"`barnabas serve --config {node.settings_file}` starts it")
    await _unregister(session, node.node_id, wait_s)


async def _require_empty(session: Session, node_id: int, start: str) -> None:
    """Refuse to unregister a node that partitions still name; `start` says how it is started."""
    every = (await partitions_of(session.admin)).every
    left = [each for each in every if node_id in each.partition.replicas]
    if left:
        raise CommandFailed(
            f"{counted(len(left), 'partition')} came to node {node_id} before it stopped, and it stays "
            f"registered: {some(left)}",
            f"{start}; move or delete these, stop it, and `barnabas up remove {node_id}`",
        )


async def _unregister(session: Session, node_id: int, wait_s: float) -> None:
    await session.admin.unregister_broker(node_id)

    async def is_gone() -> bool:
        brokers = (await session.admin.describe_cluster(with_fenced=True)).brokers
        return node_id not in [each.node_id for each in brokers]

    text = f"node {node_id} is still registered"
    await wait_for(session, is_gone, wait_s, text, f"`barnabas up remove {node_id}` tries again")


def _unregister_late(output: Output, state: ClusterState, options: argparse.Namespace) -> int:
    """Finish what an interrupted removal has left: a registration without a node."""

    async def finish(session: Session) -> bool:
        brokers = (await session.admin.describe_cluster(with_fenced=True)).brokers
        if not any(each.node_id == options.id and each.is_fenced for each in brokers):
            return False
        await _require_empty(session, options.id, "`barnabas serve`, with its server.properties, starts it")
        await _unregister(session, options.id, options.wait)
        return True

    if not in_session(options, state.plan.nodes, finish):
        node_of(state, options.id)  # it tells which nodes there are
    fact = {"id": options.id, "partitions": 0, "moved_s": 0.0}
    output.done(fact, f"node {options.id} was gone, and is no longer registered")
    return OK


def _tell_removed(output: Output, node: NodePlan, moved: _Moved, others: Sequence[NodePlan]) -> None:
    fact = {
        "id": node.node_id,
        "partitions": moved.partitions,
        "moved_s": round(moved.seconds, 3),
        "directory": str(node.directory),
    }
    moves = f"{counted(moved.partitions, 'partition')} moved in {moved.seconds:.1f} s"
    output.done(fact, f"node {node.node_id} removed: {moves}")
    if output.as_json:
        return
    voters = sum(each.is_voter for each in others)
    if node.is_voter and voters == 2:
        output.say("two voters are left, and both are needed; `barnabas up add` adds the third")
    output.say(f"nothing needs {Path(node.directory)} any more")
