"""Fetch sessions (KIP-227), the client's side: a broker remembers what is fetched, and is told only changes.

    NEW   (epoch 0; the id of a session to be replaced, or 0)  everything is said; a session may be opened
    OPEN  (epoch 1, 2 ...; its id)                             only what is new, different or not wanted now

Whatever goes wrong (no answer, a session that the broker does not know, an epoch it did not expect), the next
request is NEW. Pure; one a broker.
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
    """What is wanted of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


class FetchLimits(NamedTuple):
    """What holds for a whole request."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    isolation_level: int
    rack_id: str


class Watermarks(NamedTuple):
    """How far a partition may be read."""

    high_watermark: int
    last_stable_offset: int


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self._known: dict[TopicPartition, Want] = {}  # what the broker remembers
        self._asked: dict[TopicPartition, Want] = {}
        self._by_id = False
        self._told: dict[TopicPartition, Watermarks] = {}

    def request(self, wanted: Mapping[TopicPartition, Want], limits: FetchLimits) -> tuple[FetchRequest, int]:
        """The next request for all of `wanted`, and the newest version it may have."""
        by_id = all(want.topic_id != NO_UUID for want in wanted.values())
        if by_id != self._by_id:  # a session is of one kind
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
        """The broker did as it was asked (its error code is 0)."""
        if self.epoch == 0:
            self.session_id = response.session_id
        if self.session_id == 0 or response.throttle_time_ms:
            # it does not keep one; or what it is silent about may be so for the quota's sake alone
            self.epoch, self._told = 0, {}
            return
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        self._known = self._asked

    def tell(self, partition: TopicPartition, watermarks: Watermarks | None) -> None:
        """What an answer says of a partition; None where that proves nothing."""
        if watermarks is None:
            self._told.pop(partition, None)
        else:
            self._told[partition] = watermarks

    def told(self, partition: TopicPartition) -> Watermarks | None:
        """How a partition stands that the last answer is silent about: as when it was last spoken of."""
        return self._told.get(partition)

    def failed(self, *, is_unknown: bool = False) -> None:
        """No answer, or one that says that the session is not what it should be, or not known at all."""
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
