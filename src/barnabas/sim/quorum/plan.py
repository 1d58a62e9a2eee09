"""What a seed decides before anything happens: how many nodes, which of them vote, and which faults come."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.random import SeededRandom
from barnabas.sim.chance import between, happens, log_between, pick, stream

# the kinds of faults, and the mean time between two of them in seconds: the shortest and the longest drawn
FAULTS = {
    "process-crash": (2.0, 15.0),
    "leader-crash": (1.5, 8.0),
    "crash-after-election": (2.0, 15.0),
    "crash-after-vote": (2.0, 15.0),
    "crash-after-append": (1.0, 15.0),
    "power-loss": (3.0, 20.0),
    "rolling-restart": (15.0, 40.0),
    "partition": (3.0, 15.0),
    "lossy-network": (8.0, 30.0),
    "slow-network": (8.0, 30.0),
    "connection-reset": (1.0, 8.0),
    "dials-hang": (6.0, 30.0),
    "dials-refused": (6.0, 30.0),
    "pause": (3.0, 20.0),
    "clock-jump": (5.0, 30.0),
    "disk-full": (8.0, 30.0),
    "disk-error": (6.0, 30.0),
    "slow-disk": (6.0, 30.0),
    "slow-reads": (2.0, 15.0),
}
_LATER = ("slow-reads",)  # drawn apart, so that the seeds' other faults are what they were


class QuorumPlan(NamedTuple):
    """What a seed has drawn. `seconds` is how long there are faults."""

    seed: int
    seconds: float
    voters: int
    observers: int
    is_dynamic: bool
    has_auto_join: bool
    raises_kraft_version: bool
    proposals_s: float  # mean time between two
    snapshots_s: float
    changes_s: float  # mean time between two changes of voters
    fetch_entries: int  # at most so many in an answer
    drifts: tuple[float, ...]  # the rates of the nodes' clocks
    faults: dict[str, float]  # the mean time in seconds between two faults, by kind
    brokers: int = 0  # so many of the observers have no controller listener, and can be no voters
    has_other_listener: bool = False  # voters in the log have two listeners, the controller's last


def draw_plan(seed: int, seconds: float | None = None) -> QuorumPlan:
    """The plan of a seed, `seconds` long or as long as it likes."""
    random = stream(seed, "quorum")
    length_s = between(random, 20, 50)
    voters = pick(random, (1, 2, 3, 3, 3, 3, 4, 5, 5))
    is_dynamic = happens(random, 0.65)
    observers = random.below(3)
    later = stream(seed, "quorum listeners")
    return QuorumPlan(
        seed,
        length_s if seconds is None else seconds,
        voters,
        observers,
        is_dynamic,
        has_auto_join=is_dynamic and happens(random, 0.4),
        raises_kraft_version=not is_dynamic and happens(random, 0.5),
        proposals_s=log_between(random, 0.05, 5.0),
        snapshots_s=log_between(random, 1.0, 20.0),
        changes_s=log_between(random, 1.5, 10.0),
        fetch_entries=pick(random, (1, 3, 50)),
        drifts=tuple(pick(random, (1.0, 1.0, 1.0, 1.02, 0.98)) for _ in range(voters + observers)),
        faults=_and_later(later, _faults(random)),
        brokers=later.below(observers + 1),
        has_other_listener=happens(later, 0.3),
    )


def _faults(random: SeededRandom) -> dict[str, float]:
    """Few seeds have none, some have a few kinds, most have many. In some, leaders alone die: in calm, or
    again and again as soon as they have begun."""
    if happens(random, 0.1):
        return {"leader-crash": between(random, 4, 8)}
    if happens(random, 0.1):
        early = ("crash-after-append", "crash-after-election", "crash-after-vote")
        return {kind: log_between(random, 0.2, 2.0) for kind in early}
    share = pick(random, (0.0, 0.15, 0.4, 0.6, 0.8, 1.0))
    pace = pick(random, (1.0, 1.0, 2.0))
    kinds = [kind for kind in FAULTS if kind not in _LATER and happens(random, share)]
    return {kind: pace * log_between(random, *FAULTS[kind]) for kind in kinds}


def _and_later(random: SeededRandom, faults: dict[str, float]) -> dict[str, float]:
    kinds = [kind for kind in _LATER if len(faults) > 1 and happens(random, 0.5)]
    return {**faults, **{kind: log_between(random, *FAULTS[kind]) for kind in kinds}}
