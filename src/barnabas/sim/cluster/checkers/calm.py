"""When the faults have ended the cluster is well again, within bounds.

Counted from the end of the faults: a machine without power may take eight more seconds to come back, a node
that has given up four. Every broker answers a change within `ANSWERED_S`, every broker shows all brokers
within `WHOLE_S`; in the end every node has the same metadata, and every partition its leader. A broker whose
connection to the active controller is half open waits on it for controller.socket.timeout.ms (30 s), as in
Kafka: where a connection became half open so shortly before the end, both may take `HALF_OPEN_S` longer.
"""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.checkers.timeline import Timeline
from barnabas.sim.cluster.events import Calm, Published
from barnabas.sim.history import Fault, FaultsEnded, Finished, History, Started

NAME = "calm"
ANSWERED_S = 25.0
WHOLE_S = 30.0
BOUNDS_S = {"answered": ANSWERED_S, "whole": WHOLE_S}
SOCKET_S = 30.0
HALF_OPEN_S = 10.0  # so much longer where a connection may be half open


def check_calm(history: History) -> list[Violation]:
    ended_at = next((each.at for each in history.of(FaultsEnded)), 0.0)
    half_open = (each.at for each in history.of(Fault) if each.kind == "connection-half-open")
    longer_s = HALF_OPEN_S if any(at > ended_at - SOCKET_S for at in half_open) else 0.0
    violations = []
    for what, broker in _expected(history):
        seen = next((each for each in history.of(Calm) if (each.what, each.broker) == (what, broker)), None)
        late_at = ended_at + BOUNDS_S[what] + longer_s
        if seen is None or seen.at > late_at:
            when = "never" if seen is None else f"{seen.at - ended_at:.3f} s after the faults"
            violations.append(Violation(NAME, late_at, f"{broker}: {what} {when}"))
    if not list(history.of(Finished)):
        violations.append(Violation(NAME, ended_at, "the clients' work was never done"))
    return violations + _images(history) + _leaderless(history)


def _expected(history: History) -> list[tuple[str, str]]:
    brokers = dict.fromkeys(each.broker for each in history.of(Calm) if each.what == "began")
    return [(what, broker) for broker in brokers for what in BOUNDS_S]


def _images(history: History) -> list[Violation]:
    """All nodes end with the same."""
    last = {each.node: each for each in history.of(Published)}
    nodes = {each.node for each in history.of(Started)} | set(last)
    digests = {each.digest for each in last.values()}
    if len(digests) <= 1 and nodes == set(last):
        return []
    told = ", ".join(f"node {each.node} has offset {each.offset}" for each in last.values())
    at = max((each.at for each in last.values()), default=0.0)
    return [Violation(NAME, at, f"not all nodes have the same metadata in the end: {told}")]


def _leaderless(history: History) -> list[Violation]:
    """All brokers are there, so every partition is led."""
    state = Timeline(history).states[-1]
    for topic in state.image.topics:
        for index, leader in enumerate(topic.leaders):
            if leader < 0:
                what = f"{topic.name}-{index} has no leader in the end"
                return [Violation(NAME, state.image.at, what)]
    return []


def check_fenced(history: History) -> list[Violation]:
    """No partition is led by a broker that is fenced, or not there."""
    violations = []
    for state in Timeline(history).states:
        fine = {each.id for each in state.image.brokers if not each.is_fenced}
        for topic in state.image.topics:
            for index, leader in enumerate(topic.leaders):
                if leader >= 0 and leader not in fine:
                    where = f"{topic.name}-{index} at offset {state.image.offset}"
                    what = f"{where} is led by {leader}, which is fenced"
                    violations.append(Violation("fenced", state.image.at, what))
    return violations
