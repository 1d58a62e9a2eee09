"""When the faults are over, groups become stable, loops work off their input, and every transaction ends.

- Some time after the last members of a group have come, each has an assignment, all of the same generation,
  and together they have every partition: whoever was there before has been given up, or replaced.
- What the loops have to work off they have worked off in time.
- In the end no transaction is open: what is committed ends where the partition ends, and can be read.
"""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.group_events import GroupSeen, GroupWanted
from barnabas.sim.history import Finished, History
from barnabas.sim.transaction_events import Drained, OutputFinal, OutputMade, StableFinal

NAME = "settling"


def check(history: History) -> list[Violation]:
    return _groups(history) + _loops(history) + _transactions(history)


def _groups(history: History) -> list[Violation]:
    seen: dict[str, list[GroupSeen]] = {}
    for event in history.of(GroupSeen):
        seen.setdefault(event.group, []).append(event)
    violations = []
    for wanted in history.of(GroupWanted):
        members = seen.get(wanted.group, [])
        at = max((member.at for member in members), default=wanted.at)
        if (wrong := _unsettled(wanted, members)) is not None:
            what = f"{wanted.group}, whose last members came at {wanted.at:.3f} s, {wrong}"
            violations.append(Violation(NAME, at, what))
    return violations


def _unsettled(wanted: GroupWanted, members: list[GroupSeen]) -> str | None:
    outside = [member.member for member in members if member.generation < 0]
    if outside or len(members) < wanted.members:
        return f"is not complete: {len(members)} of {wanted.members} members, of these {outside} outside"
    generations = sorted({member.generation for member in members})
    if len(generations) > 1:
        return f"has members of generations {generations}"
    has = sorted(place for member in members for place in member.places)
    if has != sorted(wanted.places):
        missing = [place for place in wanted.places if place not in has]
        return f"has nobody for {missing}, members have {has}"
    return None


def _loops(history: History) -> list[Violation]:
    return [
        Violation(
            NAME,
            drained.at,
            f"{drained.topic}-{drained.partition} was not worked off by {drained.group} up to its end, "
            f"{drained.end_offset}",
        )
        for drained in history.of(Drained)
        if not drained.is_done
    ]


def _transactions(history: History) -> list[Violation]:
    violations = [
        Violation(
            NAME,
            final.at,
            f"{final.topic}-{final.partition} is stable up to {final.stable_offset}, and ends at "
            f"{final.end_offset}: a transaction never ended",
        )
        for final in history.of(StableFinal)
        if final.stable_offset < final.end_offset
    ]
    finished = next(history.of(Finished), None)
    if finished is None or violations:
        return violations
    read = {(final.topic, final.partition, final.is_committed) for final in history.of(OutputFinal)}
    return [
        Violation(NAME, finished.at, f"{made.topic}-{partition} could not be read to its end")
        for made in history.of(OutputMade)
        for partition in range(made.partitions)
        if {(made.topic, partition, True), (made.topic, partition, False)} - read
    ]
