"""Fetch sessions: their rules, one by one; and a client that follows them sees what full fetches show."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replicas.fetch_sessions import (
    FetchContext,
    FetchSessionIdNotFound,
    FetchSessions,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    Want,
    next_epoch,
)
from barnabas.core.clock import ManualClock
from barnabas.core.errors import BarnabasError
from barnabas.core.random import SeededRandom
from barnabas.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.protocol.schema import NO_UUID

NAMES, IDS = 12, 13
Place = tuple[str, int]


def _sessions(max_slots: int = 1000, clock: ManualClock | None = None) -> FetchSessions:
    return FetchSessions(clock or ManualClock(), SeededRandom(1), max_slots)


def _topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


def _request(
    session_id: int,
    epoch: int,
    places: Iterable[Place] = (),
    forgotten: Iterable[Place] = (),
    offset: int = 0,
    replica_id: int = -1,
) -> FetchRequest:
    topics = [
        FetchTopic(topic=name, topic_id=_topic_id(name), partitions=[_ask(number, offset)])
        for name, number in places
    ]
    gone = [
        ForgottenTopic(topic=name, topic_id=_topic_id(name), partitions=[number])
        for name, number in forgotten
    ]
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id),
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=gone,
    )


def _ask(partition: int, offset: int) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1000, replica_directory_id=NO_UUID
    )


def _found(
    want: Want, *, high_watermark: int = 5, start: int = 0, error: int = 0, records: bytes = b""
) -> PartitionData:
    return PartitionData(
        partition_index=want.ask.partition,
        error_code=error,
        high_watermark=-1 if error else high_watermark,
        log_start_offset=-1 if error else start,
        diverging_epoch=None,
        current_leader=None,
        snapshot_id=None,
        aborted_transactions=None,
        records=records,
    )


def _idle(context: FetchContext) -> list[PartitionData]:
    """Nothing new anywhere."""
    return [_found(want) for want in context.wants]


def _places(context: FetchContext) -> list[Place]:
    return [(want.topic, want.ask.partition) for want in context.wants]


def _told(response: FetchResponse) -> list[Place]:
    return [(topic.topic, one.partition_index) for topic in response.responses for one in topic.partitions]


def _open(
    sessions: FetchSessions, places: Iterable[Place], version: int = NAMES, replica_id: int = -1
) -> int:
    context = sessions.begin(_request(0, 0, places, replica_id=replica_id), version)
    return context.respond(_idle(context)).session_id


THREE = [("a", 0), ("a", 1), ("b", 0)]


def test_a_final_fetch_has_no_session_and_everything_in_its_answer() -> None:
    sessions = _sessions()
    context = sessions.begin(_request(0, -1, THREE), NAMES)
    assert _places(context) == THREE
    response = context.respond(_idle(context), throttle_time_ms=7)
    assert (response.session_id, response.error_code, response.throttle_time_ms) == (0, 0, 7)
    assert _told(response) == THREE
    assert [topic.topic for topic in response.responses] == ["a", "b"]
    assert len(sessions) == 0


def test_a_session_begins_when_its_first_answer_is_made() -> None:
    sessions = _sessions()
    context = sessions.begin(_request(0, 0, THREE), NAMES)
    assert len(sessions) == 0
    response = context.respond(_idle(context))
    assert response.session_id > 0
    assert _told(response) == THREE
    assert len(sessions) == 1


def test_without_news_an_incremental_answer_is_empty() -> None:
    sessions = _sessions()
    session_id = _open(sessions, THREE)
    for epoch in (1, 2, 3):
        context = sessions.begin(_request(session_id, epoch), NAMES)
        assert _places(context) == THREE
        response = context.respond(_idle(context))
        assert (response.responses, response.session_id, response.error_code) == ([], session_id, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"high_watermark": 6},
        {"log_start_offset": 1},
        {"records": b"x"},
        {"error_code": 6},
        {"preferred_read_replica": 2},
        {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_news(change: dict[str, object]) -> None:
    sessions = _sessions()
    session_id = _open(sessions, THREE)
    context = sessions.begin(_request(session_id, 1), NAMES)
    results = _idle(context)
    for name, value in change.items():
        setattr(results[1], name, value)
    assert _told(context.respond(results)) == [("a", 1)]


def test_what_was_told_once_is_not_told_again() -> None:
    sessions = _sessions()
    session_id = _open(sessions, THREE)
    for epoch, told in ((1, THREE), (2, [])):
        context = sessions.begin(_request(session_id, epoch), NAMES)
        response = context.respond([_found(want, high_watermark=9, start=3) for want in context.wants])
        assert _told(response) == told


def test_the_end_of_an_error_is_news() -> None:
    sessions = _sessions()
    session_id = _open(sessions, [("a", 0)])
    errors = [6, 6, 0, 0]
    told = []
    for epoch, error in enumerate(errors, start=1):
        context = sessions.begin(_request(session_id, epoch), NAMES)
        # an error that leaves the marks as they were, to see that the error itself counts
        result = _found(context.wants[0])
        result.error_code = error
        told.append(len(_told(context.respond([result]))))
    assert told == [1, 1, 1, 0]


def test_partitions_are_added_altered_and_forgotten() -> None:
    sessions = _sessions()
    session_id = _open(sessions, THREE)
    context = sessions.begin(_request(session_id, 1, [("c", 0), ("a", 1)], [("a", 0)], offset=4), NAMES)
    asked = [(want.topic, want.ask.partition, want.ask.fetch_offset) for want in context.wants]
    assert asked == [("a", 1, 4), ("b", 0, 0), ("c", 0, 4)]
    # the client has heard nothing of c yet
    assert _told(context.respond(_idle(context))) == [("c", 0)]


def test_what_is_asked_and_forgotten_at_once_is_forgotten() -> None:
    sessions = _sessions()
    session_id = _open(sessions, THREE)
    context = sessions.begin(_request(session_id, 1, [("c", 0)], [("c", 0), ("x", 9)]), NAMES)
    assert _places(context) == THREE


def test_a_session_that_forgets_everything_ends() -> None:
    sessions = _sessions()
    session_id = _open(sessions, [("a", 0)])
    context = sessions.begin(_request(session_id, 1, forgotten=[("a", 0)]), NAMES)
    assert context.wants == []
    assert context.respond([]).session_id == 0
    assert len(sessions) == 0


def test_who_had_records_is_served_last() -> None:
    sessions = _sessions()
    session_id = _open(sessions, THREE)
    served = []
    for epoch in range(1, 7):
        context = sessions.begin(_request(session_id, epoch), NAMES)
        # all have records, but only the first one's fit into the response
        results = [_found(want, records=b"x" * (at == 0)) for at, want in enumerate(context.wants)]
        served += _told(context.respond(results))
    assert served == THREE + THREE


def test_unknown_and_closed_sessions() -> None:
    sessions = _sessions()
    for session_id, epoch in ((0, 1), (77, 1), (77, -2)):
        with pytest.raises(FetchSessionIdNotFound) as caught:
            sessions.begin(_request(session_id, epoch), NAMES)
        assert caught.value.wire.name == "FETCH_SESSION_ID_NOT_FOUND"
    for closing_epoch in (0, -1):
        session_id = _open(sessions, THREE)
        sessions.begin(_request(session_id, closing_epoch, THREE), NAMES)
        with pytest.raises(FetchSessionIdNotFound):
            sessions.begin(_request(session_id, 1), NAMES)


def test_epochs_must_follow_each_other() -> None:
    sessions = _sessions()
    session_id = _open(sessions, THREE)
    for epoch in (2, -2):
        with pytest.raises(InvalidFetchSessionEpoch) as caught:
            sessions.begin(_request(session_id, epoch), NAMES)
        assert caught.value.wire.name == "INVALID_FETCH_SESSION_EPOCH"
    sessions.begin(_request(session_id, 1), NAMES)
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.begin(_request(session_id, 1), NAMES)


def test_after_the_last_epoch_comes_the_first() -> None:
    assert next_epoch(2**31 - 1) == 1
    sessions = _sessions()
    session_id = _open(sessions, THREE)
    sessions._sessions[session_id].epoch = 2**31 - 1
    for epoch in (2**31 - 1, 1, 2):
        context = sessions.begin(_request(session_id, epoch), NAMES)
        assert context.respond(_idle(context)).error_code == 0


def test_a_request_that_overtakes_another_spoils_its_answer() -> None:
    sessions = _sessions()
    session_id = _open(sessions, [("a", 0)])
    slow = sessions.begin(_request(session_id, 1, [("b", 0)]), NAMES)
    fast = sessions.begin(_request(session_id, 2, forgotten=[("a", 0)]), NAMES)
    response = slow.respond(_idle(slow))
    assert (response.error_code, response.session_id, response.responses) == (71, session_id, [])
    assert _told(fast.respond(_idle(fast))) == [("b", 0)]
    again = sessions.begin(_request(session_id, 3), NAMES)
    sessions.begin(_request(session_id, 4, forgotten=[("b", 0)]), NAMES)
    assert again.respond([_found(want, records=b"x") for want in again.wants]).error_code == 71


def test_ids_and_names_do_not_mix() -> None:
    sessions = _sessions()
    for first, then in ((NAMES, IDS), (IDS, NAMES)):
        session_id = _open(sessions, THREE, first)
        with pytest.raises(FetchSessionTopicIdError) as caught:
            sessions.begin(_request(session_id, 1), then)
        assert caught.value.wire.name == "FETCH_SESSION_TOPIC_ID_ERROR"


def test_topics_by_id_have_no_name_and_unknown_ids_stay() -> None:
    sessions = _sessions()
    request = _request(0, 0, THREE)
    for topic in request.topics:
        del topic.topic  # as decoded from version 13 on
    context = sessions.begin(request, IDS)
    assert [want.topic for want in context.wants] == ["", "", ""]
    session_id = context.respond([_found(want, error=100) for want in context.wants]).session_id
    context = sessions.begin(_request(session_id, 1), IDS)
    response = context.respond([_found(want, error=100) for want in context.wants])
    assert [topic.topic_id for topic in response.responses] == [_topic_id("a"), _topic_id("b")]
    context = sessions.begin(_request(session_id, 2), IDS)
    assert sum(len(topic.partitions) for topic in context.respond(_idle(context)).responses) == 3


def test_the_name_of_an_id_is_remembered_after_the_topic_is_gone() -> None:
    sessions = _sessions()
    names = {_topic_id("a"): "a"}

    def begin(session_id: int, epoch: int, places: Iterable[Place] = ()) -> list[tuple[Place, str]]:
        request = _request(session_id, epoch, places)
        context = sessions.begin(request, IDS, lambda topic_id: names.get(topic_id, ""))
        begun.append(context.respond(_idle(context)).session_id)
        return [((want.topic, want.ask.partition), want.name_of_id) for want in context.wants]

    begun: list[int] = []
    assert begin(0, 0, THREE) == [(("a", 0), "a"), (("a", 1), "a"), (("b", 0), "")]
    names = {_topic_id("b"): "b"}  # one is deleted, and the other becomes known
    assert begin(begun[0], 1) == [(("a", 0), "a"), (("a", 1), "a"), (("b", 0), "b")]
    names = {}
    remembered = [(("a", 0), "a"), (("a", 1), "a"), (("b", 0), "b")]
    assert begin(begun[0], 2, [("a", 1), ("a", 2)]) == [*remembered, (("a", 2), "")]
    assert begin(begun[0], 3) == [*remembered, (("a", 2), "")]


def test_the_same_number_of_another_topic_is_another_partition() -> None:
    sessions = _sessions()
    session_id = _open(sessions, [("a", 0), ("b", 0)])
    context = sessions.begin(_request(session_id, 1, forgotten=[("b", 0)]), NAMES)
    assert _places(context) == [("a", 0)]


# ---- slots -----------------------------------------------------------------------------------------------


def _is_there(sessions: FetchSessions, session_id: int) -> bool:
    return session_id in sessions._sessions


def test_without_slots_everybody_is_served_without_a_session() -> None:
    assert _open(_sessions(0), THREE) == 0


def test_young_sessions_of_consumers_are_safe_from_consumers() -> None:
    clock = ManualClock()
    sessions = _sessions(2, clock)
    first = _open(sessions, [("a", 0)])
    clock.advance(120)
    second = _open(sessions, [("a", 0)])
    assert _open(sessions, THREE) == 0
    assert [_is_there(sessions, each) for each in (first, second)] == [True, True]


def test_the_longest_unused_session_makes_room_after_two_minutes() -> None:
    clock = ManualClock()
    sessions = _sessions(2, clock)
    first, second = _open(sessions, THREE), _open(sessions, THREE)
    clock.advance(100)
    sessions.begin(_request(first, 1), NAMES)
    clock.advance(21)
    third = _open(sessions, [("a", 0)])
    assert third
    assert [_is_there(sessions, each) for each in (first, second, third)] == [True, False, True]


def test_a_larger_session_drives_out_the_smallest_old_one() -> None:
    clock = ManualClock()
    sessions = _sessions(2, clock)
    small, large = _open(sessions, [("a", 0)]), _open(sessions, THREE)
    clock.advance(121)
    for session_id in (small, large):
        sessions.begin(_request(session_id, 1), NAMES)
    assert _open(sessions, [("a", 0)]) == 0  # worth as much: it stays outside
    assert _open(sessions, THREE[:2])
    assert [_is_there(sessions, each) for each in (small, large)] == [False, True]


def test_followers_drive_out_any_consumer_but_no_young_follower() -> None:
    sessions = _sessions(2)
    consumer, follower = _open(sessions, THREE), _open(sessions, [("a", 0)], replica_id=2)
    assert _open(sessions, [("a", 0)], replica_id=3)
    assert [_is_there(sessions, each) for each in (consumer, follower)] == [False, True]
    assert _open(sessions, THREE, replica_id=4) == 0


def test_consumers_never_drive_out_followers_that_are_in_use() -> None:
    clock = ManualClock()
    sessions = _sessions(1, clock)
    follower = _open(sessions, [("a", 0)], replica_id=2)
    clock.advance(121)
    sessions.begin(_request(follower, 1), NAMES)
    assert _open(sessions, THREE) == 0
    assert _open(sessions, THREE, replica_id=3)


def test_an_old_request_names_its_follower_in_another_field() -> None:
    sessions = _sessions(1)
    _open(sessions, THREE)
    request = _request(0, 0, [("a", 0)])
    request.replica_state, request.replica_id = None, 5
    context = sessions.begin(request, NAMES)
    assert context.respond(_idle(context)).session_id > 0


def test_session_ids_are_not_given_out_twice() -> None:
    numbers = [4, 4, 4, 8]

    class Repeating(SeededRandom):
        def below(self, bound: int) -> int:
            assert bound == 2**31 - 1
            return numbers.pop(0)

    sessions = FetchSessions(ManualClock(), Repeating(0), 10)
    assert [_open(sessions, THREE), _open(sessions, THREE)] == [5, 9]


# ---- a client that follows the rules ---------------------------------------------------------------------

UNIVERSE = [(name, number) for name in ("a", "b", "c") for number in (0, 1)]


class Partition:
    """A partition as the broker has it; every record is one byte, the low bits of its offset."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.error = 0

    def read(self, want: Want, room: int) -> PartitionData:
        if self.error:
            return _found(want, error=self.error)
        offset = want.ask.fetch_offset
        if not self.start <= offset <= self.end:
            return _found(want, error=1)
        records = bytes(number & 255 for number in range(offset, min(self.end, offset + room)))
        return _found(want, high_watermark=self.end, start=self.start, records=records)


