"""The follower's side of a fetch session, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.replicas.follower_session import FetchLimits, FollowerSession
from barnabas.core.errors import wire_error
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse

TOPIC = b"t" * 16
SESSION = 77


class Followed:
    """A replica that stands at an offset."""

    def __init__(self, partition: int) -> None:
        self.key = (TOPIC, partition)

    def ask(self, max_bytes: int) -> FetchPartition:
        return FetchPartition(partition=self.key[1], fetch_offset=0, partition_max_bytes=max_bytes)


def followed(partition: int) -> Any:
    return Followed(partition)


def ask(session: FollowerSession) -> FetchRequest:
    return session.request(node_id=1, broker_epoch=5, wait_ms=0)


def answer(session: FollowerSession, session_id: int = SESSION, error: str = "NONE") -> bool:
    return session.answered(
        FetchResponse(error_code=wire_error(error).code, session_id=session_id, responses=[])
    )


def told(request: FetchRequest) -> tuple[int, int, list[int], list[int]]:
    """Session id and epoch, and the partitions that are asked for and forgotten."""
    asked = [each.partition for topic in request.topics for each in topic.partitions]
    forgotten = [each for topic in request.forgotten_topics_data for each in topic.partitions]
    return request.session_id, request.session_epoch, asked, forgotten


def test_only_what_has_changed_is_named_in_an_open_session() -> None:
    session = FollowerSession(FetchLimits())
    for each in (0, 1):
        session.ask_for(followed(each))
    assert told(ask(session)) == (0, 0, [0, 1], [])
    assert answer(session)
    session.ask_for(followed(1))
    session.leave_out((TOPIC, 0))
    assert told(ask(session)) == (SESSION, 1, [1], [0])
    assert answer(session)
    assert told(ask(session)) == (SESSION, 2, [], [])


def test_a_session_that_apache_kafka_has_ended_begins_anew() -> None:
    """Where nothing is left to be asked for, Kafka answers with id 0 and knows the session no more."""
    session = FollowerSession(FetchLimits())
    session.ask_for(followed(0))
    ask(session)
    assert answer(session)
    session.leave_out((TOPIC, 0))
    assert told(ask(session)) == (SESSION, 1, [], [0])
    assert answer(session, session_id=0)
    session.ask_for(followed(0))
    assert told(ask(session)) == (0, 0, [0], [])


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("FETCH_SESSION_ID_NOT_FOUND", 0),
        ("INVALID_FETCH_SESSION_EPOCH", SESSION),  # it is there, and the next request ends it
        ("FETCH_SESSION_TOPIC_ID_ERROR", SESSION),
        ("UNKNOWN_SERVER_ERROR", SESSION),
    ],
)
def test_a_lost_session_begins_anew_with_everything(error: str, named: int) -> None:
    session = FollowerSession(FetchLimits())
    for each in (0, 1):
        session.ask_for(followed(each))
    ask(session)
    assert answer(session)
    ask(session)
    assert not answer(session, session_id=0, error=error)
    assert told(ask(session)) == (named, 0, [0, 1], [])


def test_without_a_session_everything_is_named_every_time() -> None:
    """A leader without a slot for another session gives none."""
    session = FollowerSession(FetchLimits())
    session.ask_for(followed(0))
    for _ in range(2):
        assert told(ask(session)) == (0, 0, [0], [])
        assert answer(session, session_id=0)
