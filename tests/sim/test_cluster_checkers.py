"""Each checker of simulated clusters against small histories, good and bad."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from barnabas.broker.storage.formatting import METADATA_DIRECTORY
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.checkpoints import write_offset_checkpoint
from barnabas.log.names import LOG_START_CHECKPOINT
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.checkers import CHECKERS, admin, calm, check_cluster, drill, metadata, prompt
from barnabas.sim.cluster.checkers.timeline import Timeline
from barnabas.sim.cluster.events import (
    DONE,
    OPEN,
    Answered,
    Asked,
    BatchSeen,
    BrokerSeen,
    Calm,
    ConfigRead,
    Drill,
    ImageSeen,
    LeaderLog,
    Led,
    LogSeen,
    MetadataRead,
    ProducerIdGiven,
    Published,
    Superseded,
    TopicRead,
    TopicSeen,
    VoterChanged,
)
from barnabas.sim.cluster.watch import read_metadata_log
from barnabas.sim.history import Event, Fault, FaultsEnded, Finished, History, Started
from tests.support.logs import batch

BROKERS = ("node-1:9092", "node-2:9092")


def said(check: Callable[[History], list[Violation]], events: Iterable[Event]) -> list[str]:
    """Which promises a checker calls broken."""
    return [each.checker for each in check(History(events=events))]


def broker(node: int, *, is_fenced: bool = False, is_leaving: bool = False) -> BrokerSeen:
    return BrokerSeen(node, 10 + node, is_fenced, is_leaving)


def topic(name: str, *leaders: int, topic_id: str = "", setting: str = "") -> TopicSeen:
    configs = (("retention.ms", setting),) if setting else ()
    return TopicSeen(name, topic_id or f"id of {name}", leaders, tuple((each,) for each in leaders), configs)


def image(
    at: float,
    offset: int,
    *topics: TopicSeen,
    brokers: tuple[BrokerSeen, ...] = (broker(1), broker(2)),
    node: int = 1,
    epoch: int = 1,
) -> ImageSeen:
    digest = repr((brokers, topics))
    return ImageSeen(at, node, offset, epoch, digest, brokers, topics)


def published(at: float, node: int, offset: int, *, life: int = 1, digest: str = "same") -> Published:
    return Published(at, node, life, offset, 1, digest)


def asked(at: float, what: str, name: str = "t", value: str = "1", *, number: int = 1) -> Asked:
    return Asked(at, number, "admin", BROKERS[0], what, name, value)


def answered(at: float, error: str = DONE, *, number: int = 1, topic_id: str = "id of t") -> Answered:
    return Answered(at, number, error, topic_id)


# ---- what nodes publish, and their logs -------------------------------------------------------------------


def test_leaders() -> None:
    good: list[Event] = [Led(1, 1, 1, 4), Led(2, 2, 1, 5), Led(3, 1, 2, 6), Led(4, 1, 2, 6)]
    assert said(metadata.check_leaders, good) == []
    assert said(metadata.check_leaders, [*good, Led(5, 3, 1, 5)]) == ["leaders"]
    assert said(metadata.check_leaders, [*good, Led(5, 1, 3, 6)]) == ["leaders"]  # again, after a restart


def test_images_at_one_offset_are_equal() -> None:
    good: list[Event] = [image(1, 5), image(2, 5, node=2), image(3, 6, topic("t", 1))]
    assert said(metadata.check_images, good) == []
    assert said(metadata.check_images, [*good, image(4, 6, topic("t", 2), node=3)]) == ["images"]
    assert said(metadata.check_images, [*good, image(4, 5, node=3, epoch=2)]) == ["images"]
    hidden = image(4, 5, node=3)._replace(digest="another")  # in what is not told in full
    assert said(metadata.check_images, [*good, hidden]) == ["images"]


def test_images_do_not_go_back_while_a_process_lives() -> None:
    good: list[Event] = [
        published(1, 1, 5),
        published(2, 1, 7),
        published(3, 2, 4),
        published(4, 1, 3, life=2),
    ]
    assert said(metadata.check_backwards, good) == []
    assert said(metadata.check_backwards, [*good, published(5, 2, 3)]) == ["images"]


def log(at: float, node: int, committed: int, *batches: BatchSeen) -> LogSeen:
    return LogSeen(at, node, 1, committed, batches)


FIRST, SECOND, THIRD = BatchSeen(0, 3, 1, 11), BatchSeen(3, 4, 1, 22), BatchSeen(4, 6, 2, 33)


def test_logs_are_parts_of_the_committed_one() -> None:
    good: list[Event] = [
        log(1, 1, 4, FIRST, SECOND, THIRD),
        log(2, 2, 6, SECOND, THIRD),  # the first is covered by a snapshot
        log(3, 3, 3, FIRST, BatchSeen(3, 5, 9, 99)),  # not committed there
        log(4, 3, -1),
    ]
    assert said(metadata.check_prefix, good) == []
    assert said(metadata.check_prefix, [*good, log(5, 3, 5, FIRST, BatchSeen(3, 5, 9, 99))]) == ["prefix"]


def test_a_log_is_seen_from_its_start() -> None:
    """A power loss may bring back some of the segments that were being deleted (seed 1936197941)."""

    async def disk_with(*base_offsets: int) -> MemoryDisk:
        disk = MemoryDisk()
        await disk.mkdir(METADATA_DIRECTORY)
        for base_offset in base_offsets:
            file = await disk.open(f"{METADATA_DIRECTORY}/{base_offset:020}.log", create=True)
            await file.append(batch(2, base_offset=base_offset))
        return disk

    async def seen() -> list[list[int]]:
        disk = await disk_with(2, 6, 8)
        found = [read_metadata_log(disk)]
        for start_offset in (6, 7, 8):
            await write_offset_checkpoint(disk, LOG_START_CHECKPOINT, {(CLUSTER_METADATA, 0): start_offset})
            found.append(read_metadata_log(disk))
        return [[each.base_offset for each in batches] for batches in found]

    assert asyncio.run(seen()) == [[2, 6, 8], [6, 8], [6, 8], [8]]


@pytest.mark.parametrize(
    "bad", [log(5, 3, 3, FIRST, THIRD), log(5, 3, 6, FIRST, SECOND)], ids=["a hole", "an end missing"]
)
def test_logs_are_whole(bad: LogSeen) -> None:
    assert said(metadata.check_prefix, [bad]) == ["prefix"]


def leads(at: float, node: int, epoch: int, *batches: BatchSeen) -> LeaderLog:
    return LeaderLog(at, node, 1, epoch, batches)


def test_a_leader_begins_with_what_was_committed_before() -> None:
    other = BatchSeen(3, 4, 2, 99)
    seen: list[Event] = [published(1, 1, 4), log(9, 1, 4, FIRST, SECOND)]
    good: list[Event] = [
        leads(2, 2, 2, FIRST, SECOND),
        leads(2, 2, 2, SECOND, THIRD),  # the first is covered by a snapshot
        leads(0.5, 2, 2, FIRST, other),  # the second was not committed yet
        leads(2, 2, 1, FIRST, other),  # what later leaders commit is none of its business
    ]
    assert said(metadata.check_committed, [*seen, *good]) == []
    for bad in (leads(2, 2, 2, FIRST, other), leads(2, 2, 2, FIRST), leads(2, 2, 2, FIRST, THIRD)):
        assert said(metadata.check_committed, [*seen, bad]) == ["committed"]


# ---- what admins are told ---------------------------------------------------------------------------------

EMPTY = image(1, 5)
CREATED = image(3, 6, topic("t", 1))
CHANGES = {
    "create": (EMPTY, asked(2, "create"), CREATED),
    "delete": (image(1, 5, topic("t", 1)), asked(2, "delete", value=""), image(3, 6)),
    "partitions": (
        image(1, 5, topic("t", 1)),
        asked(2, "partitions", value="2"),
        image(3, 6, topic("t", 1, 2)),
    ),
    "config": (
        image(1, 5, topic("t", 1)),
        asked(2, "config", value="77"),
        image(3, 6, topic("t", 1, setting="77")),
    ),
}


@pytest.mark.parametrize("what", list(CHANGES))
def test_changes_that_were_answered_are_made(what: str) -> None:
    before, change, after = CHANGES[what]
    good: list[Event] = [before, change, after, answered(4)]
    assert said(admin.check_changes, good) == []
    assert said(admin.check_topics, [asked(0, "create"), *good]) == []
    assert said(admin.check_changes, [before, change, answered(4)]) == ["changes"]
    assert said(admin.check_changes, [before, change, answered(2.5), after]) == [
        "changes"
    ]  # before its commit
    assert said(admin.check_changes, [before, change, answered(4, OPEN)]) == []


def test_changes_are_those_that_were_asked_for() -> None:
    assert said(admin.check_changes, [EMPTY, asked(2, "create", value="3"), CREATED, answered(4)]) == [
        "changes"
    ]
    wrong_id = answered(4, topic_id="another id")
    assert said(admin.check_changes, [EMPTY, asked(2, "create"), CREATED, wrong_id]) == ["changes"]
    earlier: list[Event] = [EMPTY, CREATED, asked(3.5, "create"), answered(4)]
    assert said(admin.check_changes, earlier) == ["changes"]


@pytest.mark.parametrize("what", list(CHANGES))
def test_nothing_changes_unasked(what: str) -> None:
    before, change, after = CHANGES[what]
    known = [] if what == "create" else [asked(0, "create")]
    assert said(admin.check_topics, [*known, before, after]) == ["topics"]
    assert said(admin.check_topics, [*known, before, after, change._replace(at=9)]) == ["topics"]  # too late


def test_half_of_a_topic_is_no_topic() -> None:
    events: list[Event] = [
        EMPTY,
        asked(2, "create", value="3"),
        image(3, 6, topic("t", 1, 2)),
        image(4, 7, topic("t", 1, 2, 1)),
    ]
    assert said(admin.check_topics, events) == ["topics", "topics"]


def test_topic_that_was_deleted_does_not_come_back() -> None:
    good: list[Event] = [asked(0, "create"), EMPTY, CREATED, asked(4, "delete", value=""), image(5, 7)]
    assert said(admin.check_topics, [*good, image(6, 8, topic("t", 1, topic_id="new"))]) == []
    assert said(admin.check_topics, [*good, image(6, 8, topic("t", 1))]) == ["topics"]


@pytest.mark.parametrize(
    ("what", "error", "true", "untrue"),
    [
        ("create", "TOPIC_ALREADY_EXISTS", CREATED, image(3, 6)),
        ("delete", "UNKNOWN_TOPIC_OR_PARTITION", image(3, 6), CREATED),
        ("config", "UNKNOWN_TOPIC_OR_PARTITION", image(3, 6), CREATED),
        ("partitions", "INVALID_PARTITIONS", CREATED, image(3, 6)),
        ("create", "INVALID_REPLICATION_FACTOR", image(3, 6, brokers=(broker(1, is_fenced=True),)), CREATED),
    ],
)
def test_errors_are_true(what: str, error: str, true: ImageSeen, untrue: ImageSeen) -> None:
    when = 3 + admin.STALE_S + 1
    events: list[Event] = [asked(when, what), answered(when + 1, error)]
    early = untrue._replace(at=1, offset=5)
    assert said(admin.check_errors, [early, true, *events]) == []
    assert said(admin.check_errors, [true._replace(at=1, offset=5), untrue, *events]) == ["errors"]
    # what a leader may still believe that is cut off, and what it is about to commit
    assert (
        said(admin.check_errors, [true._replace(at=1, offset=5), untrue, asked(4, what), answered(5, error)])
        == []
    )
    late = true._replace(at=when + 2, offset=9)
    assert said(admin.check_errors, [untrue, *events, late]) == ["errors"]


def test_errors_that_nobody_expects() -> None:
    assert said(admin.check_errors, [EMPTY, asked(2, "create"), answered(3, "CORRUPT_MESSAGE")]) == ["errors"]
    assert said(admin.check_errors, [EMPTY, asked(2, "create"), answered(3, OPEN)]) == []


def told(at: float, partitions: int = 1, topic_id: str = "id of t") -> MetadataRead:
    return MetadataRead(at, at - 0.1, "admin", BROKERS[0], (1, 2), (TopicRead("t", topic_id, partitions),))


def test_brokers_tell_of_what_is_committed() -> None:
    assert said(admin.check_reads, [EMPTY, CREATED, told(3.5)]) == []
    assert said(admin.check_reads, [EMPTY, told(2.5), CREATED]) == ["reads"]
    assert said(admin.check_reads, [EMPTY, CREATED, told(3.5, partitions=2)]) == ["reads"]
    assert said(admin.check_reads, [EMPTY, CREATED, told(3.5, topic_id="another")]) == ["reads"]


def test_brokers_tell_of_settings_that_are_committed() -> None:
    def read(at: float, value: str) -> ConfigRead:
        return ConfigRead(at, at - 0.1, "admin", BROKERS[0], "t", value)

    good: list[Event] = [CREATED, image(4, 7, topic("t", 1, setting="5")), read(5, "5"), read(5, "")]
    assert said(admin.check_reads, good) == []
    assert said(admin.check_reads, [*good, read(5, "6")]) == ["reads"]
    assert said(admin.check_reads, [*good, read(3.5, "5")]) == ["reads"]


def test_broker_that_answers_has_the_change_in_its_image() -> None:
    events: list[Event] = [EMPTY, published(1, 1, 5), asked(2.8, "create"), CREATED, published(3, 2, 6)]
    has_it = published(3.05, 1, 6)
    assert said(admin.check_seen, [*events, has_it, answered(3.1)]) == []
    assert said(admin.check_seen, [*events, answered(3.1)]) == ["seen"]
    assert said(admin.check_seen, [*events, answered(3.1), has_it._replace(at=3.2)]) == ["seen"]
    # it has waited for as long as it does
    assert said(admin.check_seen, [*events, answered(2.8 + admin.WAITED_S + 0.1)]) == []
    assert said(admin.check_seen, [*events, answered(3.1, OPEN)]) == []
    # the request was repeated at another broker, which has it (seed 769109728)
    by_another = answered(3.1)._replace(may_be_of_another=True)
    assert said(admin.check_seen, [*events, by_another]) == []
    assert said(admin.check_seen, [*events[:-1], by_another]) == ["seen"]


def test_producer_ids_are_given_once() -> None:
    good: list[Event] = [ProducerIdGiven(1, BROKERS[0], 0, 0), ProducerIdGiven(2, BROKERS[1], 1000, 0)]
    assert said(admin.check_producer_ids, good) == []
    assert said(admin.check_producer_ids, [*good, ProducerIdGiven(3, BROKERS[1], 0, 0)]) == ["producer-ids"]


# ---- who leads, and what has to come about ----------------------------------------------------------------


def test_brokers_that_are_fenced_lead_nothing() -> None:
    one = (broker(1), broker(2, is_fenced=True))
    assert said(calm.check_fenced, [image(1, 5, topic("t", 1, -1), brokers=one)]) == []
    assert said(calm.check_fenced, [image(1, 5, topic("t", 1, 2), brokers=one)]) == ["fenced"]
    assert said(calm.check_fenced, [image(1, 5, topic("t", 3), brokers=one)]) == ["fenced"]  # unknown


def calmed(*, answered_at: float = 12, whole_at: float = 13, last_digest: str = "same") -> list[Event]:
    """A cluster of two nodes whose faults end at 10."""
    return [
        Started(1, 1),
        Started(1, 2),
        image(2, 5, topic("t", 1)),
        published(2, 1, 5),
        published(2, 2, 5, digest=last_digest),
        FaultsEnded(10),
        *(Calm(10, "began", each) for each in BROKERS),
        *(Calm(answered_at, "answered", each) for each in BROKERS),
        *(Calm(whole_at, "whole", each) for each in BROKERS),
        Finished(20),
    ]


def test_all_is_well_again_within_bounds() -> None:
    assert said(calm.check_calm, calmed()) == []
    late = calmed(answered_at=10 + calm.ANSWERED_S + 1, whole_at=10 + calm.WHOLE_S + 1)
    assert said(calm.check_calm, late) == ["calm"] * 4
    assert said(calm.check_calm, [Fault(9, "connection-half-open", ""), *late]) == []
    later = calmed(answered_at=11 + calm.ANSWERED_S + calm.HALF_OPEN_S)
    assert said(calm.check_calm, [Fault(9, "connection-half-open", ""), *later]) == ["calm"] * 2
    never = [each for each in calmed() if getattr(each, "what", "") not in ("answered", "whole")]
    assert said(calm.check_calm, never) == ["calm"] * 4
    assert said(calm.check_calm, calmed()[:-1]) == ["calm"]  # not finished


def test_all_nodes_end_with_the_same() -> None:
    assert said(calm.check_calm, calmed(last_digest="another")) == ["calm"]
    assert said(calm.check_calm, [*calmed(), Started(15, 3)]) == ["calm"]  # never published anything


def test_every_partition_is_led_in_the_end() -> None:
    assert said(calm.check_calm, [*calmed(), image(15, 6, topic("t", -1))]) == ["calm"]


def test_changes_are_answered_while_all_is_well() -> None:
    def told(*events: Event) -> list[str]:
        calm_events = [Calm(5, what, each) for each in BROKERS for what in ("began", "whole")]
        return said(prompt.check_prompt, [Started(1, 2), *calm_events, asked(7, "create"), *events])

    late = answered(7 + prompt.ANSWERED_S + 0.1)
    assert told(answered(8)) == told(answered(8, "TOPIC_ALREADY_EXISTS")) == []
    assert told(answered(8, OPEN)) == told(late) == ["prompt"]
    assert told(VoterChanged(6, "removed", 2, ""), late) == told(Led(8, 2, 1, 3), late) == []
    assert told(Drill(8, "kill", 2), late) == []
    # a node that was stopped, and begins again after it was asked
    assert told(log(6.5, 2, 5), late) == told(log(6.5, 2, 5), late, Started(20, 2)) == []
    assert told(log(8.9, 2, 5), late, Started(20, 2)) == []
    assert told(log(9.1, 2, 5), late, Started(20, 2)) == ["prompt"]
    assert told(log(1.1, 2, 5), Started(1.9, 2), late) == ["prompt"]
    before = [Calm(5, what, each) for each in BROKERS for what in ("began", "whole")]
    assert said(prompt.check_prompt, [asked(4, "create"), *before, late]) == []
    assert said(prompt.check_prompt, [*before[:-1], asked(7, "create"), late]) == []


# ---- drills -----------------------------------------------------------------------------------------------

BOTH = image(1, 5, topic("t", 1, 2))
WITHOUT_2 = image(10.5, 6, topic("t", 1, -1), brokers=(broker(1), broker(2, is_fenced=True)))
OVER = Drill(14, "over", 2)


def killed(*events: Event) -> list[Event]:
    return [Started(1, 2), BOTH, Led(1, 1, 1, 3), Drill(10, "kill", 2), *events]


def test_dead_broker_is_fenced_by_its_socket() -> None:
    assert said(drill.check_drill, killed(WITHOUT_2, OVER)) == []
    late = WITHOUT_2._replace(at=10 + drill.FENCED_S + 0.1)
    assert said(drill.check_drill, killed(late, OVER)) == ["drill"]
    assert said(drill.check_drill, killed(OVER)) == ["drill"]
    assert said(drill.check_drill, [Fault(5, "dials-refused", ""), *killed(late, Started(16, 2), OVER)]) == []
    assert said(drill.check_drill, killed(WITHOUT_2)) == ["drill"]  # not well again
    assert said(drill.check_drill, [BOTH]) == []  # no drill


def test_dead_leader_is_replaced() -> None:
    def replaced(at: float) -> list[Event]:
        led = [Led(1, 1, 1, 3), Led(2, 2, 1, 4), Led(at, 1, 1, 5)]
        return [Started(1, 2), BOTH, *led, Drill(10, "kill", 2), WITHOUT_2, OVER]

    assert said(drill.check_drill, replaced(10.4)) == []
    assert said(drill.check_drill, replaced(10 + drill.LED_S + 0.1)) == ["drill"]


def test_broker_that_stops_is_let_go() -> None:
    began: list[Event] = [BOTH, Drill(10, "stop", 2)]
    end = log(12, 2, 6)
    assert said(drill.check_drill, [*began, WITHOUT_2, end, OVER]) == []
    assert said(drill.check_drill, [*began, end, OVER]) == ["drill", "drill"]  # not fenced, and leads
    leaving = image(10.5, 6, topic("t", 1, -1), brokers=(broker(1), broker(2, is_leaving=True)))
    assert said(drill.check_drill, [*began, leaving, end, OVER]) == ["drill"]
    late = end._replace(at=10 + drill.STOPPED_S + 0.1)
    assert said(drill.check_drill, [*began, WITHOUT_2, late, OVER]) == ["drill"]


def test_nobody_takes_the_id_of_a_broker_that_lives() -> None:
    began = Drill(10, "newcomer", 2)
    beat = Drill(11, "heartbeat", 2, "STALE_BROKER_EPOCH")
    registered = Drill(12, "registration", 2, "DUPLICATE_BROKER_REGISTRATION")
    assert said(drill.check_drill, [began, beat, registered]) == []
    assert said(drill.check_drill, [began, beat._replace(error="NONE"), registered]) == ["drill"]
    assert said(drill.check_drill, [began, beat, registered._replace(error="NONE")]) == ["drill"]
    assert said(drill.check_drill, [began, beat]) == ["drill"]


def test_no_broker_is_superseded() -> None:
    assert said(drill.check_superseded, [BOTH, Superseded(3, 2)]) == ["superseded"]


# ---- all of them ------------------------------------------------------------------------------------------


def test_states_are_in_force_from_their_commit_to_the_next() -> None:
    # the node that was the first to publish offset 5 did so after another one had published offset 6
    states = Timeline(History(events=[image(4, 6, topic("t", 1)), image(7, 5), image(9, 8)])).states
    assert [(each.image.offset, each.committed_at, each.replaced_at) for each in states] == [
        (-1, 0.0, 4),
        (5, 4, 4),
        (6, 4, 9),
        (8, 9, float("inf")),
    ]


def test_all_are_asked_in_the_order_of_time() -> None:
    events: list[Event] = [
        *calmed(),
        ProducerIdGiven(6, BROKERS[0], 7, 0),
        ProducerIdGiven(7, BROKERS[0], 7, 0),
    ]
    events += [Led(3, 1, 1, 4), Led(4, 2, 1, 4), asked(0, "create")]
    violations = check_cluster(History(events=events))
    assert [each.checker for each in violations] == ["leaders", "producer-ids"]
    assert len(CHECKERS) == 16
