"""The file `quorum-state`: Kafka's own text, read and written."""

from __future__ import annotations

import pytest

from barnabas.log.checkpoints import uuid_from_text
from barnabas.raft.election import Election, VoterKey
from barnabas.raft.quorum_state import CorruptQuorumState, decode_quorum_state, encode_quorum_state

DIRECTORY = "RufAHF5qTTaowL6pl_t3rQ"
DYNAMIC = (
    '{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
VOTED = f'{{"leaderId":-1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"{DIRECTORY}","data_version":1}}'
STATIC = (
    '{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
    '"currentVoters":[{"voterId":1}],"data_version":0}'
)


@pytest.mark.parametrize(
    ("text", "election", "version"),
    [
        (DYNAMIC, Election(2, leader_id=1), 1),
        (VOTED, Election(3, voted=VoterKey(1, uuid_from_text(DIRECTORY))), 1),
        (STATIC, Election(2, leader_id=1), 0),
    ],
)
def test_kafkas_own_text_is_read_and_written(text: str, election: Election, version: int) -> None:
    assert decode_quorum_state(text.encode(), "there") == election
    assert encode_quorum_state(election, version, [1]).decode() == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        DYNAMIC.replace('"leaderEpoch":2', '"leaderEpoch":-1'),
        DYNAMIC.replace('"leaderEpoch":2', '"leaderEpoch":"2"'),
        DYNAMIC.replace('"leaderEpoch":2', '"leaderEpoch":true'),
        DYNAMIC.replace("AAAAAAAAAAAAAAAAAAAAAA", "A"),
        DYNAMIC.replace('"data_version":1', '"data_version":2'),
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(CorruptQuorumState, match="/data/quorum-state"):
        decode_quorum_state(text.encode(), "/data/quorum-state")
