"""Fetch sessions (KIP-227), the client's side: the broker remembers what is fetched; requests have only
changes.

    NEW   (epoch 0; the id of a session to replace, or 0)  names everything; the broker may open a session
    OPEN  (epoch 1, 2 ...; its id)                         names only new, changed and removed partitions

After any error (no response, a session that the broker does not know, an unexpected epoch), the next request
is NEW. Pure; one for each broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from barnabas.protocol.schema import EVERY_VERSION, NO_UUID

LAST_VERSION_BY_NAME = 12
MAX_EPOCH = 0x7FFFFFFF


class Want(NamedTuple):
    """The request for one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


class FetchLimits(NamedTuple):
    """Limits of a whole request."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    isolation_level: int
    rack_id: str


class Watermarks(NamedTuple):
    """The offsets up to which a partition may be read."""

    high_watermark: int
    last_stable_offset: int


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self._known: dict[TopicPartition, Want] = {}  # the state of the broker's session
        self._asked: dict[TopicPartition, Want] = {}
        self._by_id = False
        self._told: dict[TopicPartition, Watermarks] = {}

    def request(self, wanted: Mapping[TopicPartition, Want], limits: FetchLimits) -> tuple[FetchRequest, int]:
        """The next request for all of `wanted`, and the newest version that it may have."""
        by_id = all(want.topic_id != NO_UUID for want in wanted.values())
        if by_id != self._by_id:  # a session is either by id or by name
            self.epoch, self._by_id = 0, by_id
        if self.epoch == 0:
            self._known, self._told = {}, {}
        changed = {one: want for one, want in wanted.items() if self._known.get(one) != want}
        gone = {
            one: want
            for one, want in self._known.items()
            if one not in wanted or wanted[one].topic_id != want.topic_id
        }
        for one in gone:
            self._told.pop(one, None)
        self._asked = dict(wanted)
        request = FetchRequest(
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=limits.isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=_topics(changed),
            forgotten_topics_data=_forgotten(gone),
            rack_id=limits.rack_id,
        )
        return request, EVERY_VERSION if by_id else LAST_VERSION_BY_NAME

    def answered(self, response: FetchResponse) -> None:
        """Apply a response without a session error."""
        if self.epoch == 0:
            self.session_id = response.session_id
        if self.session_id == 0 or response.throttle_time_ms:
            # there is no session; or a throttled response may leave out partitions
            self.epoch, self._told = 0, {}
            return
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        self._known = self._asked

    def tell(self, partition: TopicPartition, watermarks: Watermarks | None) -> None:
        """Remember the watermarks in a response; None if they prove nothing."""
        if watermarks is None:
            self._told.pop(partition, None)
        else:
            self._told[partition] = watermarks

    def told(self, partition: TopicPartition) -> Watermarks | None:
        """The last known watermarks, for a partition that the last response left out."""
        return self._told.get(partition)

    def failed(self, *, is_unknown: bool = False) -> None:
        """There was no response, or a session error; `is_unknown` if the broker does not know the session."""
        if is_unknown:
            self.session_id = 0
        self.epoch = 0


def _topics(wanted: Mapping[TopicPartition, Want]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (name, partition), want in wanted.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic_id=want.topic_id, topic=name, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                last_fetched_epoch=want.last_fetched_epoch,
                partition_max_bytes=want.max_bytes,
                replica_directory_id=NO_UUID,
            )
        )
    return list(topics.values())


def _forgotten(gone: Mapping[TopicPartition, Want]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for (name, partition), want in gone.items():
        key = (name, want.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = ForgottenTopic(topic_id=want.topic_id, topic=name, partitions=[])
        topic.partitions.append(partition)
    return list(topics.values())
