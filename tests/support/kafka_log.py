"""What Apache Kafka complains of in its own log: events of level ERROR or FATAL, and whatever tells of an
exception.

Some complaints are expected: they follow from what is done to a cluster, or from a busy machine. Nodes of
Apache Kafka with nothing else beside them log the same (`mixed_quorum_run --control`,
`mixed_replication_run --control`).

- A node that is elected, or loses its lead, answers NotControllerException until the first record of its
  epoch is committed, and logs each as an unexpected error.
- A node without a leader gives its registration up after some seconds, and tries again.
- A node that is stopped before it has a leader logs errors of its own shutdown.
- A controller that leads and is stopped waits five seconds for its successor: without a majority, or on a
  busy machine, it gives up.
- A node that is given a replica of a partition that is there already does not find it at first.
- A node whose topic is deleted may be about to write the partition's leader epochs.
- A coordinator may lose its partition while it writes to it, or loads it.
- A controller on a busy machine reports its own events as slow.

A broker that follows another one logs an IOException whenever that one ends, or cannot be reached: this is
expected while the other one is known to be away. It logs one for a request that it had sent before it was
itself paused for longer than the request's timeout. It does so at no other time.
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
    r"|Graceful shutdown of RaftClient failed.*TimeoutException: Timeout expired before graceful shutdown"
    r"|\[(Group|Share)Coordinator id=\d+\] (Writing records to|Execution of|Failed to load metadata from) "
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
