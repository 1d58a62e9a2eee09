"""What happens between the steps of kafka_tool_steps.py that no tool does: members of groups that stay,
transactions left open, data of a given time. All by raw requests, the same to both systems.

An act tells what it was answered, so that this is compared, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.support.raw_client import RawClient, produce_request, wait_until
from tests.support.raw_offsets import At, commit, find, subscription
from tests.support.raw_transactions import OLD_PRODUCE, Transactor, name_of

_JOIN, _SYNC, _HEARTBEAT, _LEAVE, _COMMIT, _PRODUCE = 5, 3, 3, 3, 8, 10
_BROKER = 4  # a kind of resource
_SESSION_MS = 300_000  # nobody sends heartbeats
Owned = Mapping[str, Sequence[int]]  # partitions by topic


class Member:
    """One of a group: a connection of its own, and what it was told."""

    def __init__(
        self, port: int, group: str, protocol_type: str, *, instance: str | None = None, metadata: bytes
    ) -> None:
        self.client = RawClient(port)
        self.group = group
        self.instance = instance
        self.id = ""
        self.generation = -1
        self._protocol_type = protocol_type
        self._metadata = metadata

    def send_join(self) -> None:
        """Ask to be part of the next generation; the first time, for an id as well."""
        self.client.send(self._joining(), _JOIN)
        if not self.id and self.instance is None:
            _, refused = self.client.receive_response(JoinGroupResponse, _JOIN, flexible=False)
            assert name_of(refused.error_code) == "MEMBER_ID_REQUIRED"
            self.id = refused.member_id
            self.client.send(self._joining(), _JOIN)

    def _joining(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self._protocol_type,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self._metadata)],
        )

    def is_asked_to_rejoin(self) -> bool:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
        )
        answer = self.client.ask(request, _HEARTBEAT, HeartbeatResponse)
        return name_of(answer.error_code) == "REBALANCE_IN_PROGRESS"

    def receive_join(self) -> str:
        _, joined = self.client.receive_response(JoinGroupResponse, _JOIN, flexible=False)
        self.id, self.generation = joined.member_id, joined.generation_id
        return name_of(joined.error_code)

    def sync(self, parts: Mapping[str, bytes]) -> str:
        """`parts`: what each member gets, by its id; of the leader alone."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=part) for name, part in parts.items()
            ],
        )
        return name_of(self.client.ask(request, _SYNC, SyncGroupResponse).error_code)

    def leave(self) -> str:
        request = LeaveGroupRequest(
            group_id=self.group,
            members=[MemberIdentity(member_id=self.id, group_instance_id=self.instance)],
        )
        return name_of(self.client.ask(request, _LEAVE, LeaveGroupResponse).error_code)


def _assignment(owned: Owned) -> bytes:
    """What a leader of consumers hands out."""
    topics = b"".join(
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(some)}i", len(some), *some)
        for topic, some in owned.items()
    )
    return struct.pack(">hi", 1, len(owned)) + topics + struct.pack(">i", -1)


class Stage:
    """One of the two systems, and who is connected to it."""

    def __init__(self, port: int, controller_port: int) -> None:
        self.port = port
        self.controller_port = controller_port
        self.client = RawClient(port)
        self.members: dict[str, list[Member]] = {}
        self.producers: dict[str, Transactor] = {}

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        for member in [one for group in self.members.values() for one in group]:
            member.client.close()

    def producer(self, name: str) -> Transactor:
        if name not in self.producers:
            self.producers[name] = Transactor(self.client, name, timeout_ms=600_000)
        return self.producers[name]


class Act(NamedTuple):
    """Something that is done to a stage; `does` tells what came of it."""

    name: str
    does: Callable[[Stage], str]


def _once_known(topic: str, write: Callable[[], str]) -> str:
    """A broker may hear of a new topic after those who made it."""
    told: list[str] = []

    def is_known() -> bool:
        told[:] = [write()]
        return told[0] not in ("UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER")

    wait_until(is_known, f"a leader of {topic}")
    return told[0]


def _produce(stage: Stage, request: ProduceRequest) -> str:
    answer = stage.client.ask(request, _PRODUCE, ProduceResponse)
    return name_of(answer.responses[0].partition_responses[0].error_code)


def letters(topic: str, *counts: int) -> Act:
    """As many records in each partition, of 2023-11-14T22:13:20.000Z and every millisecond after it."""

    def does(stage: Stage) -> str:
        told = []
        for partition, count in enumerate(counts):
            values = [f"letter {number}".encode() for number in range(count)]
            request = produce_request(topic, values, partition=partition)
            told.append(_once_known(topic, lambda request=request: _produce(stage, request)))  # type: ignore[misc]
        return " ".join(told)

    return Act(f"{sum(counts)} letters to {topic}", does)


