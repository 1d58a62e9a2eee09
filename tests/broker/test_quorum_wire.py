"""The raft core's values through Kafka's messages and back, at every version; what is refused, and how."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.quorum.wire import (
    ANSWERING,
    ASKING,
    answer_from_wire,
    refusal,
    request_from_wire,
    request_to_wire,
    response_to_wire,
)
from barnabas.broker.quorum.wire_fetches import with_records
from barnabas.broker.quorum.wire_parts import NOTHING_KNOWN, Asked, UnsupportedVersion
from barnabas.core.errors import wire_error
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.messages.api_versions import SupportedFeatureKey
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.fetch import FetchResponse as WireFetchResponse
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotResponse as WireFetchSnapshotResponse
from barnabas.protocol.messages.vote import VoteRequest
from barnabas.protocol.messages.vote import VoteResponse as WireVoteResponse
from barnabas.protocol.schema import Message
from barnabas.raft import messages as raft
from barnabas.raft.election import NO_DIRECTORY, NO_NODE, VoterKey
from barnabas.raft.log_index import EpochEnd
from barnabas.raft.messages import (
    AddRaftVoter,
    ApiVersions,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchSnapshot,
    Known,
    RemoveRaftVoter,
    UpdateRaftVoter,
    Vote,
)
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.voters import Endpoint, Endpoints, VoterInfo

CLUSTER = "Ru2xhzV4TZ2ZIzHLVGHXXw"
LISTENER = "CONTROLLER"
LEADER = Known(7, 3, (Endpoint(LISTENER, "three.example", 9093),))

int32 = st.integers(0, (1 << 31) - 1)
int64 = st.integers(0, (1 << 63) - 1)
keys = st.builds(VoterKey, int32, st.one_of(st.just(NO_DIRECTORY), st.uuids()))
hosts = st.text("abc.é", min_size=1, max_size=8)
errors = st.sampled_from([0, 6, 7, 35, 42, 74, 75, 98, 99, 125, 126, 127])
snapshot_ids = st.builds(SnapshotId, int64, int32)


@st.composite
def endpoint_lists(draw: st.DrawFn, at_least: int = 0) -> Endpoints:
    """In their normal form: what others can reach comes first, or there is nothing."""
    names = draw(st.sets(st.sampled_from(["A", "SECOND", "Z"])))
    count = draw(st.integers(at_least, 1))
    names_in_order = [LISTENER, *sorted(names)] if count else []
    return tuple(Endpoint(name, draw(hosts), draw(st.integers(0, 65535))) for name in names_in_order)


@st.composite
def known_leaders(draw: st.DrawFn) -> Known:
    epoch = draw(int32)
    if draw(st.booleans()):
        return Known(epoch)
    return Known(epoch, draw(int32), draw(endpoint_lists())[:1])


@st.composite
def fetches(draw: st.DrawFn) -> Fetch:
    epoch = draw(int32)
    high_watermark = draw(st.one_of(st.just(-1), int64))
    last_epoch = draw(st.integers(0, epoch))
    return Fetch(epoch, draw(keys), draw(int64), last_epoch, high_watermark, draw(int32), draw(int32))


voter_infos = st.builds(VoterInfo, keys, endpoint_lists(), st.integers(0, 32767), st.integers(0, 32767))
REQUESTS: dict[type, st.SearchStrategy[Any]] = {
    Vote: st.builds(Vote, int32, keys, int32, int64, st.booleans(), st.none() | keys),
    BeginQuorumEpoch: st.builds(BeginQuorumEpoch, int32, int32, endpoint_lists(), st.none() | keys),
    EndQuorumEpoch: st.builds(
        EndQuorumEpoch, int32, int32, st.lists(keys, max_size=4).map(tuple), endpoint_lists()
    ),
    Fetch: fetches(),
    FetchSnapshot: st.builds(FetchSnapshot, int32, keys, snapshot_ids, int64, int32),
    AddRaftVoter: st.builds(AddRaftVoter, keys, endpoint_lists(), int32, st.booleans()),
    RemoveRaftVoter: st.builds(RemoveRaftVoter, keys),
    UpdateRaftVoter: st.builds(UpdateRaftVoter, int32, voter_infos),
}


@st.composite
def fetch_answers(draw: st.DrawFn) -> raft.FetchResponse:
    return raft.FetchResponse(
        draw(errors),
        draw(known_leaders()),
        draw(st.one_of(st.just(-1), int64)),
        draw(int64),
        draw(st.none() | st.builds(EpochEnd, int32, int64)),
        draw(st.none() | snapshot_ids),
    )


@st.composite
def snapshot_answers(draw: st.DrawFn) -> raft.FetchSnapshotResponse:
    data = draw(st.binary(max_size=20))
    return raft.FetchSnapshotResponse(
        draw(errors),
        draw(known_leaders()),
        draw(snapshot_ids),
        draw(int64),
        draw(int64),
        data=data,
        data_bytes=len(data),
    )


changes = st.builds(raft.VoterChangeResponse, errors, known_leaders(), st.text("text", max_size=9))
epochs = st.builds(raft.EpochResponse, errors, known_leaders())
RESPONSES: dict[type, st.SearchStrategy[Any]] = {
    Vote: st.builds(raft.VoteResponse, errors, known_leaders(), st.booleans()),
    BeginQuorumEpoch: epochs,
    EndQuorumEpoch: epochs,
    Fetch: fetch_answers(),
    FetchSnapshot: snapshot_answers(),
    AddRaftVoter: changes,
    RemoveRaftVoter: changes,
    UpdateRaftVoter: changes,
}
CASES = [(kind, version) for kind in REQUESTS for version in range(ASKING[kind].first, ASKING[kind].last + 1)]
by_version = pytest.mark.parametrize(
    ("kind", "version"), CASES, ids=lambda each: each.__name__ if isinstance(each, type) else f"v{each}"
)


def said(request: Any, version: int) -> Any:
    """What is left of a request in that version."""
    match request:
        case Vote() if version == 0:
            return request._replace(candidate=VoterKey(request.candidate.id), voter=None)
        case BeginQuorumEpoch() if version == 0:
            return request._replace(endpoints=(), voter=None)
        case EndQuorumEpoch() if version == 0:
            return request._replace(
                successors=tuple(VoterKey(key.id) for key in request.successors), endpoints=()
            )
        case Fetch() if version < 18:
            replica = request.replica if version == 17 else VoterKey(request.replica.id)
            return request._replace(replica=replica, high_watermark=raft.UNSUPPORTED_HIGH_WATERMARK)
        case FetchSnapshot() if version == 0:
            return request._replace(replica=VoterKey(request.replica.id))
    return request


def answered(kind: type, response: Any, version: int) -> Any:
    """What is left of a response in that version."""
    if kind in (AddRaftVoter, RemoveRaftVoter):
        return response._replace(known=NOTHING_KNOWN)
    if kind is UpdateRaftVoter:
        return response._replace(message="")
    if version < {Fetch: 17, Vote: 1, BeginQuorumEpoch: 1, EndQuorumEpoch: 1, FetchSnapshot: 1}[kind]:
        return response._replace(known=response.known._replace(endpoints=()))
    return response


def through_bytes(message: Message, version: int) -> Any:
    return decode(type(message), version, encode(message, version))


def is_sayable(request: Any, version: int) -> bool:
    if isinstance(request, Vote) and request.pre_vote:
        return version >= 2
    return not (isinstance(request, AddRaftVoter) and not request.ack_when_committed and version == 0)


@by_version
@given(st.data())
def test_requests_keep_what_the_version_can_say(kind: type, version: int, data: st.DataObject) -> None:
    request = data.draw(REQUESTS[kind])
    if not is_sayable(request, version):
        with pytest.raises(UnsupportedVersion):
            request_to_wire(request, CLUSTER, version)
        return
    message = through_bytes(request_to_wire(request, CLUSTER, version), version)
    assert type(message) is ASKING[kind].request
    assert message.cluster_id == CLUSTER
    assert refusal(message, CLUSTER, LEADER, Asked(version, LISTENER)) is None
    assert request_from_wire(message, LISTENER) == said(request, version)


@by_version
@given(st.data())
def test_responses_keep_what_the_version_can_say(kind: type, version: int, data: st.DataObject) -> None:
    request = data.draw(REQUESTS[kind])
    response = data.draw(RESPONSES[kind])
    asked = ASKING[kind].request()
    message = through_bytes(response_to_wire(asked, response, Asked(version, LISTENER)), version)
    assert type(message) is ASKING[kind].response
    assert answer_from_wire(5, request, message, LISTENER) == raft.Answered(
        5, answered(kind, response, version)
    )


def test_every_request_of_the_core_is_mapped() -> None:
    assert set(ASKING) == {*REQUESTS, ApiVersions} == set(raft.Request.__args__)
    assert set(ANSWERING) == {ASKING[kind].request for kind in REQUESTS}


def test_fetch_has_no_version_without_topic_ids() -> None:
    with pytest.raises(UnsupportedVersion):
        request_to_wire(Fetch(1, VoterKey(1), 0, 0), CLUSTER, 12)


# --- addresses


def test_listeners_are_told_in_any_order_and_spelling() -> None:
    told = (Endpoint("z", "h", 1), Endpoint("controller", "h", 2), Endpoint("a", "h", 3))
    message = through_bytes(request_to_wire(BeginQuorumEpoch(1, 2, told), CLUSTER, 1), 1)
    found: Any = request_from_wire(message, LISTENER)
    assert found.endpoints == (Endpoint(LISTENER, "h", 2), Endpoint("A", "h", 3), Endpoint("Z", "h", 1))


def test_node_without_the_controller_listener_cannot_be_reached() -> None:
    request = AddRaftVoter(VoterKey(4, UUID(int=9)), (Endpoint("OTHER", "h", 1),))
    found: Any = request_from_wire(request_to_wire(request, CLUSTER, 1), LISTENER)
    assert found.endpoints == ()


def test_leader_is_told_by_its_address_on_the_asked_listener() -> None:
    known = Known(7, 3, (Endpoint("SECOND", "two", 2), Endpoint(LISTENER, "one", 1)))
    response: Any = response_to_wire(VoteRequest(), raft.VoteResponse(0, known), Asked(2, "SECOND"))
    assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [(3, "two", 2)]
    elsewhere: Any = response_to_wire(VoteRequest(), raft.VoteResponse(0, known), Asked(2, "THIRD"))
    assert elsewhere.node_endpoints == []


# --- what is refused

INCONSISTENT_CLUSTER_ID = wire_error("INCONSISTENT_CLUSTER_ID").code
SAMPLES: list[Any] = [
    Vote(7, VoterKey(1), 6, 10, True, VoterKey(2)),
    BeginQuorumEpoch(7, 3),
    EndQuorumEpoch(7, 3),
    Fetch(7, VoterKey(1), 10, 6),
    FetchSnapshot(7, VoterKey(1), SnapshotId(10, 6), 0),
    AddRaftVoter(VoterKey(4, UUID(int=9)), LEADER.endpoints),
    RemoveRaftVoter(VoterKey(4, UUID(int=9))),
    UpdateRaftVoter(7, VoterInfo(VoterKey(4, UUID(int=9)))),
]
samples = pytest.mark.parametrize("request_of", SAMPLES, ids=lambda each: type(each).__name__)
of_partition = pytest.mark.parametrize("request_of", SAMPLES[:5], ids=lambda each: type(each).__name__)


def refused(message: Message, version: int) -> Any:
    answer = refusal(message, CLUSTER, LEADER, Asked(version, LISTENER))
    return None if answer is None else through_bytes(answer, version)


@samples
def test_another_cluster_is_refused(request_of: Any) -> None:
    version = ASKING[type(request_of)].last
    answer = refused(request_to_wire(request_of, "another", version), version)
    assert answer.error_code == INCONSISTENT_CLUSTER_ID
    assert not getattr(answer, "topics", ())
    if isinstance(request_of, UpdateRaftVoter):
        leader = answer.current_leader
        assert (leader.leader_id, leader.leader_epoch) == (3, 7)
        assert (leader.host, leader.port) == ("three.example", 9093)


@samples
def test_request_without_a_cluster_is_taken(request_of: Any) -> None:
    version = ASKING[type(request_of)].last
    message: Any = request_to_wire(request_of, CLUSTER, version)
    message.cluster_id = None
    assert refused(message, version) is None


@of_partition
@pytest.mark.parametrize("damage", ["no topic", "two topics", "no partition", "two partitions"])
def test_not_exactly_one_partition_is_an_invalid_request(request_of: Any, damage: str) -> None:
    version = ASKING[type(request_of)].last
    message: Any = request_to_wire(request_of, CLUSTER, version)
    count, _, what = damage.partition(" ")
    times = {"no": 0, "two": 2}[count]
    if what.startswith("topic"):
        message.topics = message.topics * times
    else:
        message.topics[0].partitions = message.topics[0].partitions * times
    answer = refused(message, version)
    assert answer.error_code == raft.INVALID_REQUEST
    assert list(getattr(answer, "topics", getattr(answer, "responses", ()))) == []


@of_partition
@pytest.mark.parametrize("other", ["topic", "partition"])
def test_another_partition_is_refused(request_of: Any, other: str) -> None:
    version = ASKING[type(request_of)].last
    message: Any = request_to_wire(request_of, CLUSTER, version)
    topic = message.topics[0]
    if other == "partition":
        name = next(each for each in ("partition_index", "partition") if hasattr(topic.partitions[0], each))
        setattr(topic.partitions[0], name, 1)
    elif isinstance(request_of, Fetch):
        topic.topic_id = bytes(16)
    else:
        setattr(topic, "name" if isinstance(request_of, FetchSnapshot) else "topic_name", "other")
    answer = refused(message, version)
    if isinstance(request_of, FetchSnapshot):
        assert answer.error_code == 0
        assert answer.topics[0].partitions[0].error_code == wire_error("UNKNOWN_TOPIC_OR_PARTITION").code
        assert answer.node_endpoints[0].node_id == 3
    else:
        assert answer.error_code == raft.INVALID_REQUEST


@pytest.mark.parametrize(
    "wrong",
    [
        {"fetch_offset": -1},
        {"last_fetched_epoch": -1},
        {"last_fetched_epoch": 8},
        {"max_wait_ms": -1},
    ],
    ids=str,
)
def test_impossible_fetch_is_an_invalid_request_of_the_partition(wrong: dict[str, int]) -> None:
    message: Any = request_to_wire(Fetch(7, VoterKey(1), 10, 6), CLUSTER, 18)
    for name, value in wrong.items():
        setattr(message if name == "max_wait_ms" else message.topics[0].partitions[0], name, value)
    answer = refused(message, 18)
    assert answer.error_code == 0
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == raft.INVALID_REQUEST
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3, 7)


def test_fetch_by_name_is_an_invalid_request() -> None:
    partition = FetchPartition(
        partition=0, current_leader_epoch=7, fetch_offset=0, last_fetched_epoch=0, partition_max_bytes=0
    )
    topic = FetchTopic(topic="__cluster_metadata", partitions=[partition])
    message = FetchRequest(
        cluster_id=CLUSTER, max_wait_ms=0, min_bytes=0, topics=[topic], forgotten_topics_data=[]
    )
    assert refused(through_bytes(message, 12), 12).error_code == raft.INVALID_REQUEST


@pytest.mark.parametrize("request_of", SAMPLES[1:3], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("epoch", [6, 7])
def test_epoch_without_a_leader_is_refused_unless_it_is_over(request_of: Any, epoch: int) -> None:
    message = request_to_wire(request_of._replace(leader_id=NO_NODE, epoch=epoch), CLUSTER, 1)
    answer = refused(message, 1)
    if epoch < LEADER.epoch:
        assert answer is None  # the core says that it is fenced
    else:
        assert answer.error_code == 0
        assert answer.topics[0].partitions[0].error_code == raft.INVALID_REQUEST


# --- answers that tell nothing


@pytest.mark.parametrize(("error", "unsupported"), [(35, True), (104, False), (8, False), (-1, False)])
def test_error_on_top_is_a_failed_request(error: int, unsupported: bool) -> None:
    response = WireVoteResponse(error_code=error, topics=[])
    assert answer_from_wire(5, SAMPLES[0], response, LISTENER) == raft.Failed(5, unsupported)


@of_partition
def test_answer_about_another_partition_is_a_failed_request(request_of: Any) -> None:
    response: Any = ASKING[type(request_of)].response(error_code=0, throttle_time_ms=0)
    assert answer_from_wire(5, request_of, response, LISTENER) == raft.Failed(5)


def test_server_error_to_a_snapshot_fetch_makes_the_core_begin_again() -> None:
    response = WireFetchSnapshotResponse(throttle_time_ms=0, error_code=-1, topics=[])
    answer = answer_from_wire(5, SAMPLES[4], response, LISTENER)
    assert answer == raft.Answered(5, raft.FetchSnapshotResponse(-1, Known(7), SnapshotId(10, 6)))


@pytest.mark.parametrize(("end_offset", "epoch"), [(10, -1), (-1, 6)])
def test_half_a_snapshot_id_is_a_failed_request(end_offset: int, epoch: int) -> None:
    response = raft.FetchResponse(0, LEADER, snapshot=SnapshotId(end_offset, epoch))
    message = response_to_wire(FetchRequest(), response, Asked(18, LISTENER))
    assert answer_from_wire(5, SAMPLES[3], message, LISTENER) == raft.Failed(5)


def test_fetch_answer_without_leader_knows_nothing() -> None:
    message: Any = response_to_wire(FetchRequest(), raft.FetchResponse(0, LEADER), Asked(18, LISTENER))
    message.responses[0].partitions[0].current_leader = None
    answer: Any = answer_from_wire(5, SAMPLES[3], message, LISTENER)
    assert answer.response.known == NOTHING_KNOWN


# --- ApiVersions


def test_features_of_a_voter_to_be() -> None:
    message: Any = request_to_wire(ApiVersions(), CLUSTER, 4)
    assert through_bytes(message, 4) == message
    response = ASKING[ApiVersions].response(error_code=0, api_keys=[])
    assert answer_from_wire(5, ApiVersions(), response, LISTENER) == raft.Answered(
        5, raft.ApiVersionsResponse(0, 0, 0)
    )
    feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
    response.supported_features = [feature]
    assert answer_from_wire(5, ApiVersions(), response, LISTENER) == raft.Answered(
        5, raft.ApiVersionsResponse(0, 0, 1)
    )


def test_records_are_put_into_the_answer() -> None:
    answer: Any = response_to_wire(FetchRequest(), raft.FetchResponse(0, LEADER), Asked(18, LISTENER))
    assert isinstance(answer, WireFetchResponse)
    told = through_bytes(with_records(answer, b"bytes"), 18)
    assert bytes(told.responses[0].partitions[0].records) == b"bytes"
