"""The states of a classic group, and how it gets from one to another.

    Empty       no members; it may have offsets
    Preparing   a rebalance has begun: whoever wants to be in the next generation joins
    Completing  the generation stands; its leader hands in who gets what
    Stable      everybody has a part

A command moves a group only as the table says. A record puts it into Empty or Stable, wherever it was: Stable
where the generation has members. Dead is what a group is called that does not exist.
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
