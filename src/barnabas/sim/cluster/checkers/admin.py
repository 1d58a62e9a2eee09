"""What admins are told: a change that was answered is there for ever, and an error was true when it was told.

A change that was answered shows in a state that was committed between question and answer. A topic goes only
where somebody has asked for its deletion, and comes only where its creation was asked for. An error is held
against the states that were in force between question and answer, and shortly before: a leader that is cut
off tells what it knows until it notices (`STALE_S`). Nothing is concluded from an answer that leaves it open.
Who asks the broker that answered a change finds it there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.checkers.timeline import Change, State, Timeline, changes
from barnabas.sim.cluster.events import (
    DONE,
    OPEN,
    Asked,
    ConfigRead,
    MetadataRead,
    ProducerIdGiven,
    Published,
    TopicSeen,
)
from barnabas.sim.history import History

# a leader that hears nothing of a majority resigns after one and a half times
# controller.quorum.fetch.timeout.ms
STALE_S = 3.0 + 0.5
# a broker waits half a second for a change that another node has made, by its own clock
WAITED_S = 0.45


class _Appearance(NamedTuple):
    """A topic between two states in which it is not."""

    topic: TopicSeen
    first: State
    gone: State | None


def check_changes(history: History) -> list[Violation]:
    """Changes that were answered were made."""
    timeline = Timeline(history)
    violations = []
    for change in changes(history):
        if change.answered.error == DONE and not _is_made(timeline, change):
            asked, answered = change
            what = (
                f"{_said(asked)} was answered, and no state that was committed by then, and not before "
                f"{asked.at:.3f} s, shows it"
            )
            violations.append(Violation("changes", answered.at, what))
    return violations


def check_seen(history: History) -> list[Violation]:
    """A broker that answers a change has it in its own image by then, unless it has waited for it in vain.

    If another broker may have answered, because the request was repeated, at least one broker has it.
    """
    timeline = Timeline(history)
    published: dict[int, list[Published]] = {}
    for each in history.of(Published):
        published.setdefault(each.node, []).append(each)
    violations = []
    for change in changes(history):
        asked, answered = change
        if answered.error != DONE or answered.at - asked.at > WAITED_S:
            continue
        offset = min((after.image.offset for after in _made(timeline, change)), default=-1)
        nodes = list(published) if answered.may_be_of_another else [node_of(asked.broker)]
        if offset > max((_published_by(published.get(each, []), answered.at) for each in nodes), default=-1):
            what = f"{_said(asked)} was answered before the broker had it in its image (offset {offset})"
            violations.append(Violation("seen", answered.at, what))
    return violations


def _published_by(own: list[Published], at: float) -> int:
    """The offset that a node had published by then."""
    index = bisect_right(own, at, key=lambda each: each.at)
    return own[index - 1].offset if index else -1


def node_of(broker: str) -> int:
    """The node at an address."""
    return int(broker.partition(":")[0].rpartition("-")[2])


def _said(asked: Asked) -> str:
    return (
        f"change {asked.number} of {asked.client} at {asked.broker}: {asked.what} {asked.topic} {asked.value}"
    )


def _is_made(timeline: Timeline, change: Change) -> bool:
    return any(True for _ in _made(timeline, change))


def _made(timeline: Timeline, change: Change) -> Iterator[State]:
    """The states that may be what the change has made."""
    asked, answered = change
    for before, after in timeline.steps():
        if asked.at <= after.committed_at <= answered.at and _makes(before, after, change):
            yield after


def _makes(before: State, after: State, change: Change) -> bool:
    """Whether a step is that change."""
    asked, answered = change
    old, new = before.topic(asked.topic), after.topic(asked.topic)
    if asked.what == "delete":
        return old is not None and (new is None or new.topic_id != old.topic_id)
    if new is None:
        return False
    if asked.what == "create":
        is_new = old is None or old.topic_id != new.topic_id
        return is_new and (new.topic_id, len(new.leaders)) == (answered.topic_id, int(asked.value))
    if asked.what == "partitions":
        return old is not None and len(old.leaders) != len(new.leaders) == int(asked.value)
    return _setting(old) != asked.value == _setting(new)


def _setting(topic: TopicSeen | None) -> str | None:
    return next((value for _, value in topic.configs), None) if topic is not None else None


def check_topics(history: History) -> list[Violation]:
    """Topics come and go only where that was asked for, are whole, and keep what was set."""
    timeline = Timeline(history)
    asked: dict[str, list[Asked]] = {}
    for each in history.of(Asked):
        asked.setdefault(each.topic, []).append(each)
    violations, ids = [], dict[str, State]()
    for before, after in timeline.steps():
        old = {each.topic_id: each for each in before.image.topics}
        new = {each.topic_id: each for each in after.image.topics}
        wanted = [(topic, _why_not(topic, new.get(topic.topic_id))) for topic in old.values()]
        wanted += [(topic, ("create", "")) for topic in new.values() if topic.topic_id not in old]
        for topic, reasons in wanted:
            what = reasons and _unasked(topic, reasons, asked.get(topic.name, []), after)
            if what:
                violations.append(Violation("topics", after.image.at, what))
        for topic_id, topic in new.items():
            if topic_id not in old and topic_id in ids:
                what = f"topic {topic.name} ({topic_id}) is back, which was deleted"
                violations.append(Violation("topics", after.image.at, what))
            ids[topic_id] = after
    return violations


def _why_not(old: TopicSeen, new: TopicSeen | None) -> tuple[str, str] | None:
    """What must have been asked for, so that a topic became another; None: nothing."""
    if new is None:
        return "delete", ""
    if len(old.leaders) != len(new.leaders):
        return "partitions", str(len(new.leaders))
    if _setting(old) != _setting(new):
        return "config", _setting(new) or "nothing"
    return None


def _unasked(topic: TopicSeen, reason: tuple[str, str], asked: list[Asked], after: State) -> str | None:
    what, value = reason
    if what == "create":
        value = str(len(topic.leaders))
    for each in asked:
        if each.at <= after.committed_at and each.what == what and each.value == value:
            return None
    return (
        f"offset {after.image.offset}: {what} {topic.name} {value} has happened, and nobody has asked for it"
    )


# ---- errors ----------------------------------------------------------------------------------------------

_Truth = Callable[[State, Asked], bool]


def _exists(state: State, asked: Asked) -> bool:
    return state.topic(asked.topic) is not None


def _is_missing(state: State, asked: Asked) -> bool:
    return state.topic(asked.topic) is None


def _has_as_many(state: State, asked: Asked) -> bool:
    topic = state.topic(asked.topic)
    return topic is not None and len(topic.leaders) >= int(asked.value)


def _has_no_broker(state: State, asked: Asked) -> bool:
    return not any(each.is_active for each in state.image.brokers)


TRUE_IF: dict[tuple[str, str], _Truth] = {
    ("create", "TOPIC_ALREADY_EXISTS"): _exists,
    ("create", "INVALID_REPLICATION_FACTOR"): _has_no_broker,
    ("delete", "UNKNOWN_TOPIC_OR_PARTITION"): _is_missing,
    ("partitions", "UNKNOWN_TOPIC_OR_PARTITION"): _is_missing,
    ("partitions", "INVALID_PARTITIONS"): _has_as_many,
    ("partitions", "INVALID_REPLICATION_FACTOR"): _has_no_broker,
    ("config", "UNKNOWN_TOPIC_OR_PARTITION"): _is_missing,
}


def check_errors(history: History) -> list[Violation]:
    """An error was true when it was told."""
    timeline = Timeline(history)
    violations = []
    for asked, answered in changes(history):
        if answered.error in (DONE, OPEN):
            continue
        is_true = TRUE_IF.get((asked.what, answered.error))
        if is_true is None:
            what = f"{_said(asked)} was answered by {answered.error}, which nobody expects"
        elif timeline.is_ever(asked.at - STALE_S, answered.at, lambda state: is_true(state, asked)):  # noqa: B023
            continue
        else:
            what = f"{_said(asked)} was answered by {answered.error}, which was not true of what is committed"
        violations.append(Violation("errors", answered.at, what))
    return violations


# ---- reading ---------------------------------------------------------------------------------------------


def check_reads(history: History) -> list[Violation]:
    """Brokers tell of nothing that is not committed."""
    first: dict[tuple[str, str, int], float] = {}
    settings: dict[tuple[str, str], float] = {}
    for state in Timeline(history).states:
        for topic in state.image.topics:
            first.setdefault((topic.name, topic.topic_id, len(topic.leaders)), state.committed_at)
            settings.setdefault((topic.name, _setting(topic) or ""), state.committed_at)
    violations = []
    for read in history.of(MetadataRead):
        for told in read.topics:
            if first.get((told.name, told.topic_id, told.partitions), float("inf")) > read.at:
                what = f"{read.broker} tells {read.client} of {told}, which was not committed by then"
                violations.append(Violation("reads", read.at, what))
    for config in history.of(ConfigRead):
        if config.value and settings.get((config.topic, config.value), float("inf")) > config.at:
            what = (
                f"{config.broker} tells {config.client} that {config.topic} is set to {config.value}, which "
                "was not committed by then"
            )
            violations.append(Violation("reads", config.at, what))
    return violations


def check_producer_ids(history: History) -> list[Violation]:
    """No producer id is given twice."""
    given: dict[int, ProducerIdGiven] = {}
    violations = []
    for each in history.of(ProducerIdGiven):
        first = given.setdefault(each.producer_id, each)
        if first is not each:
            what = (
                f"{each.broker} gives producer id {each.producer_id}, which {first.broker} gave "
                f"at {first.at:.3f} s"
            )
            violations.append(Violation("producer-ids", each.at, what))
    return violations
