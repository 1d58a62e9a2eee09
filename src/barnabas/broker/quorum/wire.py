"""Translates the raft core's values to Kafka's messages, and back: pure functions, a pair for each API.

To send a request, use `request_to_wire`, and `answer_from_wire` for the response. To answer a request, use
`refusal` first (another cluster, another partition), then `request_from_wire`, the core, and
`response_to_wire`. The cluster id, the topic and the listener's name are known here and not to the core.

What older versions cannot express, and what is assumed instead:

- Vote: directory ids, the voter that is asked and the leader's address from 1 on; a pre-vote from 2 on. Below
  that a pre-vote cannot be sent at all (`UnsupportedVersion`): the core then starts an election at once.
- BeginQuorumEpoch, EndQuorumEpoch: version 0 has ids only, no directories, no addresses.
- Fetch: by topic id, that is from 13 on; Apache Kafka 4.3.0 refuses older ones. The leader's address and the
  replica's directory from 17 on, its high watermark from 18 on: before that a waiting fetch is not answered
  when the high watermark moves.
- FetchSnapshot: the replica's directory and the leader's address from 1 on.
- AddRaftVoter: version 0 is always answered when the change is committed.
- The responses to AddRaftVoter and RemoveRaftVoter do not name the leader (`NOTHING_KNOWN`); the response to
  UpdateRaftVoter does, but has no message.
- ApiVersions: below 4 a feature whose minimum is 0 is left out, so kraft.version counts as 0 to 0.

An address in a response is that of the listener at which the request arrived. If the leader has no such
listener, or the version has no field for it, the sender looks up the leader among the voters.

Errors of the quorum are in the partition. The top-level error only says that a request was not for this
quorum, or not understood; it says nothing about epochs, so to the core the request has failed. One exception:
Apache Kafka 4.3.0 cannot encode the response to a FetchSnapshot with an error in the partition (its records
are null), and sends UNKNOWN_SERVER_ERROR instead. That is passed on, so that the core begins again with a
Fetch.
"""

from __future__ import annotations

from barnabas.broker.quorum import wire_elections, wire_fetches, wire_voters
from barnabas.broker.quorum.wire_parts import Answering, Asked, Asking, Unanswered
from barnabas.protocol.schema import Message
from barnabas.raft import messages as raft

ASKING: dict[type, Asking] = {**wire_elections.ASKING, **wire_fetches.ASKING, **wire_voters.ASKING}
ANSWERING: dict[type, Answering] = {
    **wire_elections.ANSWERING,
    **wire_fetches.ANSWERING,
    **wire_voters.ANSWERING,
}


# --- sending requests


def request_to_wire(request: raft.Request, cluster_id: str, version: int) -> Message:
    """The message to send; UnsupportedVersion if that version cannot express it."""
    return ASKING[type(request)].to_request(request, cluster_id, version)


def answer_from_wire(
    correlation: int, request: raft.Request, response: Message, listener: str
) -> raft.Answered | raft.Failed:
    """The core's value for a response; `listener` is the one at which this node reaches others.
    CorruptMessage or InvalidRecord if the records of a Fetch are damaged."""
    try:
        answer = ASKING[type(request)].from_response(response, request, listener)
    except Unanswered as error:
        return raft.Failed(correlation, unsupported=error.error == raft.UNSUPPORTED_VERSION)
    return raft.Answered(correlation, answer)


# --- answering requests


def refusal(request: Message, cluster_id: str, known: raft.Known, asked: Asked) -> Message | None:
    """The response to a request that is not for this quorum or not valid for the core; None for others.
    `known` is what the core knows of the leader."""
    return ANSWERING[type(request)].refuse(request, cluster_id, known, asked)


def request_from_wire(request: Message, listener: str) -> raft.Request:
    """The core's value for a request that was not refused."""
    return ANSWERING[type(request)].from_request(request, listener)


def response_to_wire(request: Message, response: raft.Response, asked: Asked) -> Message:
    """The response to `request`; the records of a Fetch are added by `wire_fetches.with_records`."""
    return ANSWERING[type(request)].to_response(response, asked)
