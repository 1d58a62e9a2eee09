"""A member of a consumer group in a process of its own, as small as it can be: read, process, commit.

    python -m barnabas.cli.stories.member 127.0.0.1:9092,127.0.0.1:9093 readers orders

It speaks the classic protocol; the leader of the group gives out the partitions in ranges. Each batch of
records is processed (told on standard output, which is all that it does), and committed afterwards, so what
a dead member had processed and not committed is processed again by another. It leaves the group when its
standard input ends, or a line comes; what happens is an object a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.client.admin import Admin
from barnabas.client.cluster import ClientConfig
from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Partitions,
    Subscription,
    decode_part,
    encode_part,
    partitions_of,
)
from barnabas.client.coordinator import Coordinator
from barnabas.client.coordinator_finder import CoordinatorType
from barnabas.client.errors import BrokerError
from barnabas.client.metadata import TopicPartition
from barnabas.core.clock import SystemClock
from barnabas.core.event_loop import new_event_loop
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.workers import ThreadWorkers
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
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

SESSION_MS, REBALANCE_MS = 3000, 10_000
BATCH = 20
_PROCESS_S, _POLL_MS, _TIMEOUT_S = 0.05, 200, 60.0
# the versions before a member had to come twice for its id
_JOIN, _SYNC, _HEARTBEAT, _LEAVE, _COMMIT = 3, 2, 2, 1, 6
_REJOIN = frozenset(("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"))


class Member:
    """One member, from `run` until it is told to leave."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        clock, workers = SystemClock(), ThreadWorkers()
        self._seams = OsNetwork(workers), clock, SystemRandom()
        client = ClientConfig(client_id="barnabas-story", request_timeout_ms=20_000)
        self._consumer = Consumer(
            *self._seams,
            bootstrap,
            ConsumerConfig(reset=Reset.EARLIEST, client=client, max_poll_records=BATCH),
        )
        self._admin = Admin(*self._seams, bootstrap, client)
        self._coordinator = Coordinator(self._consumer.cluster, CoordinatorType.GROUP, group)
        self._group, self._topic = group, topic
        self._member_id, self._generation = "", -1
        self._told = asyncio.Event()

    async def run(self) -> None:
        """Read until it is told to leave, and leave."""
        asyncio.get_running_loop().add_reader(0, self._told.set)
        while not self._told.is_set():
            try:
                await self._join()
                await self._read()
            except BrokerError as error:
                if error.error.name not in _REJOIN:
                    raise
                if error.error.name == "UNKNOWN_MEMBER_ID":
                    self._member_id = ""
        leave = LeaveGroupRequest(group_id=self._group, members=[], member_id=self._member_id)
        await self._coordinator.ask(
            leave,
            LeaveGroupResponse,
            lambda answer: [("leaving", answer.error_code)],
            _TIMEOUT_S,
            at_most=_LEAVE,
        )
        _tell(event="left")

    async def _join(self) -> None:
        subscription = encode_part(Subscription(topics=[self._topic], user_data=None, owned_partitions=[]), 0)
        join = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        joined = await self._coordinator.ask(
            join,
            JoinGroupResponse,
            lambda answer: [("joining", answer.error_code)],
            _TIMEOUT_S,
            at_most=_JOIN,
        )
        self._member_id, self._generation = joined.member_id, joined.generation_id
        parts = []
        if joined.leader == joined.member_id:
            parts = await self._give_out([each.member_id for each in joined.members])
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            assignments=parts,
        )
        synced = await self._coordinator.ask(
            sync,
            SyncGroupResponse,
            lambda answer: [("syncing", answer.error_code)],
            _TIMEOUT_S,
            at_most=_SYNC,
        )
        assignment = decode_part(Assignment, bytes(synced.assignment))
        await self._begin([] if assignment is None else partitions_of(assignment))

    async def _give_out(self, members: Sequence[str]) -> list[SyncGroupRequestAssignment]:
        """The leader's task: every partition to one member, in ranges."""
        topic = (await self._admin.describe_topics([self._topic]))[self._topic]
        count, ids = len(topic.partitions), sorted(members)
        bounds = [number * count // len(ids) for number in range(len(ids) + 1)]
        return [
            SyncGroupRequestAssignment(
                member_id=member,
                assignment=encode_part(
                    Assignment(
                        assigned_partitions=[
                            Partitions(topic=self._topic, partitions=list(range(first, last)))
                        ],
                        user_data=None,
                    ),
                    0,
                ),
            )
            for member, first, last in zip(ids, bounds, bounds[1:], strict=False)
        ]

    async def _begin(self, partitions: Sequence[TopicPartition]) -> None:
        """Read on where the group has committed."""
        committed = await self._admin.list_group_offsets(self._group)
        self._consumer.assign([])
        self._consumer.assign(partitions)
        for at in partitions:
            self._consumer.seek(at, committed[at].offset if at in committed else 0)
        numbers = [at.partition for at in partitions]
        _tell(event="assigned", generation=self._generation, partitions=numbers)

    async def _read(self) -> None:
        while not self._told.is_set():
            if self._consumer.assignment:
                records = await self._consumer.poll(_POLL_MS)
            else:
                await asyncio.sleep(_POLL_MS / 1000)
                records = []
            if records:
                offsets = {record.partition: record.offset + 1 for record in records}
                values = [(record.value or b"").decode() for record in records]
                _tell(event="read", values=values)
                await asyncio.sleep(_PROCESS_S)  # as long as processing takes
                await self._commit(offsets)
            beat = HeartbeatRequest(
                group_id=self._group, generation_id=self._generation, member_id=self._member_id
            )
            await self._coordinator.ask(
                beat,
                HeartbeatResponse,
                lambda answer: [("heartbeat", answer.error_code)],
                _TIMEOUT_S,
                at_most=_HEARTBEAT,
            )

    async def _commit(self, offsets: Mapping[int, int]) -> None:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            for number, offset in offsets.items()
        ]
        commit = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=partitions)],
        )
        try:
            await self._coordinator.ask(commit, OffsetCommitResponse, _codes, _TIMEOUT_S, at_most=_COMMIT)
        except BrokerError as error:
            _tell(event="refused", error=error.error.name, generation=self._generation)
            raise
        _tell(event="committed", offsets=offsets, generation=self._generation)


def _codes(answer: OffsetCommitResponse) -> list[tuple[str, int]]:
    return [("committing", each.error_code) for topic in answer.topics for each in topic.partitions]


def _tell(**told: Any) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


async def _run(bootstrap: str, group: str, topic: str) -> None:
    await Member(bootstrap, group, topic).run()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(*sys.argv[1:4]))
