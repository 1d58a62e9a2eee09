"""A fetch session while its topic is deleted and created again, against any broker."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic
from barnabas.protocol.schema import NO_UUID
from tests.support.raw_client import RawClient, fetch_request, wait_until

FETCH_BY_ID = 13
NEVER_KNOWN = bytes(range(16))
# (topic, partition) -> the name of its error
Answer = dict[tuple[str, int], str]


class SessionFetches:
    """One session by topic ids; partitions are called by the name of their id."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._ids = {"never": NEVER_KNOWN}
        self._session_id = self._epoch = 0

    def create(self, called: str) -> None:
        """Create the topic with two partitions, and wait until they can be read."""
        topic = CreatableTopic(
            name=self._topic, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        answer = self._client.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer
        self._ids[called] = answer.topics[0].topic_id
        readable = {(called, 0): "NONE", (called, 1): "NONE"}
        wait_until(lambda: self.without_session(list(readable)) == readable, f"leaders of {called}")

    def delete(self, called: str) -> None:
        state = DeleteTopicState(name=self._topic, topic_id=NO_UUID)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=10_000)
        answer = self._client.ask(request, 6, DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0, answer
        gone = {(called, 0): "UNKNOWN_TOPIC_ID"}
        wait_until(lambda: self.without_session(list(gone)) == gone, f"{called} to go")

    def without_session(self, places: Sequence[tuple[str, int]]) -> Answer:
        return self._ask(0, -1, places)[1]

    def full(self, places: Sequence[tuple[str, int]]) -> Answer:
        """Begin the session."""
        self._session_id, told = self._ask(0, 0, places)
        self._epoch = 0
        return told

    def incremental(
        self, places: Sequence[tuple[str, int]] = (), forgotten: Sequence[tuple[str, int]] = ()
    ) -> Answer:
        self._epoch += 1
        return self._ask(self._session_id, self._epoch, places, forgotten)[1]

    def _ask(
        self,
        session_id: int,
        epoch: int,
        places: Sequence[tuple[str, int]],
        forgotten: Sequence[tuple[str, int]] = (),
    ) -> tuple[int, Answer]:
        request = fetch_request("")
        request.session_id, request.session_epoch = session_id, epoch
        request.topics = [
            FetchTopic(
                topic_id=self._ids[called],
                partitions=[FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
            for called, at in places
        ]
        request.forgotten_topics_data = [
            ForgottenTopic(topic_id=self._ids[called], partitions=[at]) for called, at in forgotten
        ]
        answer = self._client.ask(request, FETCH_BY_ID, FetchResponse)
        assert answer.error_code == 0, answer
        called_by_id = {topic_id: called for called, topic_id in self._ids.items()}
        told = {
            (called_by_id[bytes(topic.topic_id)], one.partition_index): WIRE_ERRORS[one.error_code].name
            for topic in answer.responses
            for one in topic.partitions
        }
        return answer.session_id, told


def deleted_and_created_again(client: RawClient, topic: str) -> dict[str, Answer]:
    """The answers at every step."""
    fetches = SessionFetches(client, topic)
    fetches.create("old")
    told = {
        "full": fetches.full([("old", 0), ("old", 5), ("never", 0)]),
        "nothing new": fetches.incremental(),
    }
    fetches.delete("old")
    told["deleted"] = fetches.incremental()
    told["more of the deleted"] = fetches.incremental([("old", 0), ("old", 1)])
    fetches.create("new")
    told["created again"] = fetches.incremental()
    told["without session"] = fetches.without_session([("old", 0)])
    told["the new one"] = fetches.incremental([("new", 0)])
    told["only the new one"] = fetches.incremental([], [("old", 0), ("old", 1), ("old", 5), ("never", 0)])
    return told


UNKNOWN, UNKNOWN_ID, INCONSISTENT = "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID"
_NEVER = {("old", 5): UNKNOWN, ("never", 0): UNKNOWN_ID}
_AFTER = {("old", 0): INCONSISTENT, ("old", 1): UNKNOWN_ID} | _NEVER
EXPECTED: dict[str, Answer] = {
    "full": {("old", 0): "NONE"} | _NEVER,
    "nothing new": _NEVER,
    "deleted": {("old", 0): UNKNOWN} | _NEVER,
    "more of the deleted": {("old", 0): UNKNOWN, ("old", 1): UNKNOWN_ID} | _NEVER,
    "created again": _AFTER,
    "without session": {("old", 0): UNKNOWN_ID},
    "the new one": {("new", 0): "NONE"} | _AFTER,
    "only the new one": {},
}
