"""Committed offsets of groups: listed, set for groups without members, deleted.

Topics are named, so versions with topic ids are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from barnabas.client.admin.coordinators import Coordinators, answers_of
from barnabas.client.admin.engine import error_of, raise_first
from barnabas.client.coordinator_finder import CoordinatorType
from barnabas.client.errors import BrokerError
from barnabas.client.metadata import TopicPartition
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
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

P = TypeVar("P", bound=tuple[str, int])
Committed = dict[TopicPartition, "CommittedOffset"]

_BY_NAME = 9  # the last version of OffsetCommit and OffsetFetch in which topics have names
_EVERY_TOPIC_FROM = 2  # of OffsetFetch
_STABLE_FROM = 7
_NO_OFFSET = -1
_NO_GENERATION = -1


class CommittedOffset(NamedTuple):
    """A group's committed offset in a partition: the offset of the next record to read."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class GroupOffsets(Coordinators):
    """The part of an admin for committed offsets."""

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """A group's committed offsets for these partitions, or all; partitions without one are left out.
        Without `require_stable`, offsets committed in an open transaction do not count, and are not waited
        for."""
        wanted = None if partitions is None else _by_topic(partitions)
        request = _fetch(group_id, wanted, require_stable=require_stable)
        needed = _STABLE_FROM if require_stable else _EVERY_TOPIC_FROM if wanted is None else 0

        async def ask(node_id: int, _: list[str]) -> dict[str, Committed | BrokerError]:
            await self._check_version(node_id, OffsetFetchRequest, needed)
            response = await self.cluster.ask(request, OffsetFetchResponse, node_id=node_id, at_most=_BY_NAME)
            try:
                return {group_id: _committed(group_id, response)}
            except BrokerError as error:
                return {group_id: error}

        return answers_of(await self._ask_coordinators(CoordinatorType.GROUP, [group_id], ask))[group_id]

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[P, int | CommittedOffset]) -> None:
        """Set a group's committed offsets; it must have no members, and is created if it does not exist."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), given in offsets.items():
            committed = CommittedOffset(given) if isinstance(given, int) else given
            topics.setdefault(topic, []).append(_commit(partition, committed))
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=_NO_GENERATION,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=name, partitions=all_) for name, all_ in topics.items()],
        )

        async def ask(node_id: int, _: list[str]) -> dict[str, bool | BrokerError]:
            response = await self.cluster.ask(
                request, OffsetCommitResponse, node_id=node_id, at_most=_BY_NAME
            )
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in response.topics
                for each in topic.partitions
            }
            return _first(group_id, codes, "cannot set the offset of")

        answers_of(await self._ask_coordinators(CoordinatorType.GROUP, [group_id], ask))

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Delete a group's committed offsets for partitions of topics that it does not read any more."""
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers]
            )
            for name, numbers in _by_topic(partitions).items()
        ]
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)

        async def ask(node_id: int, _: list[str]) -> Mapping[str, bool | BrokerError]:
            response = await self.cluster.ask(request, OffsetDeleteResponse, node_id=node_id)
            error = error_of(response.error_code, f"cannot delete offsets of group {group_id!r}")
            if error is not None:
                return {group_id: error}
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in response.topics
                for each in topic.partitions
            }
            return _first(group_id, codes, "cannot delete the offset of")

        answers_of(await self._ask_coordinators(CoordinatorType.GROUP, [group_id], ask))


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _fetch(group_id: str, wanted: dict[str, list[int]] | None, *, require_stable: bool) -> OffsetFetchRequest:
    """The request in both forms: for a single group, and for several as in newer versions."""
    single = several = None
    if wanted is not None:
        single = [OffsetFetchRequestTopic(name=name, partition_indexes=all_) for name, all_ in wanted.items()]
        several = [
            OffsetFetchRequestTopics(name=name, partition_indexes=all_) for name, all_ in wanted.items()
        ]
    return OffsetFetchRequest(
        group_id=group_id,
        topics=single,
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=several)],
        require_stable=require_stable,
    )


def _committed(group_id: str, response: OffsetFetchResponse) -> dict[TopicPartition, CommittedOffset]:
    what = f"cannot tell the offsets of group {group_id!r}"
    answers: dict[TopicPartition, OffsetFetchResponsePartition | OffsetFetchResponsePartitions] = {}
    raise_first([error_of(response.error_code, what)])
    for topic in response.topics:
        answers.update({TopicPartition(topic.name, each.partition_index): each for each in topic.partitions})
    for group in response.groups:
        raise_first([error_of(group.error_code, what)])
        for one in group.topics:
            answers.update({TopicPartition(one.name, each.partition_index): each for each in one.partitions})
    raise_first(error_of(each.error_code, f"{what}, {at}") for at, each in answers.items())
    return {
        at: CommittedOffset(
            each.committed_offset,
            None if each.committed_leader_epoch < 0 else each.committed_leader_epoch,
            each.metadata or "",
        )
        for at, each in sorted(answers.items())
        if each.committed_offset != _NO_OFFSET
    }


def _commit(partition: int, committed: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


def _first(group_id: str, codes: Mapping[TopicPartition, int], what: str) -> dict[str, bool | BrokerError]:
    """True, or the first error with the others."""
    errors = [error_of(code, f"{what} {at} in group {group_id!r}") for at, code in codes.items()]
    found = [error for error in errors if error is not None]
    if not found:
        return {group_id: True}
    found[0].others = tuple(found[1:])
    return {group_id: found[0]}