class Client:
    """Sends what changed, remembers what it is told."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.sent: dict[Place, int] = {}
        self.positions: dict[Place, int] = {}
        self.marks: dict[Place, tuple[int, int]] = {}
        self.errors: dict[Place, int] = {}
        self.read: dict[Place, list[int]] = {}

    def request(self) -> FetchRequest:
        if self.epoch == 0:
            changed, gone = dict(self.positions), []
        else:
            changed = {place: at for place, at in self.positions.items() if self.sent.get(place) != at}
            gone = [place for place in self.sent if place not in self.positions]
        self.sent = dict(self.positions)
        request = _request(self.session_id, self.epoch, changed, gone)
        for topic, position in zip(request.topics, changed.values(), strict=True):
            topic.partitions[0].fetch_offset = position
        return request

    def refused(self, error: BarnabasError) -> None:
        if isinstance(error, FetchSessionIdNotFound):
            self.session_id = 0
        self.epoch = 0

    def received(self, response: FetchResponse) -> None:
        if self.epoch == 0:
            self.session_id = response.session_id
        self.epoch = next_epoch(self.epoch) if self.session_id else 0
        self.errors = {}  # an error lasts as long as it is told
        for topic in response.responses:
            for one in topic.partitions:
                place = topic.topic, one.partition_index
                if one.error_code:
                    self.errors[place] = one.error_code
                    continue
                self.marks[place] = one.high_watermark, one.log_start_offset
                assert isinstance(one.records, bytes)
                self.read.setdefault(place, []).extend(one.records)
                self.positions[place] += len(one.records)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "trim", "break", "mend", "want", "drop", "fetch", "fetch", "lose", "evict"]
        ),
        st.sampled_from(UNIVERSE),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_a_client_sees_what_full_fetches_would_show(steps: list[tuple[str, Place]]) -> None:
    sessions, client = _sessions(3), Client()
    partitions = {place: Partition() for place in UNIVERSE}
    for action, place in steps:
        partition = partitions[place]
        if action == "append":
            partition.end += 3
        elif action == "trim" and partition.start < client.positions.get(place, 0):
            partition.start += 1
        elif action in ("break", "mend"):
            partition.error = 6 if action == "break" else 0
        elif action == "want":
            client.positions.setdefault(place, partition.start)
        elif action == "drop":
            client.positions.pop(place, None)
            for known in (client.marks, client.read, client.errors):
                known.pop(place, None)
        elif action == "lose":
            # the request arrives, its response does not: the client must begin anew
            _fetch(sessions, client, partitions, is_answered=False)
        elif action == "evict":
            sessions._sessions.clear()
        else:
            _fetch(sessions, client, partitions)
            _compare(client, partitions)
    while _fetch(sessions, client, partitions):
        _compare(client, partitions)
    for place, position in client.positions.items():
        if not partitions[place].error:
            assert position == partitions[place].end


def _fetch(
    sessions: FetchSessions, client: Client, partitions: dict[Place, Partition], *, is_answered: bool = True
) -> bool:
    """One fetch of up to two records, once more in full if the session is refused; True if there were any."""
    while True:
        try:
            context = sessions.begin(client.request(), NAMES)
        except BarnabasError as error:
            client.refused(error)
            continue
        room, results = 2, []
        for want in context.wants:
            result = partitions[want.topic, want.ask.partition].read(want, room)
            assert isinstance(result.records, bytes)
            room -= len(result.records)
            results.append(result)
        response = context.respond(results)
        if is_answered:
            client.received(response)
        else:
            client.epoch = 0
        return room < 2


def _compare(client: Client, partitions: dict[Place, Partition]) -> None:
    """What the client knows is what a full fetch would have told it."""
    for place in client.positions:
        partition = partitions[place]
        assert client.errors.get(place, 0) == partition.error
        if not partition.error:
            assert client.marks[place] == (partition.end, partition.start)
    for place, read in client.read.items():
        first = client.positions[place] - len(read)
        assert read == [number & 255 for number in range(first, client.positions[place])]