def gather(
    group: str,
    *owned: Owned,
    instances: Sequence[str | None] = (),
    protocol_type: str = "consumer",
) -> Act:
    """Members that stay until they are told to leave; each owns its part."""

    def does(stage: Stage) -> str:
        find(stage.client, group)
        told = []
        members: list[Member] = []
        for number, part in enumerate(owned):
            instance = instances[number] if instances else None
            metadata = subscription(*part) if protocol_type == "consumer" else b"anything"
            member = Member(stage.port, group, protocol_type, instance=instance, metadata=metadata)
            members.append(member)
            member.send_join()
            for one in members[:-1]:
                wait_until(one.is_asked_to_rejoin, f"a rebalance of {group}")
                one.send_join()
            told += [one.receive_join() for one in members]
            parts = {
                one.id: _assignment(mine) if protocol_type == "consumer" else b"its part"
                for one, mine in zip(members, owned, strict=False)
            }
            told += [one.sync(parts if one is members[0] else {}) for one in members]
        stage.members[group] = members
        return " ".join(told)

    return Act(f"{len(owned)} members gather in {group}", does)


def disperse(group: str) -> Act:
    """All of them leave."""

    def does(stage: Stage) -> str:
        members = stage.members.pop(group)
        told = [member.leave() for member in members]
        for member in members:
            member.client.close()
        return " ".join(told)

    return Act(f"all members leave {group}", does)


def commits(group: str, topic: str, *places: At) -> Act:
    """By the group's first member, or, where it has none, by nobody in particular."""

    def does(stage: Stage) -> str:
        find(stage.client, group)
        of = {}
        if group in stage.members:
            member = stage.members[group][0]
            of = {"generation": member.generation, "member": member.id, "instance": member.instance}
        answer = commit(stage.client, _COMMIT, group, [(topic, places)], **of)  # type: ignore[arg-type]
        return " ".join(name_of(one.error_code) for one in answer.topics[0].partitions)

    return Act(f"{group} commits {topic}: {[(at.partition, at.offset) for at in places]}", does)


def transaction(
    producer: str, topic: str, *values: str, commit: bool | None, group: str | None = None
) -> Act:
    """Begin one, and commit it, abort it, or (None) leave it open."""

    def does(stage: Stage) -> str:
        one = stage.producer(producer)
        data = [value.encode() for value in values]
        told = [_once_known(topic, lambda: one.produce(topic, *data))]
        if group is not None:
            find(stage.client, group)
            told.append(one.commit_offset(group, topic, len(values)))
        if commit is not None:
            told.append(one.end(commit=commit))
            wait_until(lambda: _state(stage, producer).startswith("Complete"), "the markers")
        return " ".join(told)

    end = {True: "commits", False: "aborts", None: "leaves open"}[commit]
    return Act(f"{producer} {end} {' '.join(values)} in {topic}", does)


def _state(stage: Stage, producer: str) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[producer])
    (found,) = stage.client.ask(request, 0, DescribeTransactionsResponse).transaction_states
    return found.transaction_state


def hanging(topic: str, *values: str) -> Act:
    """An open transaction in a partition that no coordinator knows of."""

    def does(stage: Stage) -> str:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        given = stage.client.ask(request, 5, InitProducerIdResponse)
        one = stage.producer("forgetful")
        one.producer_id, one.epoch = given.producer_id, given.producer_epoch
        data = [value.encode() for value in values]
        wait_until(lambda: one.produce(topic, *data, version=OLD_PRODUCE) == "NONE", "an unverified write")
        return name_of(given.error_code)

    return Act(f"a transaction of nobody in {topic}", does)


def settled(name: str, value: str) -> Act:
    """Until a setting of the broker is known to the controller, which may take it in after it was altered."""
    resource = DescribeConfigsResource(resource_type=_BROKER, resource_name="1", configuration_keys=[name])
    request = DescribeConfigsRequest(resources=[resource])

    def does(stage: Stage) -> str:
        with RawClient(stage.controller_port) as client:

            def is_set() -> bool:
                (found,) = client.ask(request, 4, DescribeConfigsResponse).results
                return [config.value for config in found.configs] == [value]

            wait_until(is_set, f"{name}={value}")
        return value

    return Act(f"{name} is {value}", does)
