"""Groups whose coordinator moves, in each state of a group: whole nodes, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from barnabas.groups.classic import ClassicGroup
from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from barnabas.protocol.schema import Message
from tests.support.clusters import VirtualCluster, run_cluster
from tests.support.coordination import ONE_PARTITION, Coordination, ask, coordinator_at, name_of
from tests.support.raw_groups import beating, joining, syncing
from tests.support.replication import create_topic

SESSION_MS = 10_000
SETTINGS = {**ONE_PARTITION, "replica.lag.time.max.ms": "10000"}


def in_cluster(work: Callable[[VirtualCluster, Coordination], Awaitable[None]]) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "in", [[1, 2, 3]])
        at = Coordination(cluster)
        await at.begin()
        await at.move(CONSUMER_OFFSETS, 1)
        await work(cluster, at)

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))


async def lose_coordinator(at: Coordination, how: str) -> None:
    """The coordinator moves from node 1 to node 2, or its node is killed."""
    if how == "moved":
        await at.move(CONSUMER_OFFSETS, 2)
    else:
        await at.cluster.kill(1)
        await at.cluster.until(lambda: at.leader_id(CONSUMER_OFFSETS) in (2, 3), "another node coordinates")


class Member:
    """A member of group "g", by hand."""

    def __init__(self, at: Coordination, instance: str | None = None) -> None:
        self._at = at
        self._instance = instance
        self.id = ""
        self.generation = -1
        self.joined: JoinGroupResponse | None = None

    async def _ask(self, request: Message, response: type[Message]) -> Message | None:
        node = self._at.leader_of(CONSUMER_OFFSETS)
        return None if node is None else await ask(node, request, response)

    async def join_once(self) -> str:
        request = joining("g", self.id, instance=self._instance, session_ms=SESSION_MS)
        answer = await self._ask(request, JoinGroupResponse)
        if answer is None:
            return "NO_LEADER"
        assert isinstance(answer, JoinGroupResponse)
        error = name_of(answer.error_code)
        if error in ("NONE", "MEMBER_ID_REQUIRED"):
            self.id = answer.member_id
        if error == "NONE":
            self.generation, self.joined = answer.generation_id, answer
        return error

    async def join(self) -> None:
        async def attempt() -> tuple[str, None]:
            error = await self.join_once()
            if error == "UNKNOWN_MEMBER_ID":
                self.id = ""  # as clients do: it gets another
            return ("NOT_COORDINATOR" if error.endswith(("ID_REQUIRED", "MEMBER_ID")) else error), None

        error, _ = await self._at.again(attempt)
        assert error == "NONE", error

    async def sync_once(self, parts: dict[str, bytes] | None = None) -> tuple[str, bytes]:
        request = syncing("g", self.joined, parts, instance=self._instance)
        answer = await self._ask(request, SyncGroupResponse)
        if answer is None:
            return "NO_LEADER", b""
        assert isinstance(answer, SyncGroupResponse)
        return name_of(answer.error_code), bytes(answer.assignment)

    async def sync(self, parts: dict[str, bytes] | None = None) -> bytes:
        error, assignment = await self._at.again(lambda: self.sync_once(parts))
        assert error == "NONE", error
        return bytes(assignment)

    async def beat(self) -> str:
        async def attempt() -> tuple[str, None]:
            answer = await self._ask(
                beating("g", self.generation, self.id, self._instance), HeartbeatResponse
            )
            assert answer is None or isinstance(answer, HeartbeatResponse)
            return ("NO_LEADER" if answer is None else name_of(answer.error_code)), None

        return str((await self._at.again(attempt))[0])


async def stable(at: Coordination, count: int = 2, *, static: bool = False) -> list[Member]:
    """A group of so many members, each with its part."""
    members = [Member(at, f"instance-{number}" if static else None) for number in range(count)]
    await asyncio.gather(*(one.join() for one in members))
    generation = max(one.generation for one in members)
    while any(one.generation != generation for one in members):
        await asyncio.gather(*(one.join() for one in members))
        generation = max(one.generation for one in members)
    leader = next(one for one in members if one.joined is not None and one.joined.members)
    parts = {one.id: f"part of {one.id}".encode() for one in members}
    found = await asyncio.gather(*(one.sync(parts if one is leader else None) for one in members))
    assert found == list(parts.values())
    return members


def group_at_leader(at: Coordination) -> ClassicGroup | None:
    """The group, as its coordinator knows it."""
    node = at.leader_of(CONSUMER_OFFSETS)
    coordinator = None if node is None else coordinator_at(node, CONSUMER_OFFSETS)
    hosts = [] if coordinator is None else coordinator.loaded()
    group = hosts[0].shard.groups.get("g") if hosts else None
    return group if isinstance(group, ClassicGroup) else None


def state_at_leader(at: Coordination) -> str:
    group = group_at_leader(at)
    return "" if group is None else group.state


@pytest.mark.parametrize("how", ["moved", "killed"])
def test_stable_group_goes_on_without_a_rebalance(how: str) -> None:
    async def work(cluster: VirtualCluster, at: Coordination) -> None:
        members = await stable(at)
        await lose_coordinator(at, how)
        assert [await one.beat() for one in members] == ["NONE", "NONE"]
        for one in members:
            assert await one.sync() == f"part of {one.id}".encode()
        assert state_at_leader(at) == "Stable"

    in_cluster(work)


@pytest.mark.parametrize("how", ["moved", "killed"])
def test_sessions_end_at_a_new_coordinator_that_nobody_asks(how: str) -> None:
    async def work(cluster: VirtualCluster, at: Coordination) -> None:
        await stable(at)
        await lose_coordinator(at, how)
        began = asyncio.get_running_loop().time()
        await cluster.until(lambda: state_at_leader(at) == "Empty", "both members are gone")
        assert asyncio.get_running_loop().time() - began < 2 * SESSION_MS / 1000 + 2

    in_cluster(work)


@pytest.mark.parametrize("how", ["moved", "killed"])
def test_member_that_waits_in_a_join_is_sent_to_the_new_coordinator(how: str) -> None:
    async def work(cluster: VirtualCluster, at: Coordination) -> None:
        members = await stable(at)
        late = Member(at)
        await late.join_once()
        waiting = asyncio.ensure_future(late.join_once())
        await cluster.until(lambda: state_at_leader(at) == "PreparingRebalance", "a rebalance")
        began = asyncio.get_running_loop().time()
        await lose_coordinator(at, how)
        assert await waiting == "NOT_COORDINATOR"
        assert asyncio.get_running_loop().time() - began < 5
        # the group is in the generation before, and its members are asked to join once more
        joining_again = asyncio.ensure_future(late.join())
        await cluster.until(lambda: state_at_leader(at) == "PreparingRebalance", "a rebalance")
        assert await members[0].beat() == "REBALANCE_IN_PROGRESS"
        await asyncio.gather(joining_again, *(one.join() for one in members))
        assert len({one.generation for one in (late, *members)}) == 1

    in_cluster(work)


@pytest.mark.parametrize("how", ["moved", "killed"])
def test_member_that_waits_for_its_part_is_sent_to_the_new_coordinator(how: str) -> None:
    async def work(cluster: VirtualCluster, at: Coordination) -> None:
        members = await stable(at)
        await asyncio.gather(*(one.join() for one in members))
        assert state_at_leader(at) == "CompletingRebalance"
        follower = next(one for one in members if one.joined is not None and not one.joined.members)
        waiting = asyncio.ensure_future(follower.sync_once())
        await asyncio.sleep(0.1)
        await lose_coordinator(at, how)
        assert (await waiting)[0] == "NOT_COORDINATOR"
        # that generation was never written down: all join again, and none is taken for a member twice
        await asyncio.gather(*(one.join() for one in members))
        group = group_at_leader(at)
        assert group is not None
        assert sorted(group.roster.by_id) == sorted(one.id for one in members)

    in_cluster(work)


@pytest.mark.parametrize("how", ["moved", "killed"])
def test_static_members_keep_their_parts(how: str) -> None:
    async def work(cluster: VirtualCluster, at: Coordination) -> None:
        members = await stable(at, static=True)
        await lose_coordinator(at, how)
        again = Member(at, "instance-0")  # its process was started anew meanwhile
        await again.join()
        assert again.generation == members[0].generation
        assert again.id != members[0].id
        assert await again.sync() == f"part of {members[0].id}".encode()
        assert await members[0].beat() == "FENCED_INSTANCE_ID"
        assert await members[1].beat() == "NONE"

    in_cluster(work)


@pytest.mark.parametrize("how", ["moved", "killed"])
def test_empty_group_keeps_its_commits_and_its_generation(how: str) -> None:
    async def work(cluster: VirtualCluster, at: Coordination) -> None:
        members = await stable(at)
        await cluster.until(lambda: state_at_leader(at) == "Empty", "both members are gone")
        assert await at.commit("g", 42) == "NONE"
        await lose_coordinator(at, how)
        assert await at.committed("g") == 42
        one = Member(at)
        await one.join()
        assert one.generation > members[0].generation

    in_cluster(work)
