"""What Apache Kafka complains of in its own log: events of level ERROR or FATAL, and whatever tells of an
exception.

Some complaints belong to what is done to a cluster, whatever its nodes are: a node of Apache Kafka that is
elected, or loses its lead, answers NotControllerException until the first record of its epoch is committed,
and logs each as an unexpected error; one without a leader gives its registration up after some seconds
and tries again; one that is stopped before it has a leader stumbles over its own shutdown; one that is given
a replica of a partition that is there already misses it first; one whose topic is deleted may still be about
to write the partition's leader epochs; a group coordinator may lose its partition while it writes to it; and
a controller on a busy machine finds its own events slow. Nodes of Apache Kafka with nothing else beside them
log the same (`mixed_quorum_run --control`, `mixed_replication_run --control`).

A broker that follows another one logs an IOException whenever that one ends, or cannot be reached: this is
expected while the other one is known to be away, and at no other time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

_BEGINS = re.compile(r"^(?=\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ )", re.MULTILINE)
_COMPLAINT = re.compile(r"^\S+ \S+ (ERROR|FATAL) |Exception\b|^\tat ", re.MULTILINE)
_EXPECTED = re.compile(
    r"Unexpected error handling request .*NotControllerException"
    r"|RegistrationResponseHandler: channel manager timed out before sending the request"
    r"|Attempted to remove publisher \w+, which is not installed"
    r"|leader-epoch-checkpoint.*NoSuchFileException.*writeIfDirExists"
    r"|\[GroupCoordinator id=\d+\] (Writing records to|Execution of) "
    r".*Not(LeaderOrFollower|Coordinator)Exception"
    r"|\[GroupCoordinator id=\d+\] Execution of HighWatermarkUpdate failed due to New committed offset"
    r"|Exceptionally slow controller event|controller event queue overloaded"
    r"|Expected partition \S+ with topic id \S+ to exist, but it was missing. Creating",
    re.DOTALL,
)
_LEADER_LOST = re.compile(
    r"^(\S+ \S+) WARN \[ReplicaFetcher .*Error in response for fetch request.*"
    r"IOException: Connection to (?:\S+ \(id: )?(\d+)\b",
    re.DOTALL,
)
_SOON = timedelta(seconds=3)  # a fetcher that has failed waits a second before it tries again

Absences = Mapping[int, Sequence[tuple[datetime, datetime]]]  # of nodes, from when to when


def events(log: str) -> list[str]:
    """A log by its events: a line that begins with a time, and those that belong to it."""
    return [each.rstrip() for each in _BEGINS.split(log) if each.strip()]


def complaints(log: str, absences: Absences | None = None) -> list[str]:
    """The events that tell of something unexpected, where these other nodes were away."""
    return [
        each
        for each in events(log)
        if _COMPLAINT.search(each) and not _EXPECTED.search(each) and not _is_absent(each, absences or {})
    ]


def _is_absent(event: str, absences: Absences) -> bool:
    """Whether it tells that a leader cannot be reached which is away."""
    lost = _LEADER_LOST.search(event)
    if lost is None:
        return False
    at = datetime.strptime(lost[1], "%Y-%m-%d %H:%M:%S,%f")
    return any(
        begin <= at and (end == datetime.max or at <= end + _SOON)
        for begin, end in absences.get(int(lost[2]), [])
    )
