"""What nodes publish and what stands in their logs: one metadata, told by one leader an epoch."""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.events import BatchSeen, ImageSeen, LeaderLog, Led, LogSeen, Published
from barnabas.sim.history import History


def check_leaders(history: History) -> list[Violation]:
    """An epoch has one leader, in one life."""
    led: dict[int, Led] = {}
    violations = []
    for each in history.of(Led):
        first = led.setdefault(each.epoch, each)
        if (first.node, first.life) != (each.node, each.life):
            what = (
                f"node {each.node} (life {each.life}) leads epoch {each.epoch}, which node {first.node} "
                f"(life {first.life}) has led since {first.at:.3f} s"
            )
            violations.append(Violation("leaders", each.at, what))
    return violations


def check_images(history: History) -> list[Violation]:
    """Two nodes that have published the same offset have published the same."""
    seen: dict[int, ImageSeen] = {}
    violations = []
    for each in history.of(ImageSeen):
        first = seen.setdefault(each.offset, each)
        if (first.epoch, first.digest) != (each.epoch, each.digest):
            what = (
                f"node {each.node} publishes another image at offset {each.offset} than node {first.node} "
                f"at {first.at:.3f} s: {_difference(first, each)}"
            )
            violations.append(Violation("images", each.at, what))
    return violations


def _difference(one: ImageSeen, other: ImageSeen) -> str:
    for name in ("epoch", "brokers", "topics"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs:
            if name == "epoch":
                return f"epoch {theirs} instead of {mine}"
            return f"{set(theirs) - set(mine)} instead of {set(mine) - set(theirs)}"
    return "something else than brokers and topics"


def check_backwards(history: History) -> list[Violation]:
    """What a node publishes never goes back while its process lives."""
    last: dict[tuple[int, int], Published] = {}
    violations = []
    for each in history.of(Published):
        before = last.get((each.node, each.life))
        if before is not None and each.offset < before.offset:
            what = f"node {each.node} publishes offset {each.offset} after {before.offset}"
            violations.append(Violation("images", each.at, what))
        last[each.node, each.life] = each
    return violations


def check_prefix(history: History) -> list[Violation]:
    """Every node's log, as far as it is committed, is a part of the one committed log."""
    return _pieces_of_one("prefix", list(history.of(LogSeen)))


def check_committed(history: History) -> list[Violation]:
    """What was committed by leaders of earlier epochs is in the log with which a leader begins."""
    logs = list(history.of(LogSeen))
    known = len(_pieces_of_one("committed", logs))
    for log in history.of(LeaderLog):
        committed = max(
            (each.offset for each in history.of(Published) if each.at < log.at and each.epoch < log.epoch),
            default=-1,
        )
        logs.append(LogSeen(log.at, log.node, log.life, committed, log.batches))
    return _pieces_of_one("committed", logs)[known:]


def _pieces_of_one(name: str, logs: list[LogSeen]) -> list[Violation]:
    """Violations where they are not, in the order of the logs."""
    committed: dict[int, tuple[BatchSeen, LogSeen]] = {}
    violations = []
    for log in logs:
        for batch in log.batches:
            if batch.end_offset > log.committed:
                break
            first, there = committed.setdefault(batch.base_offset, (batch, log))
            if first != batch:
                what = (
                    f"node {log.node} has {batch} in what is committed, where node {there.node} had {first} "
                    f"at {there.at:.3f} s"
                )
                violations.append(Violation(name, log.at, what))
                break
        violations += _hole(name, log)
    return violations


def _hole(name: str, log: LogSeen) -> list[Violation]:
    """A log is one piece, and reaches as far as its node has published."""
    for one, other in zip(log.batches, log.batches[1:], strict=False):
        if one.end_offset != other.base_offset:
            what = f"the log of node {log.node} goes on at {other.base_offset} behind {one.end_offset}"
            return [Violation(name, log.at, what)]
    if log.batches and log.batches[-1].end_offset < log.committed:
        what = (
            f"the log of node {log.node} ends at {log.batches[-1].end_offset}, although offset "
            f"{log.committed} was published"
        )
        return [Violation(name, log.at, what)]
    return []
