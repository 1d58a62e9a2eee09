"""The stories of consumers that fail: members of a group that are killed, leave and join, while a producer
writes.

What is counted is what members have processed. A member commits after it has processed, so every record is
processed at least once, and what a dead member had not committed is processed twice: a batch at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from barnabas.cli.stories.group import GROUP, Group, member_lane
from barnabas.cli.stories.load import PRODUCER, Count, Writer
from barnabas.cli.stories.member import SESSION_MS
from barnabas.cli.stories.plays import PARTITIONS, SOME, TOPIC, Ending, Play
from barnabas.cli.stories.stage import Stage

STORM_PARTITIONS = 6


async def _begin(stage: Stage, partitions: int) -> Writer:
    """A topic of which every node leads a part, and a producer that writes to it."""
    ids = list(stage.ids)
    replicas = {number: ids[number % len(ids) :] + ids[: number % len(ids)] for number in range(partitions)}
    await stage.create(TOPIC, replicas)
    writer = Writer(stage, TOPIC, partitions, stage.timeline)
    await writer.start()
    stage.timeline.add(PRODUCER, f"writes to {partitions} partitions")
    return writer


async def consumer_death(stage: Stage) -> Ending:
    """One of two members is killed while it works."""
    writer = await _begin(stage, PARTITIONS)
    async with Group(stage, TOPIC, PARTITIONS) as group:
        await asyncio.gather(group.join(1), group.join(2))
        await group.settled(1, 2)
        _tell_shares(stage, group)
        await _more(group, SOME)
        await group.kill(1)
        died_s = stage.timeline.now_s()
        await group.settled(2)
        taken_s = stage.timeline.now_s() - died_s
        stage.timeline.add(
            member_lane(2),
            f"has all partitions: the session of {SESSION_MS / 1000:g} s is over, the group has rebalanced",
        )
        await _more(group, SOME)
        count = await _end(stage, group, writer)
        await group.leave(2)
        lines = [f"from the kill to the next owner: {taken_s:.2f} s"]
        return _ending(group, count, lines=lines, facts={"to_next_owner_s": round(taken_s, 3)})


async def rebalance_storm(stage: Stage) -> Ending:
    """Members join, leave and die faster than the group comes to rest."""
    writer = await _begin(stage, STORM_PARTITIONS)
    async with Group(stage, TOPIC, STORM_PARTITIONS) as group:
        await asyncio.gather(group.join(1), group.join(2))
        await group.settled(1, 2)
        _tell_shares(stage, group)
        first = group.generation
        await asyncio.gather(group.join(3), group.join(4))
        await group.settled(1, 2, 3, 4)
        await group.kill(2)
        await group.join(5)
        await group.leave(3)
        await group.kill(4)
        await group.join(6)
        await group.settled(1, 5, 6)
        text = f"have come to rest after {group.generation - first} rebalances"
        stage.timeline.add("the group", f"members 1, 5 and 6 {text}")
        await _more(group, SOME)
        count = await _end(stage, group, writer)
        for number in (1, 5, 6):
            await group.leave(number)
        rebalances = group.generation - first
        lines = [f"{rebalances} rebalances; {group.commits:,} commits, {group.refused} refused as too old"]
        if not group.faults:
            lines.append("no partition had two owners in one generation, and no commit went back")
        facts = {"rebalances": rebalances, "commits": group.commits, "commits_refused": group.refused}
        return _ending(group, count, lines=lines, facts=facts)


def _tell_shares(stage: Stage, group: Group) -> None:
    shares = [f"member {number} has {len(found)}" for number, (_, found) in sorted(group.assigned.items())]
    stage.timeline.add("the group", f"shares the partitions: {', '.join(shares)}")


async def _more(group: Group, count: int) -> None:
    wanted = group.processed.total() + count
    await group.until(lambda: group.processed.total() >= wanted, f"{count} more records are processed")


async def _end(stage: Stage, group: Group, writer: Writer) -> Count:
    """Stop writing, and wait until the group has committed all of it."""
    count = await writer.finish()
    stage.timeline.add(PRODUCER, f"stops after {count.acknowledged:,} records")

    def is_all() -> bool:
        return bool(group.faults) or sum(group.committed.values()) >= count.readable

    await group.until(is_all, "everything is committed")
    stage.timeline.add("the group", f"{GROUP} has processed and committed everything")
    return count


def _ending(group: Group, count: Count, *, lines: list[str], facts: Mapping[str, object]) -> Ending:
    processed = len(group.processed)
    twice = sum(times > 1 for times in group.processed.values())
    unprocessed = max(0, count.readable - processed)
    is_right = count.is_right and not unprocessed and not group.faults
    shown = [
        count.text,
        f"{processed:,} records processed, {unprocessed} never, {twice} twice, as nobody had committed them",
        *lines,
        *group.faults,
    ]
    told = {"processed": processed, "unprocessed": unprocessed, "processed_twice": twice}
    return Ending(is_right, shown, {**count._asdict(), **told, **facts, "faults": group.faults})


GROUP_PLAYS = {
    "consumer-death": Play(
        "a consumer is killed in the middle of its work",
        "The coordinator hears no heartbeat, and gives its partitions to the other member when the session "
        "is over. That one begins where the group has committed last: nothing is skipped, and the batch that "
        "was processed but not committed is processed again (at least once). Where that may not be, offsets "
        "and results go into one transaction.",
        consumer_death,
    ),
    "rebalance-storm": Play(
        "members join, leave and die faster than their group comes to rest",
        "Each rebalance begins a generation, in which every partition has one owner. A commit of an earlier "
        "generation is refused, so a member that was left behind cannot move the group back. The next owner "
        "of a partition reads on from the last commit.",
        rebalance_storm,
    ),
}
