"""Clients that commit offsets in the name of groups without members, as a client does that assigns partitions
to itself: one commit after another, each waited for as long as the client of an application would.

So there is nearly always a commit under way when a coordinator moves, and what becomes of it is seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.sim.chance import happens
from barnabas.sim.group_events import CommitDone, CommitRefused, CommitSent, Place
from barnabas.sim.workload.client import Client
from barnabas.sim.workload.coordinators import BY_NAME, GROUP, TROUBLE, Asking, name_of

NO_GENERATION = -1
ANSWER_S = 25.0  # how long one commit may take
PAUSE_S = 0.15
LOOKS = 0.2  # how often what is committed is looked at after a commit


async def run_committer(client: Client, group: str, places: Sequence[Place]) -> None:
    """Commit offsets of one place after another, until asked to stop."""
    async with Asking(client) as asking:
        committer = Committer(client, asking, group, client.name)
        number = 0
        while not client.stopping.is_set():
            committer.place = places[number % len(places)]
            number += 1
            await client.go_on("a lone commit", committer.commit)
            if happens(client.random, LOOKS):
                await client.go_on("looking at lone commits", committer.look)
            await client.pause(PAUSE_S)


class Committer:
    """Commits offsets of `place`; `name` is what its marks begin with."""

    def __init__(self, client: Client, asking: Asking, group: str, name: str) -> None:
        self._client, self._asking, self._group = client, asking, group
        self._name = name
        self._commits = 0
        self.place: Place = ("", 0)

    async def commit(self) -> None:
        client, (topic, partition) = self._client, self.place
        self._commits += 1
        mark, offset = f"{self._name}/{self._commits}:{topic}-{partition}", self._commits
        client.history.add(CommitSent(client.now, mark, self._group, topic, partition, offset))
        committed = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=mark
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )
        answer = await self._asking.ask(
            GROUP, self._group, request, OffsetCommitResponse, at_most=BY_NAME, timeout_s=ANSWER_S
        )
        error = name_of(answer.topics[0].partitions[0].error_code, "OffsetCommit")
        if not error:
            client.history.add(CommitDone(client.now, mark, self._asking.answered_by))
        elif error not in TROUBLE:
            client.history.add(CommitRefused(client.now, mark, error))

    async def look(self) -> None:
        await self._asking.committed(self._group, [self.place], is_stable=True)
