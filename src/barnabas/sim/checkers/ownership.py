"""No partition has two owners in a group, as far as its members can know.

What a member was told: the assignment of a generation is its own from the moment SyncGroup answers until it
joins again, is told that it is no member (or no longer of this generation), leaves, or is killed; and always
only as long after the sending of its last request that was answered well as a session lasts (or a rebalance,
where that is shorter): if it heard nothing for longer, the coordinator may rightly have gone on without it.
Another process with the same instance id takes its place as soon as it asks to; from then on nothing is known
of either.

- At no moment do two members of a group own the same partition.
- Within one generation, every member is always given the same, and nobody what another was given.
- Once a member of a later generation has its assignment, no heartbeat and no commit of an earlier one is
  answered well. A generation that was only joined may be undone before it is synced, by a crash or because
  it cannot be written: it counts only for the node that answered, while its process lives and goes on
  coordinating the group with a minimum of replicas in sync, and before its disk has had its first fault. The
  answer to a request from before a crash can be one of the dead process that arrives late.

A coordinator that was deposed and does not know it gives out, and renews, nothing (coordinators.py); commits
of earlier generations it must not acknowledge either.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.sim.checkers.coordinators import GroupCoordinators
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.group_events import (
    Affirmed,
    Assigned,
    CommitDone,
    CommitSent,
    GivenUp,
    Joined,
    Joining,
    Place,
)
from barnabas.sim.history import ClientKilled, Crash, Fault, History, Started
from barnabas.sim.replication.events import PartitionSeen

NAME = "ownership"
DISK_FAULTS = ("disk-full", "disk-error")
MIN_IN_SYNC = 2  # of __consumer_offsets, where it is replicated


class _Span(NamedTuple):
    """From then to then a member owns what an assignment says."""

    start: float
    end: float
    assigned: Assigned


def check(history: History) -> list[Violation]:
    return _one_owner(history) + _one_assignment(history) + _one_generation(history)


# ---- at one moment ---------------------------------------------------------------------------------------


def _one_owner(history: History) -> list[Violation]:
    by_place: dict[tuple[str, Place], list[_Span]] = {}
    for span in _spans(history):
        for place in span.assigned.places:
            by_place.setdefault((span.assigned.group, place), []).append(span)
    violations = []
    for (group, place), spans in by_place.items():
        spans.sort(key=lambda span: span.start)
        latest = spans[0]
        for span in spans[1:]:
            one, other = latest.assigned, span.assigned
            if span.start < latest.end and one.member != other.member:
                what = (
                    f"{place[0]}-{place[1]} of {group} belongs to {other.member_id} ({other.member}) by "
                    f"generation {other.generation} and still to {one.member_id} ({one.member}), until "
                    f"{latest.end:.3f} s, by generation {one.generation}"
                )
                violations.append(Violation(NAME, span.start, what))
                break
            latest = max(latest, span, key=lambda each: each.end)
    return violations


def _spans(history: History) -> list[_Span]:
    """When who owns what, as it may believe."""
    spans: list[_Span] = []
    owning: dict[tuple[str, str], tuple[Assigned, list[_Span]]] = {}
    takers, coordinators = _Takers(history), GroupCoordinators(history)

    def counts(event: Assigned | Affirmed) -> bool:
        return not coordinators.may_be_deposed(event.group, event.node, event.asked_at, event.at)

    def close(key: tuple[str, str], at: float) -> None:
        assigned, mine = owning.pop(key)
        at = min(at, takers.taken_at(assigned))
        spans.extend(span._replace(end=min(span.end, at)) for span in mine if span.start < at)

    for event in history.events:
        if isinstance(event, Assigned):
            until = event.asked_at + event.lasts_s
            spans_of = [_Span(event.at, until, event)] if counts(event) else []
            owning[event.group, event.member] = event, spans_of
        elif isinstance(event, Affirmed):
            held = owning.get((event.group, event.member))
            if held is not None and held[0].generation == event.generation and counts(event):
                held[1].append(_Span(event.at, event.asked_at + held[0].lasts_s, held[0]))
        elif isinstance(event, Joining | GivenUp):
            if (event.group, event.member) in owning:
                close((event.group, event.member), event.at)
        elif isinstance(event, ClientKilled):
            for key in [key for key in owning if key[1] == event.client]:
                close(key, event.at)
    for key in list(owning):
        close(key, float("inf"))
    return spans


class _Takers:
    """When other processes asked to be the same instance; one that was not answered may be at any time."""

    def __init__(self, history: History) -> None:
        self._asked: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
        open_: dict[tuple[str, str], Joining] = {}
        for event in history.events:
            if isinstance(event, Joining) and event.instance:
                self._note(open_.pop((event.group, event.member), None), float("inf"))
                open_[event.group, event.member] = event
            elif isinstance(event, Joined | GivenUp):
                self._note(open_.pop((event.group, event.member), None), event.at)
        for joining in open_.values():
            self._note(joining, float("inf"))

    def _note(self, joining: Joining | None, answered_at: float) -> None:
        if joining is not None:
            asked = self._asked.setdefault((joining.group, joining.instance), [])
            asked.append((joining.at, answered_at, joining.member))

    def taken_at(self, assigned: Assigned) -> float:
        """From when on another may have the place of the member with this assignment."""
        asked = self._asked.get((assigned.group, assigned.instance), ()) if assigned.instance else ()
        return min(
            (at for at, until, member in asked if member != assigned.member and until > assigned.asked_at),
            default=float("inf"),
        )


# ---- in one generation -----------------------------------------------------------------------------------


def _one_assignment(history: History) -> list[Violation]:
    violations = []
    given: dict[tuple[str, int], dict[str, Assigned]] = {}
    for event in history.of(Assigned):
        others = given.setdefault((event.group, event.generation), {})
        before = others.setdefault(event.member_id, event)
        told = f"generation {event.generation} of {event.group}: {event.member_id}"
        if before.places != event.places:
            what = f"{told} is given {event.places}, and was given {before.places} at {before.at:.3f} s"
            violations.append(Violation(NAME, event.at, what))
        for other in others.values():
            both = [place for place in event.places if place in other.places]
            is_same = other.member_id == event.member_id or (
                event.instance and other.instance == event.instance
            )
            if both and not is_same:
                what = f"{told} is given {both}, and so was {other.member_id} at {other.at:.3f} s"
                violations.append(Violation(NAME, event.at, what))
    return violations


# ---- one generation after another ------------------------------------------------------------------------


class _Node:
    """What is known of one node's process: which generations it has let members join."""

    def __init__(self) -> None:
        self.joined: dict[str, tuple[int, float]] = {}
        self.crashed_at: float | None = None  # since the last start
        self.alone_since = 0.0  # an earlier process cannot have answered requests sent from then on
        self.has_disk_fault = False

    def started(self, at: float) -> None:
        self.joined.clear()
        self.alone_since = at if self.crashed_at is None else self.crashed_at
        self.crashed_at = None


