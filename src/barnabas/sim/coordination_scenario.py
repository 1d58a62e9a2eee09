"""What a seed of the kinds "groups" and "transactions" decides, beside what every seed does.

Faults are those of the seed. Topics are plain, and keep everything, since they are worked off; the
coordinators' own topics roll and are compacted within seconds. Where power is lost every append is synced
before it is acknowledged: only then is anything promised of what coordinators wrote.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.random import SeededRandom
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.sim.chance import between, happens, log_between, pick

FOREVER = str((1 << 63) - 1)
# the coordinators' topics, and how the settings of each begin
INTERNAL = {CONSUMER_OFFSETS: "offsets.topic", TRANSACTION_STATE: "transaction.state.log"}


class GroupPlan(NamedTuple):
    """A group and its members; the first `static` of them have instance ids."""

    name: str
    topic: str
    members: int
    static: int
    session_ms: int
    rebalance_ms: int


class Way(NamedTuple):
    """The newest versions that a transactional client speaks."""

    name: str
    init: int
    produce: int
    offsets: int
    end: int

    @property
    def is_implicit(self) -> bool:
        """KIP-890: partitions are added by writing, and every transaction has an epoch of its own."""
        return self.produce >= 12


OLD = Way("old", 4, 10, 3, 1)
VERIFIED = Way("verified", 5, 11, 4, 4)
NEW = Way("new", 5, 12, 5, 5)


class LoopPlan(NamedTuple):
    """A read-process-write loop. `partition`: the one it works off; -1: those that its group gives it."""

    transactional_id: str
    group: GroupPlan
    partition: int
    output: str
    way: Way
    timeout_ms: int
    aborts: float  # the part of transactions
    has_twin: bool  # a second one with the same id


class CoordinationPlan(NamedTuple):
    """`outputs`: topics that transactions write, by name, and how many partitions each has. `lone`: groups
    without members, whose offsets are committed all the time. `writers` work nothing off: each writes that
    partition of its output."""

    groups: tuple[GroupPlan, ...] = ()
    loops: tuple[LoopPlan, ...] = ()
    outputs: tuple[tuple[str, int], ...] = ()
    lone: tuple[str, ...] = ()
    writers: tuple[LoopPlan, ...] = ()


def coordination_broker(random: SeededRandom, is_synced: bool) -> dict[str, str]:
    """Further settings of the broker."""
    settings = {
        "offsets.topic.num.partitions": pick(random, ("1", "2", "5")),
        "transaction.state.log.num.partitions": pick(random, ("1", "2", "5")),
        "group.initial.rebalance.delay.ms": pick(random, ("0", "100", "1000", "3000")),
        "group.min.session.timeout.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": pick(random, ("200", "1000", "5000")),
        "log.roll.ms": str(int(log_between(random, 2_000, 60_000))),
        "log.cleaner.delete.retention.ms": pick(random, ("1000", "20000", "86400000")),
        "log.cleaner.min.cleanable.ratio": pick(random, ("0.01", "0.5")),
    }
    if is_synced or happens(random, 0.2):
        settings["log.flush.interval.messages"] = "1"
    return settings


def plain_configs(random: SeededRandom, is_synced: bool) -> dict[str, str]:
    """The settings of a topic that is worked off."""
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.ms": str(int(log_between(random, 2_000, 60_000))),
        "message.timestamp.after.max.ms": FOREVER,
    }
    if is_synced:
        configs["flush.messages"] = "1"
    return configs


def draw_groups(random: SeededRandom, topic: str) -> CoordinationPlan:
    return CoordinationPlan(
        groups=tuple(_group(random, f"group-{number}", topic) for number in range(1 + random.below(2)))
    )


def draw_loops(random: SeededRandom, topic: str, partitions: int) -> CoordinationPlan:
    output = ("output", 1 + random.below(2))
    if happens(random, 0.4):
        group = _group(random, "workers", topic)._replace(static=0)
        loops = tuple(
            draw_loop(random, f"worker-{number}", group, -1, output[0])._replace(has_twin=False)
            for number in range(group.members)
        )
    else:
        group = _group(random, "loops", topic)._replace(members=0, static=0)
        loops = tuple(
            draw_loop(random, f"loop-{partition}", group, partition, output[0])
            for partition in range(partitions)
        )
    return CoordinationPlan((), loops, (output,))


def _group(random: SeededRandom, name: str, topic: str) -> GroupPlan:
    members = 2 + random.below(3)
    return GroupPlan(
        name,
        topic,
        members,
        static=pick(random, (0, 0, 1, members)),
        session_ms=int(between(random, 2_000, 8_000)),
        rebalance_ms=int(between(random, 2_000, 8_000)),
    )


def draw_loop(random: SeededRandom, name: str, group: GroupPlan, partition: int, output: str) -> LoopPlan:
    return LoopPlan(
        name,
        group,
        partition,
        output,
        way=pick(random, (OLD, VERIFIED, NEW, NEW, NEW)),
        timeout_ms=int(between(random, 3_000, 12_000)),
        aborts=pick(random, (0.0, 0.1, 0.4)),
        has_twin=happens(random, 0.5),
    )
