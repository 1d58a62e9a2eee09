"""A controller of Apache Kafka asks a voter that is scripted: what it asks are the raft core's requests.

Kafka is elected, is not fetched from, resigns, and follows; each request of it is read into the core's value,
and that value makes the very bytes that Kafka sent.
"""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.quorum.wire import refusal, request_from_wire, request_to_wire, response_to_wire
from barnabas.broker.quorum.wire_parts import Asked
from barnabas.protocol.codecs import encode
from barnabas.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from barnabas.protocol.messages.vote import VoteRequest
from barnabas.protocol.schema import Message
from barnabas.raft import messages as raft
from barnabas.raft.election import VoterKey
from barnabas.raft.messages import Known
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.voters import Endpoint, VoterInfo
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.scripted_voter import Question, ScriptedVoter

pytestmark = pytest.mark.java

LISTENER = "CONTROLLER"
KAFKA, SCRIPTED = 1, 2
SNAPSHOT = SnapshotId(9, 1)
PAUSE_S = 0.02  # Kafka asks again at once, as often as it is answered


class Script:
    """Grants every vote, does not fetch, leads the epoch behind the one that Kafka has given up, and has
    nothing but a snapshot there."""

    def __init__(self) -> None:
        self.endpoints: tuple[Endpoint, ...] = ()
        self.own_epochs: set[int] = set()

    def answer(self, question: Question) -> Message | None:
        asked: Any = request_from_wire(question.message, LISTENER)
        if isinstance(asked, raft.UpdateRaftVoter):
            answer: raft.Response = raft.VoterChangeResponse(raft.NONE, self._own(asked.epoch))
        else:
            answer = getattr(self, f"_{type(asked).__name__.lower()}")(asked)
        return response_to_wire(question.message, answer, Asked(question.version, LISTENER))

    def _own(self, epoch: int) -> Known:
        return Known(epoch, SCRIPTED, self.endpoints)

    def _vote(self, asked: raft.Vote) -> raft.Response:
        return raft.VoteResponse(raft.NONE, Known(asked.epoch), granted=True)

    def _beginquorumepoch(self, asked: raft.BeginQuorumEpoch) -> raft.Response:
        return raft.EpochResponse(raft.NONE, Known(asked.epoch, KAFKA))

    def _endquorumepoch(self, asked: raft.EndQuorumEpoch) -> raft.Response:
        self.own_epochs.add(asked.epoch + 1)
        return raft.EpochResponse(raft.FENCED_LEADER_EPOCH, self._own(asked.epoch + 1))

    def _fetch(self, asked: raft.Fetch) -> raft.Response:
        if asked.epoch not in self.own_epochs:  # a node without a leader asks every voter for one
            return raft.FetchResponse(raft.NOT_LEADER, Known(asked.epoch))
        return raft.FetchResponse(raft.NONE, self._own(asked.epoch), 0, 9, snapshot=SNAPSHOT)

    def _fetchsnapshot(self, asked: raft.FetchSnapshot) -> raft.Response:
        time.sleep(PAUSE_S)
        return raft.FetchSnapshotResponse(raft.SNAPSHOT_NOT_FOUND, self._own(asked.epoch), asked.snapshot)


def test_requests_of_kafka_are_those_of_the_core(tmp_path: Path) -> None:
    script = Script()
    with ScriptedVoter(script.answer) as voter:
        script.endpoints = (Endpoint(LISTENER, "127.0.0.1", voter.port),)
        (port,) = free_ports(1)
        kafka = ApacheKafka(tmp_path / "kafka", settings=_settings(port, voter.port))
        try:
            kafka.launch()
            me = VoterKey(KAFKA, _directory_id(kafka.data / "meta.properties"))
            _check(voter, script, me, Endpoint(LISTENER, "127.0.0.1", port))
        finally:
            kafka.kill()


def _directory_id(properties: Path) -> UUID:
    lines = (line.partition("=") for line in properties.read_text().splitlines())
    (text,) = (value for name, _, value in lines if name == "directory.id")
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _settings(port: int, voter_port: int) -> dict[str, str]:
    """A controller alone; with shorter timeouts than the defaults it might never come far when starved."""
    return {
        "process.roles": "controller",
        "listeners": f"{LISTENER}://127.0.0.1:{port}",
        "controller.quorum.voters": f"{KAFKA}@127.0.0.1:{port},{SCRIPTED}@127.0.0.1:{voter_port}",
    }


def _check(voter: ScriptedVoter, script: Script, me: VoterKey, endpoint: Endpoint) -> None:
    """On a busy machine Kafka may stand and lead several times: only the first epoch is certain."""
    pre_vote = _core(voter.next_of(VoteRequest))
    assert pre_vote == raft.Vote(0, me, 0, 0, True, VoterKey(SCRIPTED))
    vote = _core(voter.next_of(VoteRequest, lambda asked: not _partition(asked).pre_vote))
    assert vote == raft.Vote(vote.epoch, me, 0, 0, False, VoterKey(SCRIPTED))
    assert vote.epoch > 0
    begin = _core(voter.next_of(BeginQuorumEpochRequest))
    assert begin == raft.BeginQuorumEpoch(begin.epoch, KAFKA, (endpoint,), VoterKey(SCRIPTED))
    end = _core(voter.next_of(EndQuorumEpochRequest))
    assert end == raft.EndQuorumEpoch(end.epoch, KAFKA, (VoterKey(SCRIPTED),))
    assert vote.epoch <= begin.epoch <= end.epoch

    fetch = _core(
        voter.next_of(FetchRequest, lambda asked: _partition(asked).current_leader_epoch in script.own_epochs)
    )
    assert (fetch.replica, fetch.high_watermark) == (me, -1)
    assert fetch.offset > 0
    assert end.epoch <= fetch.last_epoch < fetch.epoch
    assert (fetch.max_wait_ms, fetch.max_bytes) == (500, 1 << 20)
    snapshot = _core(voter.next_of(FetchSnapshotRequest))
    assert snapshot == raft.FetchSnapshot(snapshot.epoch, me, SNAPSHOT, 0, 1 << 20)
    assert snapshot.epoch in script.own_epochs
    update = _core(voter.next_of(UpdateRaftVoterRequest))
    assert update == raft.UpdateRaftVoter(update.epoch, VoterInfo(me, (endpoint,), 0, 1))
    assert update.epoch in script.own_epochs


def _partition(asked: Any) -> Any:
    return asked.topics[0].partitions[0]


def _core(question: Question) -> Any:
    """The core's request, which is accepted here, and which says all that Kafka said."""
    cluster_id = question.message.cluster_id
    asked = Asked(question.version, LISTENER)
    assert question.version == type(question.message).__versions__[1]
    assert refusal(question.message, cluster_id, Known(1), asked) is None
    value = request_from_wire(question.message, LISTENER)
    assert encode(request_to_wire(value, cluster_id, question.version), question.version) == question.data
    return value
