"""The states of a classic group, and the transitions between them.

    Empty       no members; it may have offsets
    Preparing   a rebalance has begun: members join the next generation
    Completing  the generation is fixed; its leader sends the assignments
    Stable      all members have an assignment

A command changes the state only according to the table. A record sets it to Empty or Stable from any state:
Stable if the generation has members. Dead is the state reported for a group that does not exist.
"""

from __future__ import annotations

from barnabas.groups.group import EMPTY

PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"

LEGAL: dict[str, tuple[str, ...]] = {
    EMPTY: (PREPARING,),
    PREPARING: (COMPLETING,),
    COMPLETING: (PREPARING,),
    STABLE: (PREPARING,),
}
