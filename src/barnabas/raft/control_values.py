"""Conversion of the quorum's own records between the core's values and Kafka's messages, one to one."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.schema import Message
from barnabas.raft.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from barnabas.raft.election import VoterKey
from barnabas.raft.log_index import Control, KRaftVersion, LeaderChange
from barnabas.raft.voters import Endpoint, VoterInfo, VoterSet


def to_message(control: Control) -> Message:
    """The record of a value. The voters in a LeaderChange are written without directories, as in Kafka."""
    if isinstance(control, VoterSet):
        return VotersRecord(voters=[_voter(each) for each in control.voters])
    if isinstance(control, KRaftVersion):
        return KRaftVersionRecord(k_raft_version=control.version)
    return LeaderChangeMessage(
        leader_id=control.leader_id, voters=_named(control.voters), granting_voters=_named(control.granting)
    )


def to_control(message: Message) -> Control | None:
    """The value of a record; None if the core does not need it."""
    if isinstance(message, VotersRecord):
        return VoterSet(map(_info, message.voters))
    if isinstance(message, KRaftVersionRecord):
        return KRaftVersion(message.k_raft_version)
    if isinstance(message, LeaderChangeMessage):
        return LeaderChange(message.leader_id, _keys(message.voters), _keys(message.granting_voters))
    return None


def _voter(info: VoterInfo) -> Voter:
    return Voter(
        voter_id=info.key.id,
        voter_directory_id=info.key.directory_id.bytes,
        endpoints=[VoterEndpoint(name=name, host=host, port=port) for name, host, port in info.endpoints],
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=info.min_kraft_version, max_supported_version=info.max_kraft_version
        ),
    )


def _info(voter: Voter) -> VoterInfo:
    feature = voter.k_raft_version_feature
    return VoterInfo(
        VoterKey(voter.voter_id, UUID(bytes=bytes(voter.voter_directory_id))),
        tuple(Endpoint(each.name, each.host, each.port) for each in voter.endpoints),
        feature.min_supported_version,
        feature.max_supported_version,
    )


def _named(keys: tuple[VoterKey, ...]) -> list[LeaderChangeVoter]:
    return [LeaderChangeVoter(voter_id=key.id) for key in keys]


def _keys(voters: list[LeaderChangeVoter]) -> tuple[VoterKey, ...]:
    return tuple(VoterKey(each.voter_id, UUID(bytes=bytes(each.voter_directory_id))) for each in voters)
