"""Checkers of what an election is worth: none without need, and one soon where it is needed.

A leader from which a majority of the voters keeps fetching is not replaced (that is what pre-votes are for).
Where a leader's process dies while all else is well, the next one leads within `FAILOVER_S`, and every node
that runs knows that: its death is noticed by the socket, voters that notice at the same time do not split,
and observers ask the others at once. While all is well, what is committed is known everywhere within `LAG_S`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.raft.voters import VoterSet

Say = Callable[[str, str], None]
DISTURBED, FAILOVER, LAG = "disturbed", "failover", "lag"

FAILOVER_S = 0.6
LAG_S = 0.1
CALM_US = 3_000_000  # so long without faults, and all is well again
_SETTLED_US = 5_000_000  # contact for so long: nobody asks for pre-votes from before it
_RECENT_US = 900_000


class _Contact(NamedTuple):
    epoch: int
    first_us: int
    last_us: int


class Undisturbed:
    """Knows which voters have answers from which leader, by the messages alone."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._contacts: dict[int, _Contact] = {}
        self._leaders: dict[int, int] = {}  # by epoch, while they lead

    def leads(self, node: int, epoch: int) -> None:
        self._leaders[epoch] = node

    def leads_no_more(self, node: int) -> None:
        """It resigned, or died, or follows another."""
        self._leaders = {epoch: each for epoch, each in self._leaders.items() if each != node}

    def fetched(self, node: int, epoch: int, now_us: int) -> None:
        """A node gets an answer to a fetch from the leader of an epoch."""
        before = self._contacts.get(node)
        is_same = before is not None and before.epoch == epoch and now_us - before.last_us < _RECENT_US
        first_us = before.first_us if before is not None and is_same else now_us
        self._contacts[node] = _Contact(epoch, first_us, now_us)

    def lost(self, node: int) -> None:
        """A node has started, or has reason to believe that its leader is gone."""
        self._contacts.pop(node, None)

    def stands(self, node: int, epoch: int, voters: VoterSet, now_us: int) -> None:
        """A node asks for votes in `epoch`, by the voters that it knows."""
        leader = self._leaders.get(epoch - 1)
        if leader is None or leader == node:
            return
        others = (each for each in voters.ids if each not in (node, leader))
        in_contact = [each for each in others if self._is_in(each, epoch - 1, now_us)]
        if len(in_contact) + (leader in voters.ids) >= voters.majority:
            self._say(DISTURBED, f"node {node} stands though {in_contact} fetch from {leader} all the time")

    def _is_in(self, node: int, epoch: int, now_us: int) -> bool:
        contact = self._contacts.get(node)
        return (
            contact is not None
            and contact.epoch == epoch
            and now_us - contact.last_us < _RECENT_US
            and now_us - contact.first_us > _SETTLED_US
        )
