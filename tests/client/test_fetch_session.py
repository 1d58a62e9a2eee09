"""Fetch sessions: a broker that applies the changes it is told knows exactly what is wanted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.fetch_session import MAX_EPOCH, FetchLimits, FetchSession, Want
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.schema import NO_UUID

LIMITS = FetchLimits(1, 100, 10, 0, "")
ID = {name: number.to_bytes(16, "big") for number, name in enumerate(["a", "b", "a anew"], start=1)}
WANTED = st.dictionaries(
    st.sampled_from([TopicPartition(topic, number) for topic in "ab" for number in range(3)]),
    st.integers(0, 3),
    max_size=6,
)


def answer(session_id: int) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=0, error_code=0, session_id=session_id, responses=[], node_endpoints=()
    )


def wants(wanted: dict[TopicPartition, int], a_is: str) -> dict[TopicPartition, Want]:
    return {
        one: Want(ID[a_is if one.topic == "a" else "b"], offset, 0, -1, 100) for one, offset in wanted.items()
    }


class Remembers:
    """A broker's side: what it believes is wanted, by topic id."""

    def __init__(self) -> None:
        self.session_id, self.epoch = 0, 0
        self.known: dict[tuple[bytes, int], int] = {}

    def asked(self, request: FetchRequest) -> FetchResponse | None:
        """The answer; None where the session is not what it should be."""
        if request.session_epoch == 0:
            self.session_id, self.epoch, self.known = self.session_id + 1, 1, {}
        elif (request.session_id, request.session_epoch) != (self.session_id, self.epoch):
            return None
        else:
            self.epoch += 1
        for gone in request.forgotten_topics_data:
            for partition in gone.partitions:
                del self.known[(gone.topic_id, partition)]
        for topic in request.topics:
            for each in topic.partitions:
                self.known[(topic.topic_id, each.partition)] = each.fetch_offset
        return answer(self.session_id)


@given(
    st.lists(
        st.tuples(WANTED, st.sampled_from(["a", "a anew"]), st.sampled_from(["", "", "", "lost", "restart"])),
        max_size=20,
    )
)
def test_the_broker_always_knows_what_is_wanted(
    steps: list[tuple[dict[TopicPartition, int], str, str]],
) -> None:
    session, broker = FetchSession(), Remembers()
    for wanted, a_is, accident in steps:
        if accident == "restart":
            broker = Remembers()
        now = wants(wanted, a_is)
        request, _ = session.request(now, LIMITS)
        response = broker.asked(request)
        if response is None:
            assert accident == "restart"
            session.failed(is_unknown=True)
            continue
        assert broker.known == {(want.topic_id, one.partition): want.offset for one, want in now.items()}
        if accident == "lost":
            session.failed()
        else:
            session.answered(response)


def test_only_changes_are_said() -> None:
    session = FetchSession()
    wanted = wants({TopicPartition("a", n): 0 for n in range(3)}, "a")
    session.request(wanted, LIMITS)
    session.answered(answer(9))
    wanted[TopicPartition("a", 1)] = wanted[TopicPartition("a", 1)]._replace(offset=5)
    del wanted[TopicPartition("a", 2)]
    request, _ = session.request(wanted, LIMITS)
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert [each.partition for topic in request.topics for each in topic.partitions] == [1]
    assert [topic.partitions for topic in request.forgotten_topics_data] == [[2]]


def test_a_broker_without_sessions_is_told_everything_each_time() -> None:
    session = FetchSession()
    wanted = wants({TopicPartition("a", 0): 0}, "a")
    for _ in range(3):
        request, _ = session.request(wanted, LIMITS)
        assert (request.session_id, request.session_epoch, len(request.topics)) == (0, 0, 1)
        session.answered(answer(0))


def test_epochs_wrap_to_one() -> None:
    session = FetchSession()
    session.session_id, session.epoch = 9, MAX_EPOCH
    session.answered(answer(9))
    assert session.epoch == 1


def test_a_topic_without_id_makes_it_a_session_by_name() -> None:
    session = FetchSession()
    partition = TopicPartition("a", 0)
    _, newest = session.request(wants({partition: 0}, "a"), LIMITS)
    session.answered(answer(9))
    request, by_name = session.request({partition: Want(NO_UUID, 0, 0, -1, 100)}, LIMITS)
    assert (newest > 12, by_name) == (True, 12)
    assert (request.session_id, request.session_epoch, len(request.topics)) == (9, 0, 1)
