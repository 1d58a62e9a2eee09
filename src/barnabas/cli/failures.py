"""How a command fails: one line that says what is wrong, one that says what to do next, and a status.

Commands raise `CommandFailed` for what they find out themselves; what the client raises is put into the same
form here. Nothing else is caught: any other exception is a bug, and its trace is what is needed then.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut
from barnabas.core.errors import BarnabasError
from barnabas.core.network import ConnectionLost
from barnabas.protocol.channel import NotSpoken

OK = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

_NEAR_NAMES = 3
_LIKENESS = 0.6
_NEARLY_AS_GOOD = 0.05
_NEXT_STEPS = {
    "CLUSTER_AUTHORIZATION_FAILED": "ask whoever runs the cluster for an ACL on it",
    "GROUP_AUTHORIZATION_FAILED": "ask whoever runs the cluster for an ACL on the group",
    "GROUP_ID_NOT_FOUND": "`barnabas group list` shows all there are",
    "GROUP_SUBSCRIBED_TO_TOPIC": "its members read that topic; stop them first",
    "INVALID_CONFIG": "`barnabas config describe ... --docs` tells what a setting is for",
    "INVALID_PARTITIONS": "partitions can be added, never taken away; see `barnabas topic describe`",
    "INVALID_PRODUCER_EPOCH": "it has ended, or its producer has gone on; see `barnabas txn producers`",
    "INVALID_REGULAR_EXPRESSION": "brokers take RE2's expressions, for the whole of a name",
    "INVALID_REPLICATION_FACTOR": "`barnabas cluster describe` tells how many brokers there are",
    "INVALID_TOPIC_EXCEPTION": "use letters, digits, '.', '_' and '-', at most 249 of them",
    "KAFKA_STORAGE_ERROR": "the broker cannot write to its disk: see its log, and make room if it is full",
    "MISMATCHED_ENDPOINT_TYPE": "that is the listener of a controller: --bootstrap names brokers",
    "NON_EMPTY_GROUP": "stop its members first; `barnabas group describe GROUP --members` shows them",
    "NOT_ENOUGH_REPLICAS": "fewer are in sync than min.insync.replicas; see `barnabas topic describe`",
    "OFFSET_OUT_OF_RANGE": "`barnabas topic offsets` tells which offsets there are",
    "POLICY_VIOLATION": "the cluster has rules of its own for this; ask whoever runs it",
    "REQUEST_TIMED_OUT": "`barnabas cluster describe` tells whether a controller leads",
    "TRANSACTIONAL_ID_NOT_FOUND": "`barnabas txn list` shows all there are",
    "TRANSACTION_COORDINATOR_FENCED": "a newer coordinator has it; look again with `barnabas txn hanging`",
    "TOPIC_ALREADY_EXISTS": "`barnabas topic describe` shows it, `barnabas topic alter` changes it",
    "TOPIC_AUTHORIZATION_FAILED": "ask whoever runs the cluster for an ACL on the topic",
    "UNKNOWN_MEMBER_ID": "the members there are now: `barnabas group describe GROUP --members`",
}


class CommandFailed(BarnabasError):
    """What is wrong, and what to do next."""

    def __init__(self, what: str, next_step: str | None = None) -> None:
        super().__init__(what)
        self.next_step = next_step


def explained(error: BarnabasError) -> CommandFailed:
    """Any failure as what is wrong and what to do next."""
    if isinstance(error, CommandFailed):
        return error
    if isinstance(error, BrokerError):
        return CommandFailed(error.what, _NEXT_STEPS.get(error.error.name))
    if isinstance(error, NotSpoken):
        return CommandFailed(str(error), "`barnabas cluster describe --apis` tells what this cluster speaks")
    if isinstance(error, TimedOut):
        told = None if error.refusal is None else _NEXT_STEPS.get(error.refusal.name)
        return CommandFailed(str(error), told or "give it longer with --timeout, or look at the broker's log")
    if isinstance(error, (BrokerNotReachable, ConnectionLost)):
        return CommandFailed(
            str(error),
            "where the cluster names addresses that do not work from here, mend advertised.listeners",
        )
    return CommandFailed(str(error))


def nobody_answers(bootstrap: str, error: BarnabasError) -> CommandFailed:
    """The failure of the very first connection."""
    reason = _reason(error).removeprefix(f"{bootstrap}: ")
    return CommandFailed(
        f"no Kafka answers at {bootstrap} ({reason})",
        "start one with `barnabas serve`, or name another with --bootstrap H:P (or BARNABAS_BOOTSTRAP)",
    )


def _reason(error: BarnabasError) -> str:
    found = re.search(r"\((.*)\)", str(error)) if isinstance(error, BrokerNotReachable) else None
    text = found[1] if found else str(error)
    return re.sub(r"\S+: cannot connect to (\S+: )", r"\1", text)


def unknown_name(kind: str, name: str, known: Iterable[str], list_command: str) -> CommandFailed:
    """There is nothing of that name; the nearest that there are."""
    names = sorted(known)
    near = _near(name, names)
    if near:
        next_step = f"did you mean {' or '.join(near)}? `{list_command}` shows all"
    elif names:
        next_step = f"`{list_command}` shows all there are"
    else:
        next_step = "there are none at all yet"
    return CommandFailed(f"there is no {kind} {name!r}", next_step)


def _near(name: str, names: list[str]) -> list[str]:
    """The names that look most like it: the best, and those that are nearly as good."""
    near = difflib.get_close_matches(name, names, _NEAR_NAMES, cutoff=_LIKENESS)
    if not near:
        return []
    best = difflib.SequenceMatcher(None, near[0], name).ratio()
    return difflib.get_close_matches(name, names, _NEAR_NAMES, cutoff=best - _NEARLY_AS_GOOD)
