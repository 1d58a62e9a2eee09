"""Moves of coordinators are counted by the states of what they coordinated."""

from __future__ import annotations

from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.sim.coordination.events import CoordinatorMoved
from barnabas.sim.history import History
from barnabas.sim.replication.reached import reached


def test_a_move_counts_once_for_each_state() -> None:
    found = reached(
        History(
            events=[
                CoordinatorMoved(1, 2, CONSUMER_OFFSETS, 0, 1, ("Stable", "Stable", "Empty")),
                CoordinatorMoved(2, 1, TRANSACTION_STATE, 0, 2, ("Ongoing",)),
                CoordinatorMoved(3, 2, TRANSACTION_STATE, 0, 3, ()),
            ]
        )
    )
    assert found == {
        "coordinators of groups moved": 1,
        "coordinators of transactions moved": 2,
        "moved with groups in Stable": 1,
        "moved with groups in Empty": 1,
        "moved with transactions in Ongoing": 1,
    }