class _Latest:
    """The latest generation of each group that is known to have been there, from then on."""

    def __init__(self, coordinators: GroupCoordinators) -> None:
        self._coordinators = coordinators
        self._synced: dict[str, tuple[int, float]] = {}
        self._nodes: dict[int, _Node] = {}
        self._leads: dict[int, PartitionSeen] = {}  # by partition of __consumer_offsets
        self._in_doubt: set[int] = set()  # partitions whose coordinator may be loaded anew, unseen

    def note(self, event: object) -> None:
        if isinstance(event, Assigned):
            _raise(self._synced, event.group, event.generation, event.at)
        elif isinstance(event, Joined):
            self._joined(event)
        elif isinstance(event, Crash):
            self._node(event.node).crashed_at = event.at
        elif isinstance(event, Started):
            self._node(event.node).started(event.at)
        elif isinstance(event, Fault) and event.kind.startswith(DISK_FAULTS):
            self._node(event.node).joined.clear()
            self._node(event.node).has_disk_fault = True
        elif isinstance(event, PartitionSeen) and event.topic == CONSUMER_OFFSETS:
            self._led(event)

    def _node(self, node: int) -> _Node:
        return self._nodes.setdefault(node, _Node())

    def _joined(self, event: Joined) -> None:
        node, coordinators = self._node(event.node), self._coordinators
        is_certain = not (
            node.has_disk_fault
            or coordinators.partition_of(event.group) in self._in_doubt
            or coordinators.may_be_deposed(event.group, event.node, event.asked_at, event.at)
        )
        if is_certain and event.asked_at >= node.alone_since:
            _raise(node.joined, event.group, event.generation, event.at)

    def _led(self, event: PartitionSeen) -> None:
        """A coordinator that is elected anew, or could not write for want of replicas, is loaded anew at a
        time that nobody sees."""
        before = self._leads.get(event.partition)
        self._leads[event.partition] = event
        is_anew = before is not None and before.leader_epoch != event.leader_epoch
        if before is None or before.leader != event.leader:
            self._in_doubt.discard(event.partition)
        elif is_anew:
            self._in_doubt.add(event.partition)
        if len(event.isr) < MIN_IN_SYNC:
            self._in_doubt.add(event.partition)
        if is_anew or event.partition in self._in_doubt:
            for node in self._nodes.values():
                node.joined.clear()

    def before(self, group: str, asked_at: float, generation: int, node: int) -> tuple[int, float] | None:
        """A later one that was known before that."""
        for known in (self._synced, self._node(node).joined):
            latest = known.get(group)
            if latest is not None and latest[0] > generation and latest[1] <= asked_at:
                return latest
        return None


def _raise(known: dict[str, tuple[int, float]], group: str, generation: int, at: float) -> None:
    if group not in known or known[group][0] < generation:
        known[group] = generation, at


def _one_generation(history: History) -> list[Violation]:
    violations = []
    coordinators, sent = GroupCoordinators(history), dict[str, CommitSent]()
    latest = _Latest(coordinators)
    for event in history.events:
        latest.note(event)
        if isinstance(event, CommitSent):
            sent[event.mark] = event
        elif isinstance(event, Affirmed):
            later = latest.before(event.group, event.asked_at, event.generation, event.node)
            is_of_deposed = coordinators.may_be_deposed(event.group, event.node, event.asked_at, event.at)
            if later is not None and not is_of_deposed:
                what = f"a heartbeat of {event.member_id} in generation {event.generation} of {event.group}"
                violations.append(_too_late(event.at, what, event.asked_at, later))
        elif isinstance(event, CommitDone):
            commit = sent[event.mark]
            later = latest.before(commit.group, commit.at, commit.generation, event.node)
            if commit.generation >= 0 and later is not None:
                what = f"the commit {commit.mark!r} in generation {commit.generation} of {commit.group}"
                violations.append(_too_late(event.at, what, commit.at, later))
    return violations


def _too_late(at: float, what: str, asked_at: float, later: tuple[int, float]) -> Violation:
    since = f"{later[0]} was there since {later[1]:.3f} s"
    said = f"{what}, sent at {asked_at:.3f} s, was accepted, although {since}"
    return Violation(NAME, at, said)
