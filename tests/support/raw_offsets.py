"""Offsets of groups by single requests, each in the version a test chooses; and a member that does nothing by
itself."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.protocol.schema import NO_UUID
from tests.support.raw_client import RawClient, wait_until
from tests.support.raw_transactions import Transactor

FIRST_FETCH_OF_GROUPS = 8
FIRST_JOIN_WITH_IDS = 4  # before that, nobody has to come twice


class At(NamedTuple):
    """How far a partition is read."""

    partition: int
    offset: int
    metadata: str | None = ""
    leader_epoch: int = -1


Topic = str | bytes  # its name or its id
Wanted = Iterable[tuple[Topic, Sequence[int]]]


def _named(topic: Topic) -> dict[str, str | bytes]:
    return {"name": topic, "topic_id": NO_UUID} if isinstance(topic, str) else {"name": "", "topic_id": topic}


def create(client: RawClient, name: str, partitions: int) -> bytes:
    """Make a topic; its id."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    made = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, CreateTopicsResponse)
    assert made.topics[0].error_code == 0
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=NO_UUID)])
    asked.allow_auto_topic_creation = False

    def is_led() -> bool:
        found = client.ask(asked, 12, MetadataResponse).topics[0]
        return len(found.partitions) == partitions and all(one.error_code == 0 for one in found.partitions)

    wait_until(is_led, f"leaders of {name}")
    return made.topics[0].topic_id


def find(client: RawClient, group: str) -> None:
    """Wait until somebody coordinates a group."""
    asked = FindCoordinatorRequest(key=group, key_type=0)

    def is_found() -> bool:
        if client.ask(asked, 2, FindCoordinatorResponse).error_code:
            return False
        return fetch(client, 2, group, None).error_code == 0

    wait_until(is_found, f"the coordinator of {group}")


def commit(
    client: RawClient,
    version: int,
    group: str,
    topics: Iterable[tuple[Topic, Sequence[At]]],
    *,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    retention_ms: int = -1,
) -> OffsetCommitResponse:
    asked = [
        OffsetCommitRequestTopic(
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=at.partition,
                    committed_offset=at.offset,
                    committed_leader_epoch=at.leader_epoch,
                    committed_metadata=at.metadata,
                )
                for at in places
            ],
            **_named(topic),  # type: ignore[arg-type]
        )
        for topic, places in topics
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=asked,
    )
    return client.ask(request, version, OffsetCommitResponse)


def commit_in(
    transactor: Transactor,
    version: int,
    group: str,
    topics: Iterable[tuple[str, Sequence[At]]],
    *,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    epoch: int | None = None,
    producer_id: int | None = None,
) -> TxnOffsetCommitResponse:
    """A commit within a producer's transaction."""
    asked = [
        TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=at.partition,
                    committed_offset=at.offset,
                    committed_leader_epoch=at.leader_epoch,
                    committed_metadata=at.metadata,
                )
                for at in places
            ],
        )
        for topic, places in topics
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=transactor.name,
        group_id=group,
        producer_id=transactor.producer_id if producer_id is None else producer_id,
        producer_epoch=transactor.epoch if epoch is None else epoch,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        topics=asked,
    )
    return transactor.client.ask(request, version, TxnOffsetCommitResponse)


def fetch(
    client: RawClient, version: int, group: str, topics: Wanted | None, *, stable: bool = False
) -> OffsetFetchResponse:
    """Ask for one group's offsets."""
    if version >= FIRST_FETCH_OF_GROUPS:
        return fetch_groups(client, version, [(group, topics)], stable=stable)
    asked = None
    if topics is not None:
        asked = [
            OffsetFetchRequestTopic(name=str(name), partition_indexes=list(some)) for name, some in topics
        ]
    request = OffsetFetchRequest(group_id=group, topics=asked, require_stable=stable)
    return client.ask(request, version, OffsetFetchResponse)


def fetch_groups(
    client: RawClient,
    version: int,
    groups: Iterable[tuple[str, Wanted | None]],
    *,
    stable: bool = False,
    member: str | None = None,
    epoch: int = -1,
) -> OffsetFetchResponse:
    asked = []
    for group, topics in groups:
        wanted = None
        if topics is not None:
            wanted = [
                OffsetFetchRequestTopics(
                    partition_indexes=list(some),
                    **_named(topic),  # type: ignore[arg-type]
                )
                for topic, some in topics
            ]
        asked.append(
            OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=wanted)
        )
    return client.ask(OffsetFetchRequest(groups=asked, require_stable=stable), version, OffsetFetchResponse)


def delete(
    client: RawClient, group: str, topics: Iterable[tuple[str, Sequence[int]]]
) -> OffsetDeleteResponse:
    asked = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=one) for one in some]
        )
        for name, some in topics
    ]
    return client.ask(OffsetDeleteRequest(group_id=group, topics=asked), 0, OffsetDeleteResponse)


class Joined(NamedTuple):
    """A member, as its group knows it."""

    id: str
    generation: int


def subscription(*topics: str) -> bytes:
    """What a consumer says it reads."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


def join(
    client: RawClient,
    group: str,
    *topics: str,
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
    sync: bool = True,
) -> Joined:
    """Be the only member of a group, and its leader."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms,
        member_id="",
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(*topics))],
    )
    joined = client.ask(request, FIRST_JOIN_WITH_IDS - 1, JoinGroupResponse)
    assert joined.error_code == 0
    member = Joined(joined.member_id, joined.generation_id)
    if sync:
        part = SyncGroupRequestAssignment(member_id=member.id, assignment=b"")
        asked = SyncGroupRequest(
            group_id=group, generation_id=member.generation, member_id=member.id, assignments=[part]
        )
        assert client.ask(asked, 2, SyncGroupResponse).error_code == 0
    return member
