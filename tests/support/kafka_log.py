"""What Apache Kafka complains of in its own log: events of level ERROR or FATAL, and whatever tells of an
exception.

Some complaints belong to what is done to a cluster, whatever its nodes are: a node of Apache Kafka that is
elected, or loses its lead, answers NotControllerException until the first record of its epoch is committed,
and logs each as an unexpected error; one without a leader gives its registration up after some seconds
and tries again; one that is stopped before it has a leader stumbles over its own shutdown; one that is given
a replica of a partition that is there already misses it first. Nodes of Apache Kafka with nothing else
beside them log the same (`mixed_quorum_run --control`).
"""

from __future__ import annotations

import re

_BEGINS = re.compile(r"^(?=\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ )", re.MULTILINE)
_COMPLAINT = re.compile(r"^\S+ \S+ (ERROR|FATAL) |Exception\b|^\tat ", re.MULTILINE)
_EXPECTED = re.compile(
    r"Unexpected error handling request .*NotControllerException"
    r"|RegistrationResponseHandler: channel manager timed out before sending the request"
    r"|Attempted to remove publisher \w+, which is not installed"
    r"|Expected partition \S+ with topic id \S+ to exist, but it was missing. Creating",
    re.DOTALL,
)


def events(log: str) -> list[str]:
    """A log by its events: a line that begins with a time, and those that belong to it."""
    return [each.rstrip() for each in _BEGINS.split(log) if each.strip()]


def complaints(log: str) -> list[str]:
    """The events that tell of something unexpected."""
    return [each for each in events(log) if _COMPLAINT.search(each) and not _EXPECTED.search(each)]
