"""The life of a node, as states and the transitions between them.

    STARTING -> CONTROLLER_UP -> FENCED -> SERVING -> CONTROLLED_SHUTDOWN -> STOPPED
                                                             any of them -> FAILED -> STOPPED

- STARTING: directories are locked and read, listeners bound; connections wait.
- CONTROLLER_UP: the node takes part in the quorum, and its controller's listeners answer; a node that is no
  broker stays in this state.
- FENCED: the broker is registered under its epoch; it leads nothing and is shown to no client.
- SERVING: the broker is active, and its listeners answer.
- CONTROLLED_SHUTDOWN: a clean stop has begun; other brokers take over while this one still answers.
- STOPPED: nothing is open any more.
- FAILED: it is not safe to go on; the next start checks everything.

Every state may be followed by STOPPED: a start that is refused and a node that is abandoned end so.
"""

from __future__ import annotations

import enum

from barnabas.core.errors import InvariantViolation


class NodeState(enum.Enum):
    STARTING = "starting"
    CONTROLLER_UP = "controller up"
    FENCED = "registered and fenced"
    SERVING = "serving"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    STOPPED = "stopped"
    FAILED = "failed"


_ENDS = (NodeState.FAILED, NodeState.STOPPED)

TRANSITIONS: dict[NodeState, frozenset[NodeState]] = {
    NodeState.STARTING: frozenset({NodeState.CONTROLLER_UP, *_ENDS}),
    NodeState.CONTROLLER_UP: frozenset({NodeState.FENCED, NodeState.CONTROLLED_SHUTDOWN, *_ENDS}),
    NodeState.FENCED: frozenset({NodeState.SERVING, NodeState.CONTROLLED_SHUTDOWN, *_ENDS}),
    NodeState.SERVING: frozenset({NodeState.CONTROLLED_SHUTDOWN, *_ENDS}),
    NodeState.CONTROLLED_SHUTDOWN: frozenset(_ENDS),
    NodeState.FAILED: frozenset({NodeState.STOPPED}),
    NodeState.STOPPED: frozenset(),
}


class NodeLife:
    """The state of one node."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = NodeState.STARTING

    @property
    def has_failed(self) -> bool:
        return self.state is NodeState.FAILED

    def become(self, state: NodeState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantViolation(f"a node that is {self.state.value} cannot become {state.value}")
        self.state = state

    def fail(self) -> None:
        """Go on to FAILED, unless the node has failed or stopped already."""
        if NodeState.FAILED in TRANSITIONS[self.state]:
            self.state = NodeState.FAILED
