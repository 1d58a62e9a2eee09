"""Raft cores driven by hand: made in any state, their Readys carried out at once, their messages kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from barnabas.core.random import SeededRandom
from barnabas.raft.config import RaftConfig
from barnabas.raft.core import Raft
from barnabas.raft.election import NO_DIRECTORY, Election, State, VoterKey
from barnabas.raft.log_index import Control, Entry, LogState
from barnabas.raft.messages import (
    AddRaftVoter,
    Answered,
    BeginQuorumEpoch,
    Event,
    Fetch,
    Known,
    Received,
    RemoveRaftVoter,
    Reply,
    Send,
    UpdateRaftVoter,
    Vote,
    VoterChangeResponse,
    VoteResponse,
)
from barnabas.raft.voters import Endpoint, VoterInfo, VoterSet

FRESH = Election()
A, B, C, D, E = (VoterKey(number, UUID(int=number)) for number in range(1, 6))


VOTER_CHANGES = (AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter)


def endpoint(node_id: int, port: int = 9093) -> Endpoint:
    return Endpoint("CONTROLLER", f"node-{node_id}", port)


def voter(key: VoterKey, port: int = 9093) -> VoterInfo:
    return VoterInfo(key, (endpoint(key.id, port),))


def voters(*keys: VoterKey) -> VoterSet:
    return VoterSet(map(voter, keys))


def static_voters(*keys: VoterKey) -> VoterSet:
    return VoterSet(voter(key._replace(directory_id=NO_DIRECTORY)) for key in keys)


class Driven:
    """A core with a driver that does everything at once. `sent` and `replies` are what it has said."""

    def __init__(self, raft: Raft) -> None:
        self.raft = raft
        self.now_ms = 0
        self.sent: list[Send] = []
        self.replies: list[Reply] = []
        self.elections: list[Election] = []
        self.written: list[Entry] = []
        self.truncated: list[int] = []
        self.installs: tuple[VoterSet, int] | None = None

    def settle(self) -> None:
        while ready := self.raft.ready():
            if ready.election is not None:
                self.elections.append(ready.election)
            for message in ready.messages:
                if isinstance(message, Send):
                    self.sent.append(message)
                else:
                    self.replies.append(message)
            if ready.truncate_to is not None:
                self.truncated.append(ready.truncate_to)
            self.written += ready.entries
            is_last = ready.chunk is not None and ready.chunk.is_last
            self.raft.advance(ready, self.now_ms, self.installs if is_last else None)

    def tick(self, now_ms: int | None = None) -> None:
        """Time passes; without an argument, to when the core wants to be told."""
        self.now_ms = max(self.now_ms, self.raft.next_deadline()) if now_ms is None else now_ms
        self.raft.tick(self.now_ms)
        self.settle()

    def step(self, event: Event) -> None:
        self.raft.step(event, self.now_ms)
        self.settle()

    def ask(self, request: Any) -> Any:
        """Let a request come; returns the answer, None where it waits."""
        token = object()
        self.step(Received(token, request))
        return next((reply.response for reply in self.replies if reply.token is token), None)

    def answer(self, node_id: int, response: Any) -> None:
        """Answer the last request that went to a node."""
        self.step(self.answer_of(node_id, response))

    def answer_of(self, node_id: int, response: Any) -> Answered:
        """That answer, which is not given yet."""
        is_change = type(response) is VoterChangeResponse
        asked = (each for each in reversed(self.sent) if each.node_id == node_id)
        found = next(each for each in asked if (type(each.request) in VOTER_CHANGES) == is_change)
        return Answered(found.correlation, response)

    def requests(self, kind: type, node_id: int | None = None) -> list[Any]:
        return [
            each.request
            for each in self.sent
            if type(each.request) is kind and node_id in (None, each.node_id)
        ]

    def known(self, epoch: int | None = None, leader_id: int = -1) -> Known:
        endpoints = (endpoint(leader_id),) if leader_id > 0 else ()
        return Known(self.raft.epoch if epoch is None else epoch, leader_id, endpoints)

    # --- into a state

    def ask_for_pre_votes(self) -> None:
        """To Prospective, as time passes."""
        while self.raft.state is not State.PROSPECTIVE:
            self.tick()

    def stand(self) -> None:
        """To Candidate, by the pre-votes of all voters."""
        self.ask_for_pre_votes()
        for node_id in self.raft.voters.ids:
            if node_id != self.raft.me.id and self.raft.state is State.PROSPECTIVE:
                self.answer(node_id, VoteResponse(0, self.known(), True))
        assert self.raft.state is State.CANDIDATE

    def lead(self) -> None:
        """To Leader, by the votes of all voters; its first record is on its disk."""
        if len(self.raft.voters) == 1:
            self.tick(0)
        else:
            self.stand()
            for node_id in self.raft.voters.ids:
                if node_id != self.raft.me.id and self.raft.state is State.CANDIDATE:
                    self.answer(node_id, VoteResponse(0, self.known(), True))
        assert self.raft.state is State.LEADER

    def follow(self, leader: VoterKey, epoch: int = 1) -> None:
        """To Follower of that leader."""
        self.ask(BeginQuorumEpoch(epoch, leader.id, (endpoint(leader.id),)))
        assert self.raft.state is State.FOLLOWER

    def fetch(self, replica: VoterKey, offset: int, last_epoch: int | None = None, **options: Any) -> Any:
        epoch = self.raft.epoch
        last = (epoch if offset else 0) if last_epoch is None else last_epoch
        return self.ask(Fetch(epoch, replica, offset, last, **options))

    def vote(self, candidate: VoterKey, epoch: int, end: tuple[int, int] = (0, 0), **options: Any) -> Any:
        """Ask for a vote with a log that ends in (epoch, offset)."""
        return self.ask(Vote(epoch, candidate, *end, **options))


def node(
    me: VoterKey = A,
    *others: VoterKey,
    voter_set: VoterSet | None = None,
    election: Election = FRESH,
    kraft_version: int = 1,
    epochs: Sequence[tuple[int, int]] = (),
    end_offset: int = 0,
    controls: Sequence[tuple[int, Control]] = (),
    seed: int = 1,
    **config: Any,
) -> Driven:
    """A node with a log of these epochs; the voters are this node and the others, unless they are given."""
    found = voters(me, *others) if voter_set is None else voter_set
    raft = Raft(
        me,
        election=election,
        log=LogState(found, kraft_version, controls, 0, end_offset, epochs),
        config=RaftConfig(**{"endpoints": (endpoint(me.id),), **config}),
        random=SeededRandom(seed),
    )
    return Driven(raft)
