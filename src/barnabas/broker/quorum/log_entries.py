"""Batches of the metadata log as the raft core's entries: offsets, epochs, and what control records say.

The core never looks into a batch: `Entry.data` is its bytes, `Entry.control` what its control records tell of
the quorum. A leader's own control records go the other way, from values to a batch. Batches are checked here,
before anything of them is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from barnabas.broker.quorum.wire_parts import ordered
from barnabas.core.disk import Buffer
from barnabas.protocol.schema import Message
from barnabas.raft.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    Voter,
    VoterEndpoint,
    VotersRecord,
    read_control_batch,
)
from barnabas.raft.election import VoterKey
from barnabas.raft.log_index import Control, Entry, KRaftVersion, LeaderChange
from barnabas.raft.voters import Endpoint, VoterInfo, VoterSet
from barnabas.records import kernel
from barnabas.records.batch import HEADER_BYTES, BatchHeader


def entries_of(records: Buffer, listener: str) -> tuple[Entry, ...]:
    """The whole batches among what a leader sent, each with a view of its bytes; the last may be cut short.
    CorruptMessage where one is whole and wrong. Voters are reached at that listener."""
    view = memoryview(records)
    return tuple(_entry(view, position, header, listener) for header, position in _whole_batches(view))


def _whole_batches(view: memoryview) -> Iterator[tuple[BatchHeader, int]]:
    position, end = 0, len(view)
    while end - position >= HEADER_BYTES:
        if BatchHeader.parse(view, position).size_bytes > end - position:
            return
        header = kernel.check_batch(view, position, end)
        yield header, position
        position += header.size_bytes


def _entry(view: memoryview, position: int, header: BatchHeader, listener: str) -> Entry:
    control: tuple[Control, ...] = ()
    if header.is_control:
        messages = (message for _, message in read_control_batch(view, position, header))
        control = control_values(messages, listener)
    return Entry(
        header.base_offset,
        header.last_offset_delta + 1,
        header.leader_epoch,
        view[position : position + header.size_bytes],
        control,
    )


# --- control records


def control_values(messages: Iterable[Message], listener: str) -> tuple[Control, ...]:
    """What these tell the core; the bounds of a snapshot tell it nothing."""
    found: list[Control] = []
    for message in messages:
        if isinstance(message, LeaderChangeMessage):
            voters, granting = _keys(message.voters), _keys(message.granting_voters)
            found.append(LeaderChange(message.leader_id, voters, granting))
        elif isinstance(message, KRaftVersionRecord):
            found.append(KRaftVersion(message.k_raft_version))
        elif isinstance(message, VotersRecord):
            found.append(VoterSet(_voter_info(each, listener) for each in message.voters))
    return tuple(found)


def control_messages(values: Iterable[Control]) -> list[Message]:
    """The records that say this. A LeaderChange has version 0, without directories, whatever kraft.version
    is in force: Apache Kafka 4.3.0 writes no other, and reads every one as if it had that version."""
    return [_message(value) for value in values]


def _message(value: Control) -> Message:
    if isinstance(value, LeaderChange):
        return LeaderChangeMessage(
            version=0,
            leader_id=value.leader_id,
            voters=[_leader_change_voter(key) for key in value.voters],
            granting_voters=[_leader_change_voter(key) for key in value.granting],
        )
    if isinstance(value, KRaftVersion):
        return KRaftVersionRecord(version=0, k_raft_version=value.version)
    return VotersRecord(version=0, voters=[_voter(each) for each in value.voters])


def _leader_change_voter(key: VoterKey) -> LeaderChangeVoter:
    return LeaderChangeVoter(voter_id=key.id, voter_directory_id=key.directory_id.bytes)


def _keys(voters: Iterable[LeaderChangeVoter]) -> tuple[VoterKey, ...]:
    return tuple(VoterKey(each.voter_id, UUID(bytes=each.voter_directory_id)) for each in voters)


def _voter_info(voter: Voter, listener: str) -> VoterInfo:
    endpoints = (Endpoint(each.name, each.host, each.port) for each in voter.endpoints)
    feature = voter.k_raft_version_feature
    return VoterInfo(
        VoterKey(voter.voter_id, UUID(bytes=voter.voter_directory_id)),
        ordered(endpoints, listener),
        feature.min_supported_version,
        feature.max_supported_version,
    )


def _voter(info: VoterInfo) -> Voter:
    return Voter(
        voter_id=info.key.id,
        voter_directory_id=info.key.directory_id.bytes,
        endpoints=[
            VoterEndpoint(name=each.listener, host=each.host, port=each.port) for each in info.endpoints
        ],
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=info.min_kraft_version, max_supported_version=info.max_kraft_version
        ),
    )
