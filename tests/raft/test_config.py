"""Which of a node's listeners is used: the one with the name of the controller listener, in any order."""

from __future__ import annotations

import pytest

from barnabas.raft.config import RaftConfig
from barnabas.raft.election import Election, VoterKey
from barnabas.raft.messages import (
    AddRaftVoter,
    ApiVersions,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchResponse,
    Known,
    Vote,
)
from barnabas.raft.voters import Endpoint, Endpoints, VoterInfo, VoterSet
from tests.raft.nodes import A, B, C, D, Driven, node

OTHER = "INTERNAL"


def endpoints(node_id: int) -> Endpoints:
    """The controller listener comes second."""
    host = f"node-{node_id}"
    return (Endpoint(OTHER, host, 9999), controller(node_id))


def controller(node_id: int) -> Endpoint:
    return Endpoint("CONTROLLER", f"node-{node_id}", 9093)


def two_listeners(*keys: VoterKey) -> Driven:
    return node(
        keys[0],
        voter_set=VoterSet(VoterInfo(key, endpoints(key.id)) for key in keys),
        endpoints=endpoints(keys[0].id),
        controller_listener="controller",
    )


@pytest.mark.parametrize(
    ("name", "given", "found"),
    [
        ("CONTROLLER", endpoints(1), controller(1)),
        ("controller", endpoints(1), controller(1)),
        ("CONTROLLER", (), None),
        ("", endpoints(1), endpoints(1)[0]),
        ("ELSEWHERE", endpoints(1), endpoints(1)[0]),
    ],
)
def test_listener_is_chosen_by_its_name(name: str, given: Endpoints, found: Endpoint | None) -> None:
    config = RaftConfig(given, controller_listener=name)
    assert config.reached_at(given) == config.listener == found


def test_leader_is_found_on_its_controller_listener() -> None:
    driven = two_listeners(A, B, C)
    driven.ask(BeginQuorumEpoch(1, B.id, endpoints(B.id)))
    assert [each.endpoint for each in driven.sent if type(each.request) is Fetch] == [controller(B.id)]
    driven.answer(B.id, FetchResponse(6, Known(2, C.id, endpoints(C.id))))
    assert driven.sent[-1].endpoint == controller(C.id)
    driven.ask(EndQuorumEpoch(3, B.id, (), endpoints(B.id)))
    assert driven.raft.leader_endpoint == controller(B.id)


def test_leader_of_the_last_start_is_found_on_its_controller_listener() -> None:
    driven = node(
        A,
        voter_set=VoterSet(VoterInfo(key, endpoints(key.id)) for key in (A, B, C)),
        election=Election(1, B.id),
        controller_listener="CONTROLLER",
    )
    driven.tick(0)
    assert driven.sent[-1].endpoint == controller(B.id)


def test_voters_are_asked_and_told_on_their_controller_listeners() -> None:
    driven = two_listeners(A, B, C)
    driven.lead()
    kinds = {type(each.request) for each in driven.sent}
    assert {Vote, BeginQuorumEpoch} <= kinds
    assert {each.endpoint for each in driven.sent} == {controller(B.id), controller(C.id)}


def test_node_that_looks_for_a_leader_asks_on_the_controller_listener() -> None:
    driven = node(
        D,
        voter_set=VoterSet([VoterInfo(A, endpoints(A.id))]),
        controller_listener="CONTROLLER",
        endpoints=(),
    )
    driven.tick(0)
    assert [(each.node_id, each.endpoint) for each in driven.sent] == [(A.id, controller(A.id))]


def test_new_voter_is_asked_on_its_controller_listener() -> None:
    driven = two_listeners(A)
    driven.lead()
    driven.fetch(D, driven.raft.end_offset)
    assert driven.ask(AddRaftVoter(D, endpoints(D.id))) is None
    assert [(each.endpoint, each.request) for each in driven.sent] == [(controller(D.id), ApiVersions())]


def test_order_of_listeners_is_no_change_of_a_voter() -> None:
    one, other = VoterInfo(A, endpoints(1)), VoterInfo(A, tuple(reversed(endpoints(1))))
    assert one.is_told_by(other)
    assert not one.is_told_by(other._replace(endpoints=(controller(1),)))
    assert not one.is_told_by(other._replace(max_kraft_version=0))
    assert not one.is_told_by(other._replace(key=B))
