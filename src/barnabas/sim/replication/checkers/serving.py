"""While all is well but for one replica, every send is acknowledged soon.

In the drill (drill.py) a replica is killed or stopped, and enough others are in sync: what is sent with
acks=all is acknowledged within SERVED_S, LED_S where it was the leader. A follower that is killed is fenced
within two seconds, a leader that is killed is replaced in the same time; what is stopped goes without anybody
waiting for it. Clients find the next leader after that.
"""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Acked, Event, Failed, Sent
from barnabas.sim.replication.events import DrillStruck

NAME = "serving"
SERVED_S = 3.0
LED_S = 6.0


def check(events: list[Event]) -> list[Violation]:
    """`events` are those of the drill."""
    struck = next((each for each in events if isinstance(each, DrillStruck)), None)
    bound_s = LED_S if struck is not None and struck.is_leader else SERVED_S
    told = (
        "" if struck is None else f", node {struck.struck} being struck ({struck.what}) at {struck.at:.3f} s"
    )
    done = {each.mark: each for each in events if isinstance(each, (Acked, Failed))}
    violations = []
    for sent in events:
        if not isinstance(sent, Sent):
            continue
        end = done.get(sent.mark)
        if isinstance(end, Acked) and end.at <= sent.at + bound_s:
            continue
        if end is None:
            said = "is never acknowledged"
        elif isinstance(end, Failed):
            said = f"fails: {end.error}"
        else:
            said = f"is acknowledged after {end.at - sent.at:.3f} s"
        what = f"{sent.mark!r}, sent to {sent.topic}-{sent.partition} at {sent.at:.3f} s, {said}{told}"
        violations.append(Violation(NAME, sent.at + bound_s, what))
    return violations
