"""The follower's side of a fetch session (KIP-227): the state that the leader has, and the changes to send.

A replica is `known` when the leader was asked for it in this session. It is `changed` when the next request
has to name it, because it is new to the leader or its position has changed. When a session is lost, the next
request names everything in a new session. A replica that is not to be fetched is in neither.

    NEW   epoch 0: everything is named; the session whose id is given ends
    OPEN  epoch 1, 2 ...: only changed and forgotten partitions are named

A session without partitions is over: Apache Kafka says so in its response, with the id 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.broker.replicas.following import FollowedReplica, Key
from barnabas.core.errors import wire_error
from barnabas.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

MAX_EPOCH = 2**31 - 1
_NO_SESSION = 0
_UNKNOWN_SESSION = wire_error("FETCH_SESSION_ID_NOT_FOUND").code


class FetchLimits(NamedTuple):
    """Limits of every request of a follower, named as Kafka's settings."""

    wait_ms: int = 500  # replica.fetch.wait.max.ms
    min_bytes: int = 1  # replica.fetch.min.bytes
    max_bytes: int = 10 << 20  # replica.fetch.response.max.bytes
    partition_max_bytes: int = 1 << 20  # replica.fetch.max.bytes


class FollowerSession:
    """The session with one leader; one request is in flight at a time."""

    def __init__(self, limits: FetchLimits) -> None:
        self.limits = limits
        self.session_id = _NO_SESSION
        self.epoch = 0
        self.known: dict[Key, FollowedReplica] = {}
        self.changed: dict[Key, FollowedReplica] = {}
        self._renewed: dict[Key, FollowedReplica] = {}  # forgotten, and to be named again
        self._forgotten: dict[Key, None] = {}
        # whether the next request names a replica that is new to the leader, or prepares for one
        self.has_new = False

    @property
    def has_something(self) -> bool:
        """Whether there is anything to send a request for."""
        return bool(self.known or self.changed or self._forgotten)

    def ask_for(self, one: FollowedReplica) -> None:
        """Name this replica in the next request."""
        key = one.key
        if key not in self.known:
            self.has_new = True
            self._forgotten.pop(key, None)
            self._renewed.pop(key, None)
        self.changed[key] = one

    def renew(self, one: FollowedReplica) -> None:
        """Have the leader forget its last answer for this replica, and answer in full again."""
        if one.key not in self.known:
            self.ask_for(one)
            return
        self.leave_out(one.key)
        self._renewed[one.key] = one
        self.has_new = True

    def leave_out(self, key: Key) -> None:
        """Stop asking for this replica. A response under way does not apply to it."""
        self.changed.pop(key, None)
        self._renewed.pop(key, None)
        if self.known.pop(key, None) is not None:
            self._forgotten[key] = None

    def request(self, node_id: int, broker_epoch: int, wait_ms: int) -> FetchRequest:
        """The next request."""
        if self.epoch == 0:
            self.begin_anew()
        limits = self.limits
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=node_id, replica_epoch=broker_epoch),
            replica_id=node_id,
            max_wait_ms=wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=_topics(self.changed.values(), limits.partition_max_bytes),
            forgotten_topics_data=_forgotten(self._forgotten),
        )
        self.known.update(self.changed)
        self.changed, self._renewed, self._forgotten = self._renewed, {}, {}
        self.has_new = bool(self.changed)
        return request

    def answered(self, response: FetchResponse) -> bool:
        """Whether the response is one to the request; otherwise the next request begins a new session."""
        if response.error_code:
            if response.error_code == _UNKNOWN_SESSION:
                self.session_id = _NO_SESSION
            self.begin_anew()
            return False
        is_over = self.epoch > 0 and response.session_id == _NO_SESSION
        if self.epoch == 0:
            self.session_id = response.session_id
        if is_over:
            self.session_id = _NO_SESSION
            self.begin_anew()
        elif self.session_id != _NO_SESSION:
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        return True

    def begin_anew(self) -> None:
        """Begin a new session with the next request, which names everything and ends this session."""
        self.epoch = 0
        self.changed = {**self.known, **self.changed, **self._renewed}
        self.known, self._renewed, self._forgotten = {}, {}, {}


def _topics(asked: Iterable[FollowedReplica], max_bytes: int) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for one in asked:
        topic_id = one.key[0]
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, topic="", partitions=[])
        topic.partitions.append(one.ask(max_bytes))
    return list(topics.values())


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, partition in keys:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, topic="", partitions=[])
        topic.partitions.append(partition)
    return list(topics.values())
