"""The file `quorum-state`, which has a node's epoch and vote: JSON, as Kafka writes it.

Version 1 is for quorums whose voters are in the log (kraft.version 1), version 0 for older ones, whose voters
are in the settings. This module only encodes and decodes bytes; the driver replaces the file as a whole,
durably, before anything depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from barnabas.core.errors import StorageError
from barnabas.log.checkpoints import uuid_from_text, uuid_to_text
from barnabas.raft.election import NO_DIRECTORY, NO_NODE, Election, VoterKey

QUORUM_STATE = "quorum-state"


class CorruptQuorumState(StorageError):
    """A malformed `quorum-state` file: this node's vote is unknown."""


def encode_quorum_state(election: Election, data_version: int = 1, voters: Iterable[int] = ()) -> bytes:
    """The contents of the file; `voters` are written in version 0 only."""
    voted = election.voted or VoterKey(NO_NODE)
    fields: dict[str, Any] = {
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": voted.id,
    }
    if data_version == 0:
        fields = {"clusterId": "", **fields, "appliedOffset": 0}
        fields["currentVoters"] = [{"voterId": voter} for voter in voters]
    else:
        fields["votedDirectoryId"] = uuid_to_text(voted.directory_id)
    return json.dumps({**fields, "data_version": data_version}, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes, where: str) -> Election:
    """The election in the bytes of the file at `where`."""
    try:
        fields = json.loads(data)
        version, epoch, leader_id, voted_id = (
            _whole(fields[name], low)
            for name, low in (("data_version", 0), ("leaderEpoch", 0), ("leaderId", -1), ("votedId", -1))
        )
        directory_id = NO_DIRECTORY if version == 0 else uuid_from_text(fields["votedDirectoryId"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptQuorumState(f"{where} is corrupt ({error!r}); restore it from a copy") from error
    if version > 1:
        raise CorruptQuorumState(f"{where} is of version {version}, which is not known, only 0 and 1")
    return Election(epoch, leader_id, None if voted_id == NO_NODE else VoterKey(voted_id, directory_id))


def _whole(value: object, low: int) -> int:
    if type(value) is not int or value < low:
        raise ValueError(f"{value!r} is not a whole number from {low} on")
    return value
