"""The states of a transactional id, and which may follow which.

            add partitions              commit                     markers are written
    Empty ----------------> Ongoing ---------------> PrepareCommit --------------------> CompleteCommit
      ^                        |  abort, timeout, init
      | init                   +-------------------> PrepareAbort ---------------------> CompleteAbort
      |                                                                                     |
      +-------------------------------------------------------------------------------------+

A complete transaction is equivalent to an empty one: the next may begin. With version 2 of transactions, one
to which nothing was added can be aborted too: its epoch must be raised all the same. Once a transaction is
prepared, only its markers can follow. Numbers and names are Kafka's; it has two more that are never written.
"""

from __future__ import annotations

EMPTY = 0
ONGOING = 1
PREPARE_COMMIT = 2
PREPARE_ABORT = 3
COMPLETE_COMMIT = 4
COMPLETE_ABORT = 5

NAMES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

NEXT: dict[int, tuple[int, ...]] = {
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT),
}

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
AT_REST = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)  # in these an id may expire
