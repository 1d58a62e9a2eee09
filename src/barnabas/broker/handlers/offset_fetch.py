"""OffsetFetch: the committed offsets of groups.

Up to version 7 the request has one group, from 8 on several, each with its own coordinator; from 10 on topics
have ids. No topics (null, from 2 on) asks for all committed offsets of a group. Without a committed offset
the result is -1 and no error, whether or not the group, the topic or the partition exists; an id without a
topic is UNKNOWN_TOPIC_ID.

An error of the group is returned for each partition in version 1, for the request up to 7, and for the group
from 8 on. With `require_stable` (from 7 on) an offset that an open transaction is about to replace is not
returned: the partition gets UNSTABLE_OFFSET_COMMIT. Members and their epochs (from 9 on) belong to groups of
the consumer protocol.

Many partitions are looked up in slices, so that other tasks run in between: an offset committed meanwhile may
be found in a later slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordination.effects import Effects, Now, Reply
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.groups import offset_commands
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services
    from barnabas.groups.shard import GroupShard
    from barnabas.metadata.image import ClusterImage

PARTITIONS_A_TURN = 5000

_FIRST_WITH_GROUPS = 8
_FIRST_BY_ID = 10
_LAST_WITHOUT_TOP_LEVEL_ERROR = 1
_UNKNOWN_ID = wire_error("UNKNOWN_TOPIC_ID").code


async def handle(
    request: OffsetFetchRequest, context: RequestContext, services: Services
) -> OffsetFetchResponse:
    if context.api_version < _FIRST_WITH_GROUPS:
        return await _one_group(request, context, services)
    by_id = context.api_version >= _FIRST_BY_ID
    groups = []
    for asked in request.groups:
        unknown = _sort_out(asked, services.image) if by_id else []
        found = await _fetched(asked, request.require_stable, services)
        if by_id and asked.topics is None:
            _name_by_id(found, services.image)
        if not found.error_code:
            found.topics = [*found.topics, *unknown]
        groups.append(found)
    return OffsetFetchResponse(throttle_time_ms=0, topics=[], groups=groups)


async def _one_group(
    request: OffsetFetchRequest, context: RequestContext, services: Services
) -> OffsetFetchResponse:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    found = await _fetched(asked, request.require_stable, services)
    if found.error_code and context.api_version <= _LAST_WITHOUT_TOP_LEVEL_ERROR:
        found.topics = [_failed(topic, found.error_code) for topic in topics or ()]
    return OffsetFetchResponse(
        throttle_time_ms=0,
        topics=[_in_old_form(topic) for topic in found.topics],
        error_code=found.error_code,
    )


async def _fetched(
    asked: OffsetFetchRequestGroup, require_stable: bool, services: Services
) -> OffsetFetchResponseGroup:
    try:
        topics = await _found(asked, require_stable, services)
    except BarnabasError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[], error_code=error.wire.code)
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=0)


async def _found(
    asked: OffsetFetchRequestGroup, require_stable: bool, services: Services
) -> list[OffsetFetchResponseTopics]:
    group_id, wanted = asked.group_id, asked.topics
    if wanted is None:
        everything: OffsetFetchRequestGroup = await services.groups.ask(
            group_id,
            lambda shard, now, reply: offset_commands.list_committed(shard, group_id, reply),
            writes=False,
        )
        wanted = everything.topics or []
    topics: list[OffsetFetchResponseTopics] = []
    for pieces in _slices(wanted) if wanted else [[]]:
        if topics:
            await asyncio.sleep(0)
        some = OffsetFetchRequestGroup(group_id=group_id, topics=[piece.topic for piece in pieces])
        answer: OffsetFetchResponse = await services.groups.ask(
            group_id, partial(_fetch, some, require_stable), writes=False
        )
        for piece, found in zip(pieces, answer.groups[0].topics, strict=True):
            if piece.goes_on:
                topics[-1].partitions += found.partitions
            else:
                topics.append(found)
    return topics


def _fetch(
    asked: OffsetFetchRequestGroup, require_stable: bool, shard: GroupShard, now: Now, reply: Reply
) -> Effects:
    return offset_commands.fetch(shard, asked, require_stable, reply)


class _Piece(NamedTuple):
    """Partitions of a topic that are looked up together."""

    topic: OffsetFetchRequestTopics
    goes_on: bool  # continues the topic of the piece before


def _slices(topics: list[OffsetFetchRequestTopics]) -> Iterator[list[_Piece]]:
    """The partitions of each turn, at most twice PARTITIONS_A_TURN."""
    pieces: list[_Piece] = []
    size = 0
    for topic in topics:
        numbers = topic.partition_indexes
        for start in range(0, len(numbers) or 1, PARTITIONS_A_TURN):
            some = numbers[start : start + PARTITIONS_A_TURN]
            part = OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=some)
            pieces.append(_Piece(part, start > 0))
            size += len(some)
            if size >= PARTITIONS_A_TURN:
                yield pieces
                pieces, size = [], 0
    if pieces:
        yield pieces


def _sort_out(asked: OffsetFetchRequestGroup, image: ClusterImage) -> list[OffsetFetchResponseTopics]:
    """Keep the existing topics in the request, with their names; returns the refusals of the others."""
    if asked.topics is None:
        return []
    known, unknown = [], []
    for topic in asked.topics:
        found = image.topic_by_id(topic.topic_id)
        if found is None:
            unknown.append(_failed(topic, _UNKNOWN_ID))
        else:
            topic.name = found.name
            known.append(topic)
    asked.topics = known
    return unknown


def _name_by_id(found: OffsetFetchResponseGroup, image: ClusterImage) -> None:
    """Add the ids of topics that were found by name; a deleted topic has none, and is left out."""
    told = []
    for topic in found.topics:
        known = image.topic(topic.name)
        if known is not None:
            topic.topic_id = known.id
            told.append(topic)
    found.topics = told


def _failed(topic: OffsetFetchRequestTopics, error_code: int) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[offset_commands.nothing(number, error_code) for number in topic.partition_indexes],
    )


def _in_old_form(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    partitions = [
        OffsetFetchResponsePartition(
            partition_index=one.partition_index,
            committed_offset=one.committed_offset,
            committed_leader_epoch=one.committed_leader_epoch,
            metadata=one.metadata,
            error_code=one.error_code,
        )
        for one in topic.partitions
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)
