"""The disk, the network and the clock of simulated quorums, and nodes on them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.core.random import SeededRandom
from barnabas.raft.election import Election, State
from barnabas.raft.log_index import Entry
from barnabas.raft.messages import Answered, ConnectionLost, DialRefused, DialSucceeded, Failed
from barnabas.raft.ready import Ready
from barnabas.sim.quorum.disk import Disk, chained
from barnabas.sim.quorum.engine import Engine
from barnabas.sim.quorum.network import CONTROLLER
from barnabas.sim.quorum.node import Node
from barnabas.sim.quorum.plan import FAULTS, draw_plan
from barnabas.sim.quorum.world import QuorumWorld
from tests.raft.nodes import A, B, C, voters


def entries(*values: int, base_offset: int = 0, epoch: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(base_offset + index, 1, epoch, value) for index, value in enumerate(values))


# --- time


def test_calls_come_in_their_order() -> None:
    engine, seen = Engine(), []  # type: ignore[var-annotated]
    engine.after(20, seen.append, "late")
    engine.after(10, seen.append, "first")
    engine.at(10, seen.append, "second")
    engine.run(15)
    assert (seen, engine.now_us) == (["first", "second"], 15)
    engine.run(100, lambda: True)
    assert (seen[-1], engine.now_us) == ("late", 20)


def test_hash_tells_runs_apart() -> None:
    one, same, other = Engine(), Engine(), Engine()
    for engine, what in ((one, 1), (same, 1), (other, 2)):
        engine.note(3, what)
    assert one.hash == same.hash != other.hash


# --- disks


def test_chains_tell_logs_apart() -> None:
    first, second = entries(5, 6)
    assert chained(chained(0, first), second) != chained(chained(0, second), first)
    assert chained(0, first) != chained(0, first._replace(epoch=2))
    assert chained(0, first) != chained(0, first._replace(data=None, control=(voters(A),)))


def test_log_is_cut_trimmed_and_read() -> None:
    disk = Disk(voters(A), 1)
    disk.write(Ready(entries=entries(10, 11, 12, 13)))
    log = disk.log
    assert [entry.data for entry in log.between(1, 3, 5)] == [11, 12]
    assert [entry.data for entry in log.between(1, 4, 1)] == [11]
    chain = log.chain_at(3)
    log.trim(2)
    log.truncate(3)
    assert (log.start_offset, log.end_offset, log.chain_at(3), log.chain_at(4)) == (2, 3, chain, None)


@pytest.mark.parametrize("seed", range(10))
def test_power_takes_what_is_not_flushed_from_its_end(seed: int) -> None:
    disk, random = Disk(voters(A), 1), SeededRandom(seed)
    disk.write(Ready(entries=entries(10, 11)))
    disk.write_in_part(Ready(entries=entries(12, 13, base_offset=2)), random)
    appended = disk.log.end_offset
    disk.lose_power(random)
    assert 2 <= disk.log.end_offset <= appended <= 4
    assert [entry.data for entry in disk.log.entries] == [10, 11, 12, 13][: disk.log.end_offset]


def test_start_finds_epochs_and_voters() -> None:
    disk = Disk(voters(A, B), 1)
    disk.write(Ready(entries=(Entry(0, 1, 2, None, (voters(A, B, C),)), *entries(7, base_offset=1, epoch=4))))
    state = disk.state()
    assert (list(state.epochs), state.end_offset) == ([(2, 0), (4, 1)], 2)
    assert list(state.controls) == [(0, voters(A, B, C))]
    assert disk.latest_voters() == voters(A, B, C)


# --- nodes and the network


def world(voter_count: int = 3, **fields: Any) -> QuorumWorld:
    plan = draw_plan(1)._replace(
        voters=voter_count, observers=0, is_dynamic=False, faults={}, drifts=(1.0,) * voter_count, **fields
    )
    made = QuorumWorld(plan)
    for node in made.nodes:
        node.start()
    made.engine.run(3_000_000)
    return made


def leader_of(made: QuorumWorld) -> Node:
    (leader,) = (node for node in made.nodes if node.raft and node.raft.state is State.LEADER)
    return leader


def heard(made: QuorumWorld, node: Node) -> list[Any]:
    """What reaches a node from now on."""
    found: list[Any] = []
    receive = node.receive

    def listen(life: int, event: Any) -> None:
        found.append(event)
        receive(life, event)

    node.receive = listen  # type: ignore[method-assign]
    return found


def run(made: QuorumWorld, seconds: float) -> None:
    made.engine.run(made.engine.now_us + int(seconds * 1e6))


def test_peers_notice_a_process_that_dies_and_elect_another() -> None:
    made = world()
    leader = leader_of(made)
    survivor = next(node for node in made.nodes if node is not leader)
    events = heard(made, survivor)
    leader.stop()
    run(made, 0.5)
    kinds = [type(event) for event in events]
    assert ConnectionLost in kinds
    assert DialRefused in kinds
    assert Failed in kinds
    assert leader_of(made) is not leader


def test_peers_notice_nothing_of_a_machine_that_loses_power() -> None:
    made = world()
    leader = leader_of(made)
    survivor = next(node for node in made.nodes if node is not leader)
    events = heard(made, survivor)
    leader.lose_power()
    run(made, 1.0)
    assert not {ConnectionLost, DialRefused} & {type(event) for event in events}
    run(made, 4.0)
    assert leader_of(made) is not leader  # by the timeout
    leader.regain_power()
    run(made, 1.0)
    assert leader.raft is not None
    assert leader.raft.state is State.FOLLOWER


def test_link_that_is_cut_one_way_lets_nothing_through() -> None:
    made = world()
    one, other, _ = made.nodes
    made.network.blocked.add((one.id, other.id))
    events = heard(made, other)
    run(made, 1.0)
    assert not any(getattr(event, "token", (0,))[0] == one.id for event in events)


def test_restarted_node_is_dialled_anew() -> None:
    made = world()
    leader = leader_of(made)
    follower = next(node for node in made.nodes if node is not leader)
    follower.stop()
    events = heard(made, follower)
    follower.start()
    run(made, 1.0)
    assert DialSucceeded(leader.id) in events


def test_paused_node_sees_everything_late() -> None:
    made = world()
    leader = leader_of(made)
    leader.pause()
    run(made, 6.0)
    assert leader.raft is not None
    assert leader.raft.state is State.LEADER  # it has not noticed
    leader.resume()
    run(made, 0.5)
    assert leader.raft.state is State.FOLLOWER


def test_full_disk_withdraws_and_the_node_goes_on() -> None:
    made = world(1)
    (node,) = made.nodes
    assert node.raft is not None
    before = node.raft.end_offset
    node.is_disk_full = True
    node.propose(1)
    run(made, 0.1)
    assert (node.raft.end_offset, node.raft.state) == (before, State.LEADER)
    node.is_disk_full = False
    node.propose(2)
    run(made, 0.1)
    assert (node.raft.end_offset, node.waiting) == (before + 1, [])


def test_disk_error_ends_the_process_and_another_goes_on() -> None:
    made = world(1)
    (node,) = made.nodes
    node.fails_next_write = True
    node.propose(1)
    run(made, 0.1)
    assert not node.is_up
    node.start()
    run(made, 1.0)
    assert node.raft is not None
    assert (node.raft.state, node.disk.election) == (State.LEADER, Election(2, node.id))


def test_late_read_finds_the_log_as_it_is_by_then() -> None:
    made = world()
    leader = leader_of(made)
    follower = next(node for node in made.nodes if node is not leader)
    made.read_us = lambda node: 50_000  # type: ignore[method-assign]
    events = heard(made, follower)
    leader.propose(1)
    run(made, 0.04)
    assert leader.disk.log.entries[-1].data == 1
    leader.disk.log.truncate(leader.disk.log.end_offset - 1)
    run(made, 0.05)
    answers = [each.response for each in events if isinstance(each, Answered)]
    assert answers
    assert not any(each.entries for each in answers)


def test_brokers_are_neither_voters_nor_bootstrap_servers() -> None:
    plan = draw_plan(1)._replace(
        voters=1, observers=2, brokers=1, is_dynamic=True, has_auto_join=True, drifts=(1.0,) * 3, faults={}
    )
    made = QuorumWorld(plan._replace(seconds=5.0))
    assert made.run().violations == []
    broker = made.nodes[-1]
    assert broker.config.endpoints == ()
    assert [node.id for node in made.controllers] == [1, 2]
    assert {each.host for each in made.bootstrap()} == {"any-1", "any-2"}
    assert broker.raft is not None
    assert broker.raft.state is State.FOLLOWER
    assert not broker.raft.voters.has(broker.key)


def test_other_listener_comes_first() -> None:
    plan = draw_plan(1)._replace(is_dynamic=True, has_other_listener=True)
    first, second = QuorumWorld(plan).endpoints_of(1)
    assert (first.listener, second.listener) == ("OTHER", CONTROLLER)
    assert len(QuorumWorld(plan._replace(is_dynamic=False)).endpoints_of(1)) == 1


def test_plans_have_every_kind_of_quorum() -> None:
    plans = [draw_plan(seed) for seed in range(300)]
    assert {plan.voters for plan in plans} == {1, 2, 3, 4, 5}
    assert {plan.observers for plan in plans} == {0, 1, 2}
    assert {plan.is_dynamic for plan in plans} == {True, False}
    assert {plan.brokers for plan in plans} == {0, 1, 2}
    assert all(plan.brokers <= plan.observers for plan in plans)
    assert {plan.has_other_listener for plan in plans} == {True, False}
    assert {kind for plan in plans for kind in plan.faults} == FAULTS.keys()
    assert any(not plan.faults for plan in plans)
