"""Requests between nodes of the metadata quorum: votes, fetches of its log, snapshots, changes of voters.

All of them go to the raft core. Its response waits for what it depends on: a vote on the disk, a majority.
The records of a Fetch and the bytes of a FetchSnapshot are read here, once the core has named them. A leader
that loses its epoch during the read answers that it is not the leader: its log may have changed under the
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.quorum import wire, wire_fetches
from barnabas.broker.quorum.wire_parts import Asked
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.schema import Message
from barnabas.raft import messages as raft

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(request: Message, context: RequestContext, services: ControllerServices) -> Message:
    asked = Asked(context.api_version, context.listener)
    driver = services.quorum
    refused = wire.refusal(request, services.cluster_id, driver.core.known(), asked)
    if refused is not None:
        return refused
    answer = await driver.received(wire.request_from_wire(request, context.listener))
    if isinstance(answer, raft.FetchResponse):
        return await _with_records(answer, asked, services)
    if isinstance(answer, raft.FetchSnapshotResponse) and answer.error == raft.NONE:
        data = await driver.fetched_snapshot(answer)
        if data is None:
            answer = answer._replace(error=raft.SNAPSHOT_NOT_FOUND)
        else:
            answer = answer._replace(data=data, data_bytes=len(data))
    return wire.response_to_wire(request, answer, asked)


async def _with_records(
    answer: raft.FetchResponse, asked: Asked, services: ControllerServices
) -> FetchResponse:
    driver = services.quorum
    records = await driver.fetched(answer)
    if records is None:
        answer = raft.FetchResponse(raft.NOT_LEADER, driver.core.known())
    response = wire_fetches.fetch_response(answer, asked)
    return wire_fetches.with_records(response, records) if records else response
