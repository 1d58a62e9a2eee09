"""The raft core's values as Kafka's messages, and back: pure functions, one pair for each API of the quorum.

A node that asks: `request_to_wire` before it sends, `answer_from_wire` with what comes back. A node that is
asked: `refusal` first (another cluster, another partition), then `request_from_wire`, the core, and
`response_to_wire`. The cluster id, the topic and the listener's name are known here and not to the core.

What a version cannot say, and what is assumed in its place:

- Vote: directory ids, the voter that is asked and the leader's address from 1 on; a pre-vote from 2 on. Below
  that a pre-vote cannot be sent at all (`UnsupportedVersion`): the core stands at once then.
- BeginQuorumEpoch, EndQuorumEpoch: version 0 has ids only, no directories, no addresses.
- Fetch: by topic id, that is from 13 on; Apache Kafka 4.3.0 refuses older ones. The leader's address and the
  replica's directory from 17 on, its high watermark from 18 on: before that a fetch is not answered because
  the high watermark has moved.
- FetchSnapshot: the replica's directory and the leader's address from 1 on.
- AddRaftVoter: version 0 is answered when the change is committed, and cannot ask for less.
- The answers to AddRaftVoter and RemoveRaftVoter do not tell the leader (`NOTHING_KNOWN`), that to
  UpdateRaftVoter does, but has no text.
- ApiVersions: below 4 a feature whose minimum is 0 is left out, so kraft.version counts as 0 to 0.

An address in an answer is that of the listener on which the question came. Where the leader has no such
listener, or the version has no field for it, the one who asked looks the leader up among the voters.

Errors of the quorum stand in the partition; above it stands only that a request was not for this quorum, or
not understood. The latter tells nothing of epochs: to the core the request has failed. One exception: Apache
Kafka 4.3.0 cannot encode the answer to a FetchSnapshot with an error in the partition (its records are null),
and sends UNKNOWN_SERVER_ERROR instead. That is passed on, so that the core begins again with a Fetch.
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


# --- a node that asks


def request_to_wire(request: raft.Request, cluster_id: str, version: int) -> Message:
    """The message to send; UnsupportedVersion where that version cannot say it."""
    return ASKING[type(request)].to_request(request, cluster_id, version)


def answer_from_wire(
    correlation: int, request: raft.Request, response: Message, listener: str
) -> raft.Answered | raft.Failed:
    """What the core is told of the response; `listener` is the one at which this node reaches others.
    CorruptMessage or InvalidRecord where the records of a Fetch are damaged."""
    try:
        answer = ASKING[type(request)].from_response(response, request, listener)
    except Unanswered as error:
        return raft.Failed(correlation, unsupported=error.error == raft.UNSUPPORTED_VERSION)
    return raft.Answered(correlation, answer)


# --- a node that is asked


def refusal(request: Message, cluster_id: str, known: raft.Known, asked: Asked) -> Message | None:
    """The answer to a request that is not for this quorum, or that the core could not be asked; else None.
    `known` is what the core knows of the leader."""
    return ANSWERING[type(request)].refuse(request, cluster_id, known, asked)


def request_from_wire(request: Message, listener: str) -> raft.Request:
    """The core's request; only for what was not refused."""
    return ANSWERING[type(request)].from_request(request, listener)


def response_to_wire(request: Message, response: raft.Response, asked: Asked) -> Message:
    """The message that answers `request`; records of a Fetch are put in by `wire_fetches.with_records`."""
    return ANSWERING[type(request)].to_response(response, asked)
