"""A controller of Apache Kafka is asked what nodes of the quorum ask each other.

Its answers are read into the raft core's values, and what it refuses is compared with what is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.quorum.wire import ASKING, answer_from_wire, refusal, request_to_wire
from barnabas.broker.quorum.wire_parts import Asked
from barnabas.protocol.messages.describe_quorum import (
    AskedPartition,
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from barnabas.protocol.schema import Message
from barnabas.raft import messages as raft
from barnabas.raft.election import VoterKey
from barnabas.raft.log_index import EpochEnd, KRaftVersion, LeaderChange
from barnabas.raft.messages import Fetch, FetchSnapshot, Known, Vote
from barnabas.raft.snapshot import SnapshotId, read_snapshot
from barnabas.raft.voters import Endpoint, VoterInfo, VoterSet
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient, wait_until

pytestmark = pytest.mark.java

LISTENER = "CONTROLLER"
TOPIC = "__cluster_metadata"
ME = VoterKey(7, UUID(int=77))
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "1"}  # one at once


class Controller:
    """A connection to the controller, and what the whole quorum looks like from it."""

    def __init__(self, kafka: ApacheKafka, client: RawClient) -> None:
        properties = (kafka.data / "meta.properties").read_text().splitlines()
        self.cluster_id = dict(line.split("=", 1) for line in properties if "=" in line)["cluster.id"]
        self.endpoint = Endpoint(LISTENER, "127.0.0.1", kafka.controller_port)
        self._client = client

    def ask(self, request: raft.Request, version: int) -> Any:
        """What the core would be told."""
        response = self.send(request_to_wire(request, self.cluster_id, version), type(request), version)
        told = answer_from_wire(1, request, response, LISTENER)
        return told.response if isinstance(told, raft.Answered) else told

    def send(self, message: Message, kind: type, version: int) -> Message:
        return self._client.ask(message, version, ASKING[kind].response)

    def describe(self) -> Any:
        topic = AskedTopic(topic_name=TOPIC, partitions=[AskedPartition(partition_index=0)])
        answer = self._client.ask(DescribeQuorumRequest(topics=[topic]), 2, DescribeQuorumResponse)
        assert answer.error_code == 0
        return answer


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    home = tmp_path_factory.mktemp("quorum") / "kafka"
    with (
        ApacheKafka(home, standalone=True, settings=SETTINGS) as kafka,
        RawClient(kafka.controller_port) as client,
    ):
        yield Controller(kafka, client)


def test_kafka_answers_what_nodes_of_a_quorum_ask(controller: Controller) -> None:
    described = controller.describe()
    partition = described.topics[0].partitions[0]
    voter = VoterKey(1, UUID(bytes=partition.current_voters[0].replica_directory_id))
    epoch = partition.leader_epoch
    known = Known(epoch, 1, (controller.endpoint,))
    assert [(each.node_id, each.listeners[0].port) for each in described.nodes] == [
        (1, controller.endpoint.port)
    ]

    # a leader grants no pre-vote, whatever the log of the one who asks
    pre_vote = Vote(epoch, ME, epoch, 1 << 40, True, voter)
    assert controller.ask(pre_vote, 2) == raft.VoteResponse(0, known)
    not_voter = pre_vote._replace(voter=VoterKey(1, UUID(int=1)))
    assert controller.ask(not_voter, 2) == raft.VoteResponse(raft.INVALID_VOTER_KEY, known)
    late = Vote(epoch - 1, ME, 0, 0, True, voter)
    assert controller.ask(late, 2) == raft.VoteResponse(raft.FENCED_LEADER_EPOCH, known)
    of_epoch_0 = Vote(0, ME, 0, 0, False, None)
    unaddressed = known._replace(endpoints=())
    assert controller.ask(of_epoch_0, 0) == raft.VoteResponse(raft.INVALID_REQUEST, unaddressed)

    _fetches(controller, known, voter)
    _snapshots(controller, known, voter)

    observers = controller.describe().topics[0].partitions[0].observers
    assert [(each.replica_id, UUID(bytes=each.replica_directory_id)) for each in observers] == [ME]


def _fetches(controller: Controller, known: Known, voter: VoterKey) -> None:
    """From the second record on: a fetch from 0 is told to load a snapshot."""
    epoch = known.epoch
    answer = controller.ask(Fetch(epoch, ME, 1, epoch, max_wait_ms=0), 18)
    assert (answer.error, answer.known, answer.log_start_offset) == (0, known, 0)
    assert answer.high_watermark > 0
    assert (answer.diverging, answer.snapshot) == (None, None)
    first = answer.entries[0]
    assert (first.base_offset, first.epoch) == (0, epoch)
    assert first.control == (
        LeaderChange(1, (VoterKey(1),), (VoterKey(1),)),
        KRaftVersion(1),
        VoterSet([VoterInfo(voter, (controller.endpoint,), 0, 1)]),
    )
    offsets = [each.base_offset for each in answer.entries]
    assert offsets == [0, *(each.end_offset for each in answer.entries[:-1])]

    beyond = controller.ask(Fetch(epoch, ME, 1 << 40, epoch, max_wait_ms=0), 18)
    assert isinstance(beyond.diverging, EpochEnd)
    assert beyond.diverging.epoch == epoch
    assert beyond.diverging.end_offset >= answer.entries[-1].end_offset
    fenced = controller.ask(Fetch(epoch - 1, ME, 0, 0), 17)
    assert (fenced.error, fenced.known) == (raft.FENCED_LEADER_EPOCH, known)
    ahead = controller.ask(Fetch(epoch + 1, ME, 0, 0), 13)
    assert (ahead.error, ahead.known) == (raft.UNKNOWN_LEADER_EPOCH, known._replace(endpoints=()))


def _snapshots(controller: Controller, known: Known, voter: VoterKey) -> None:
    from_start = Fetch(known.epoch, ME, 0, 0, max_wait_ms=0)
    wait_until(lambda: controller.ask(from_start, 18).snapshot is not None, "a snapshot is there")
    snapshot = controller.ask(from_start, 18).snapshot
    assert isinstance(snapshot, SnapshotId)
    data, size_bytes = b"", 1
    while len(data) < size_bytes:
        piece = controller.ask(FetchSnapshot(known.epoch, ME, snapshot, len(data), 700), 1)
        assert (piece.error, piece.known, piece.snapshot) == (0, known, snapshot)
        assert piece.position == len(data)
        assert 0 < piece.data_bytes <= 700
        data, size_bytes = data + bytes(piece.data), piece.size_bytes
    assert len(data) == size_bytes
    assert read_snapshot(data, "what was fetched").values
    unaddressed = controller.ask(FetchSnapshot(known.epoch, ME, snapshot, 0), 0)
    assert unaddressed.known == known._replace(endpoints=())
    # errors in the partition are what Kafka 4.3.0 cannot encode: the core begins again
    gone = controller.ask(FetchSnapshot(known.epoch, ME, SnapshotId(1, 1), 0), 1)
    assert gone == raft.FetchSnapshotResponse(-1, Known(known.epoch), SnapshotId(1, 1))


def test_kafka_refuses_the_same(controller: Controller) -> None:
    described = controller.describe().topics[0].partitions[0]
    known = Known(described.leader_epoch, described.leader_id, (controller.endpoint,))
    for kind, version, message in _refused(controller, known.epoch):
        ours = refusal(message, controller.cluster_id, known, Asked(version, LISTENER))
        theirs: Any = controller.send(message, kind, version)
        if kind is Fetch and theirs.responses:  # beside an error Kafka tells where its log begins
            theirs.responses[0].partitions[0].log_start_offset = -1
        assert ours == theirs, (kind, version, message)


def _refused(controller: Controller, epoch: int) -> Iterator[tuple[type, int, Any]]:
    """Requests for another cluster or another partition; not those by which Kafka 4.3.0 ends its process."""
    requests: list[Any] = [
        Vote(epoch, ME, 0, 0),
        raft.BeginQuorumEpoch(epoch, 7),
        raft.EndQuorumEpoch(epoch, 7),
        Fetch(epoch, ME, 0, 0),
        FetchSnapshot(epoch, ME, SnapshotId(1, 1), 0),
        raft.AddRaftVoter(ME, (controller.endpoint,)),
        raft.RemoveRaftVoter(ME),
        raft.UpdateRaftVoter(epoch, VoterInfo(ME, (controller.endpoint,))),
    ]
    for request in requests:
        for version in range(ASKING[type(request)].first, ASKING[type(request)].last + 1):
            yield type(request), version, request_to_wire(request, "another", version)
    for request in requests[:4]:
        version = ASKING[type(request)].last
        for count in (0, 2):
            message: Any = request_to_wire(request, controller.cluster_id, version)
            message.topics = message.topics * count
            yield type(request), version, message
        partition = message.topics[0].partitions[0]
        setattr(partition, "partition" if isinstance(request, Fetch) else "partition_index", 1)
        yield type(request), version, message
    for request in requests[1:3]:
        yield type(request), 1, request_to_wire(request._replace(leader_id=-1), controller.cluster_id, 1)
    for wrong in ({"offset": -1}, {"last_epoch": -1}, {"last_epoch": epoch + 1}, {"max_wait_ms": -1}):
        yield Fetch, 18, request_to_wire(requests[3]._replace(**wrong), controller.cluster_id, 18)
