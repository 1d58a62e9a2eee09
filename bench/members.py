"""Members of groups by hand, in a process of their own: a client library would be most of what is measured.

    python -m bench.members commits '{"bootstrap": ..., "topic": ..., ...}'

Every member has a connection, asks one thing at a time, and checks every answer. Like bench/confluent.py it
prints `begin` and `end {...}`; a workload that is to be looked at while its members are there says `ready`,
and stays until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.protocol.schema import Message
from bench.confluent import begin, end

R = TypeVar("R", bound=Message)
# without tagged fields anywhere: what is before the body is the same length for all
FIND, JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT = 2, 5, 3, 3, 3, 7
RETRIABLE = {14, 15, 16}  # the coordinator is loading, not available, not this one
MEMBER_ID_REQUIRED = 79
SESSION_MS, REBALANCE_MS = 600_000, 120_000
RETRY_S = 0.05


class Refused(Exception):
    """A broker answered with an error."""


class Peer:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, bootstrap: str) -> Peer:
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def call(self, request: Message, version: int, answer: type[R]) -> R:
        """The answer to a request; the caller looks for errors in it."""
        return decode(answer, version, await self.exchange(framed(request, version)), 4)

    async def exchange(self, frame: bytes) -> bytes:
        """The response to a frame, with its correlation id before it."""
        self._writer.write(frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    def close(self) -> None:
        self._writer.close()


def framed(request: Message, version: int) -> bytes:
    body = struct.pack(">hhih", type(request).__key__, version, 1, -1) + encode(request, version)
    return struct.pack(">i", len(body)) + body


async def accepted(ask: Callable[[], Awaitable[int]]) -> None:
    """Ask until a coordinator is there; `ask` gives the code of its answer."""
    while True:
        code = await ask()
        if not code:
            return
        if code not in RETRIABLE:
            raise Refused(f"a request failed with error {code}")
        await asyncio.sleep(RETRY_S)


async def coordinated(bootstrap: str, group: str) -> str:
    """Wait until the group has a coordinator; where that is."""
    peer = await Peer.to(bootstrap.partition(",")[0])
    address = ""

    async def ask() -> int:
        nonlocal address
        request = FindCoordinatorRequest(key=group, key_type=0)
        answer = await peer.call(request, FIND, FindCoordinatorResponse)
        address = f"{answer.host}:{answer.port}"
        return answer.error_code

    await accepted(ask)
    peer.close()
    return address


# ---- offsets


def commit_of(group: str, topic: str, partitions: Sequence[int], offset: int) -> OffsetCommitRequest:
    """Offsets of a group without members."""
    one = [
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        for number in partitions
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=one)],
    )


async def commit(peer: Peer, request: OffsetCommitRequest) -> None:
    async def ask() -> int:
        answer = await peer.call(request, COMMIT, OffsetCommitResponse)
        return next((p.error_code for t in answer.topics for p in t.partitions if p.error_code), 0)

    await accepted(ask)


async def commits(bootstrap: str, topic: str, connections: int, count: int) -> None:
    """So many commits in all, one partition each, by groups of their own: one request a connection at a
    time."""
    peers, frames = [], []
    for number in range(connections):
        group = f"bench-{number}"
        peer = await Peer.to(await coordinated(bootstrap, group))
        peers.append(peer)
        request = commit_of(group, topic, [0], number)
        await commit(peer, request)
        frames.append(framed(request, COMMIT))
    left = count
    # what a good answer looks like: all of them are the same
    expected = await peers[0].exchange(frames[0])

    async def work(peer: Peer, frame: bytes) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            if await peer.exchange(frame) != expected:
                raise Refused("a commit failed")

    begin()
    started = time.perf_counter()
    await asyncio.gather(*(work(peer, frame) for peer, frame in zip(peers, frames, strict=True)))
    end(seconds=time.perf_counter() - started)


async def offsets(bootstrap: str, group: str, topics: Sequence[str], partitions: int) -> None:
    """One offset for every partition of these topics, and then wait."""
    await coordinated(bootstrap, group)
    peer = await Peer.to(bootstrap)
    for topic in topics:
        for first in range(0, partitions, 1000):
            numbers = range(first, min(partitions, first + 1000))
            await commit(peer, commit_of(group, topic, numbers, 1))
    ready()


# ---- members


class Member:
    """A member by the classic protocol; the leader gives everybody a stretch of the partitions."""

    def __init__(self, peer: Peer, group: str, topic: str, partitions: int, *, cooperative: bool) -> None:
        self._peer, self._group, self._topic = peer, group, topic
        self._partitions, self._cooperative = partitions, cooperative
        self.id = ""
        self.generation = -1
        self.owned: tuple[int, int] = (0, 0)
        self._joined = 0

    async def rebalance(self) -> None:
        """Into the next generation, and with the part that it is given there."""
        joined = await self._join()
        everybody = [one.member_id for one in joined.members]
        assignments = self._assign(everybody) if joined.leader == self.id else []
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self.id,
            group_instance_id=None,
            assignments=assignments,
        )
        synced = await self._peer.call(request, SYNC, SyncGroupResponse)
        if synced.error_code:
            raise Refused(f"SyncGroup failed with error {synced.error_code}")
        self.generation = joined.generation_id
        self.owned = struct.unpack_from(">ii", synced.assignment, len(synced.assignment) - 8)

    async def _join(self) -> JoinGroupResponse:
        self._joined += 1  # a subscription that changed: nobody is told to go on as before
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="stretches", metadata=self._subscription())],
        )
        while True:
            joined = await self._peer.call(request, JOIN, JoinGroupResponse)
            if joined.error_code == MEMBER_ID_REQUIRED:
                self.id = request.member_id = joined.member_id
            elif joined.error_code in RETRIABLE:
                await asyncio.sleep(RETRY_S)
            elif joined.error_code:
                raise Refused(f"JoinGroup failed with error {joined.error_code}")
            else:
                return joined

    def _subscription(self) -> bytes:
        """As a consumer tells it: version 1, topics, a note, and what it owns where it may keep that."""
        name = self._topic.encode()
        told = struct.pack(">hih", 1, 1, len(name)) + name + struct.pack(">ii", 4, self._joined)
        if not self._cooperative or not self.owned[1]:
            return told + struct.pack(">i", 0)
        first, count = self.owned
        owned = struct.pack(
            f">ih{len(name)}si{count}i", 1, len(name), name, count, *range(first, first + count)
        )
        return told + owned

    def _assign(self, everybody: Sequence[str]) -> list[SyncGroupRequestAssignment]:
        name, share = self._topic.encode(), self._partitions // len(everybody)
        assignments = []
        for number, member_id in enumerate(sorted(everybody)):
            mine = range(number * share, (number + 1) * share)
            told = struct.pack(f">hih{len(name)}si{share}i", 0, 1, len(name), name, share, *mine)
            # the note at its end is what a member here reads
            told += struct.pack(">iii", 8, mine.start, share)
            assignments.append(SyncGroupRequestAssignment(member_id=member_id, assignment=told))
        return assignments

    def close(self) -> None:
        self._peer.close()

    async def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.id, group_instance_id=None
        )
        answer = await self._peer.call(request, HEARTBEAT, HeartbeatResponse)
        if answer.error_code:
            raise Refused(f"Heartbeat failed with error {answer.error_code}")


async def _members(
    bootstrap: str, group: str, topic: str, count: int, partitions: int, *, cooperative: bool
) -> list[Member]:
    """A group that is stable with so many members; they come together, and whoever is early comes again."""
    await coordinated(bootstrap, group)
    members = [
        Member(await Peer.to(bootstrap), group, topic, partitions, cooperative=cooperative)
        for _ in range(count)
    ]
    while len({member.generation for member in members}) != 1 or members[0].generation < 0:
        await asyncio.gather(*(_settle(member) for member in members))
    return members


async def _settle(member: Member) -> None:
    while True:
        try:
            await member.rebalance()
            await member.heartbeat()
        except Refused:
            continue  # a rebalance has begun meanwhile
        return


async def _leave(bootstrap: str, group: str, members: Sequence[Member]) -> None:
    """All at once: who comes next would wait for a session until the group is without them."""
    peer = await Peer.to(bootstrap)
    request = LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=member.id) for member in members]
    )
    answer = await peer.call(request, LEAVE, LeaveGroupResponse)
    if answer.error_code or any(each.error_code for each in answer.members):
        raise Refused("LeaveGroup failed")


async def rebalances(
    bootstrap: str, group: str, topic: str, members: int, partitions: int, cooperative: bool, count: int
) -> None:
    """How long it takes until all have their part in a new generation: one round where everybody gives up
    everything first (eager), two where partitions change hands in the second (cooperative)."""
    everybody = await _members(bootstrap, group, topic, members, partitions, cooperative=cooperative)
    rounds = 2 if cooperative else 1
    taken = []
    begin()
    for _ in range(count):
        started = time.perf_counter()
        for _ in range(rounds):
            await asyncio.gather(*(member.rebalance() for member in everybody))
        taken.append(time.perf_counter() - started)
        if len({member.generation for member in everybody}) != 1:
            raise Refused("members ended in several generations")
    end(seconds=taken)
    await _leave(bootstrap, group, everybody)


async def join_groups(coordinator: str, groups: Sequence[str], topic: str) -> None:
    """Groups of one member each; their connections are closed, and their sessions last."""
    members = [Member(await Peer.to(coordinator), name, topic, 1, cooperative=False) for name in groups]
    await asyncio.gather(*(_settle(member) for member in members))
    for member in members:
        member.close()


async def crowd(bootstrap: str, group: str, topic: str, members: int, partitions: int) -> None:
    """A stable group of so many, which then waits."""
    everybody = await _members(bootstrap, group, topic, members, partitions, cooperative=True)
    ready()
    await _leave(bootstrap, group, everybody)


def ready() -> None:
    begin()
    end()
    sys.stdin.read()


WORKLOADS: Mapping[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "commits": commits,
    "crowd": crowd,
    "offsets": offsets,
    "rebalances": rebalances,
}

if __name__ == "__main__":
    asyncio.run(WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2])))
