"""The stories of nodes that fail: each a function that plays on a stage, and gives the count at its end.

A producer writes to three partitions with three replicas all the time, with acks=all and idempotence. What is
told are facts of the run: who leads, in which epoch, where logs end, by asking the nodes themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from barnabas.cli.stories.load import PRODUCER, Count, Writer
from barnabas.cli.stories.stage import CLIENT, Stage, lane
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.describe_quorum import (
    AskedPartition,
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)

TOPIC = "orders"
PARTITIONS = 3
SOME, FEW = 150, 50  # records, between two things that happen


class Ending(NamedTuple):
    """How a story ended: whether it went as it must, and what there is to say of it."""

    is_right: bool
    lines: list[str]
    facts: Mapping[str, Any]


class Play(NamedTuple):
    """A story: what it is about, why nothing is lost, and how it is played."""

    summary: str
    why: str
    run: Callable[[Stage], Awaitable[Ending]]


async def _write(stage: Stage, leader: int) -> Writer:
    """A topic whose first partition that node leads, and a producer that writes to it."""
    others = [each for each in stage.ids if each != leader]
    first = [leader, *others]
    replicas = {number: first[number:] + first[:number] for number in range(PARTITIONS)}
    await stage.create(TOPIC, replicas)
    writer = Writer(stage, TOPIC, PARTITIONS, stage.timeline)
    await writer.start()
    stage.timeline.add(PRODUCER, f"writes to {PARTITIONS} partitions, each with a replica on every node")
    await writer.more(SOME)
    return writer


async def _controller(stage: Stage) -> int:
    """The active controller."""
    return (await stage.admin.describe_quorum()).leader_id


async def _count(stage: Stage, writer: Writer) -> Count:
    count = await writer.finish()
    stage.timeline.add(PRODUCER, f"stops; {count.readable:,} records are read back")
    return count


def _ending(count: Count, what: str, elected_s: float) -> Ending:
    facts = {**count._asdict(), "to_next_leader_s": round(elected_s, 3)}
    return Ending(count.is_right, [count.text, f"{what}: {elected_s:.2f} s"], facts)


# ---- a broker dies ---------------------------------------------------------------------------------------


async def broker_death(stage: Stage) -> Ending:
    """The leader of a partition is killed, and comes back."""
    controller, timeline = await _controller(stage), stage.timeline
    victim = next(each for each in stage.ids if each != controller)
    writer = await _write(stage, victim)
    before = await stage.view(controller, TOPIC)
    await stage.kill(victim, f"is killed (kill -9) while it leads {TOPIC}-0")
    died_s = timeline.now_s()
    new = await stage.new_leader(TOPIC, victim)
    text = f"leads {TOPIC}-0 in epoch {new.leader_epoch}, was {-1 if before is None else before.leader_epoch}"
    timeline.add(lane(new.leader_id), text)
    elected_s = timeline.now_s() - died_s
    await writer.more(SOME)
    timeline.add(PRODUCER, f"has {SOME} more acknowledged, with two replicas in sync")
    await stage.start(victim, "is started again: it cuts off what was not committed, and fetches the rest")
    await _whole(stage, victim)
    await writer.more(SOME)
    count = await _count(stage, writer)
    return _ending(count, "from the kill to the next leader", elected_s)


async def _whole(stage: Stage, node_id: int) -> None:
    for partition in range(PARTITIONS):
        await stage.in_sync(TOPIC, partition, stage.ids)
    stage.timeline.add(lane(node_id), "is in sync again, in all partitions")


# ---- a leader is cut off ---------------------------------------------------------------------------------


async def isolated_leader(stage: Stage) -> Ending:
    """A leader is cut off from the other nodes, and its clients do not notice."""
    controller = await _controller(stage)
    victim = next(each for each in stage.ids if each != controller)
    return await _cut_off(stage, victim, f"is cut off from the other nodes, and still leads {TOPIC}-0")


async def split_brain(stage: Stage) -> Ending:
    """The node that leads both a partition and the quorum is cut off: two leaders, two controllers."""
    victim = await _controller(stage)
    text = f"is cut off: it leads {TOPIC}-0 and the quorum, and clients still reach it"
    return await _cut_off(stage, victim, text, is_controller=True)


async def _cut_off(stage: Stage, victim: int, text: str, *, is_controller: bool = False) -> Ending:
    timeline = stage.timeline
    writer = await _write(stage, victim)
    await stage.isolate(victim, text)
    cut_s = timeline.now_s()
    refused = await _write_to(stage, victim)
    timeline.add(lane(victim), refused)
    new = await stage.new_leader(TOPIC, victim)
    elected_s = timeline.now_s() - cut_s
    timeline.add(lane(new.leader_id), f"leads {TOPIC}-0 in epoch {new.leader_epoch} for the majority")
    old = await stage.view(victim, TOPIC)
    if old is not None and old.leader_id == victim:
        believes = f"believes that it leads {TOPIC}-0 in epoch {old.leader_epoch}: two leaders at once"
        timeline.add(lane(victim), believes)
    if is_controller:
        await _two_controllers(stage, victim)
    await writer.more(FEW, partition=0)
    timeline.add(PRODUCER, f"has found the new leader: {FEW} more records of {TOPIC}-0 acknowledged")
    ended = await stage.end_of(victim, TOPIC)
    common = await stage.end_of_epoch(new.leader_id, TOPIC, new.leader_epoch - 1)
    await stage.heal(
        victim,
        f"is connected again: cuts off {max(0, ended - common)} records of {TOPIC}-0, "
        f"from {common} on, that were never committed",
    )
    await _whole(stage, victim)
    await writer.more(SOME)
    count = await _count(stage, writer)
    return _ending(count, "from the cut to the next leader", elected_s)


async def _write_to(stage: Stage, node_id: int) -> str:
    """Write one record by way of a node that is cut off; what came of it."""
    client = CLIENT._replace(request_timeout_ms=1000)
    config = ProducerConfig(delivery_timeout_ms=1200, max_block_ms=5000, linger_ms=0, client=client)
    node = stage.plan.node(node_id)
    assert node is not None
    producer = Producer(*stage.seams, node.address, config)
    try:
        await (await producer.send(TOPIC, b"-1", partition=0))
    except BarnabasError:
        return (
            "appends what a client sends with acks=all, and acknowledges none of it: no other replica has it"
        )
    finally:
        await producer.close(timeout_ms=0)
    return "hands a client over to the new leader, which acknowledges its record"


async def _two_controllers(stage: Stage, victim: int) -> None:
    """Wait until the old active controller has resigned, and say who is active by then."""
    others = [each for each in stage.ids if each != victim]
    asked = AskedTopic(topic_name="__cluster_metadata", partitions=[AskedPartition(partition_index=0)])
    request = DescribeQuorumRequest(topics=[asked])
    answer = None
    for each in others:
        answer = answer or await stage.ask(each, request, DescribeQuorumResponse)
    if answer is not None and answer.topics and answer.topics[0].partitions:
        quorum = answer.topics[0].partitions[0]
        stage.timeline.add(
            lane(quorum.leader_id),
            f"is the active controller in epoch {quorum.leader_epoch}, by two votes of three",
        )

    async def has_resigned() -> bool:
        told = await stage.ask(victim, request, DescribeQuorumResponse, as_controller=True)
        return told is not None and not _leads(told, victim)

    await stage.until(has_resigned, f"node {victim} is no longer the active controller")
    stage.timeline.add(
        lane(victim), "is no active controller any more: it hears no majority, and has resigned"
    )


def _leads(told: DescribeQuorumResponse, node_id: int) -> bool:
    partitions = [] if told.error_code else [each for topic in told.topics for each in topic.partitions]
    return any(not each.error_code and each.leader_id == node_id for each in partitions)


NODE_PLAYS = {
    "broker-death": Play(
        "a broker is killed while it leads a partition",
        "A record is acknowledged when all in-sync replicas have it, two of three at least. The next leader "
        "is one of them, so it has every acknowledged record; a batch that is sent again is known by its "
        "number.",
        broker_death,
    ),
    "isolated-leader": Play(
        "a leader is cut off from the other nodes, but not from its clients",
        "A leader that is cut off cannot acknowledge alone: the replicas in sync do not answer, and only the "
        "active controller could take them out of the ISR. What it appended meanwhile is not committed, and "
        "is cut off by leader epoch when it comes back; the producer sends it to the new leader.",
        isolated_leader,
    ),
    "split-brain": Play(
        "the node that leads a partition and the quorum is cut off: two sides, two leaders",
        "Only a majority of the voters can elect a controller, and only it makes leaders. Each has an epoch, "
        "and the higher one counts: replicas follow it, and the minority's leader can commit nothing.",
        split_brain,
    ),
}
