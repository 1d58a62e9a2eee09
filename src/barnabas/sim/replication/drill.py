"""What happens once more when all is well: a replica of a partition is killed or stopped under load.

Under faults a send may take as long as it likes. Here a new topic has one partition with two replicas, either
of which commits alone, or with three, of which two do; one replica goes, and nothing else is wrong. What is
promised of the sends is in checkers/serving.py. The drill of a seed is drawn apart from everything else that
the seed decides. The only voter is not struck, and nobody is killed where living nodes refused dials before:
the controller may have learnt that a refused dial proves nothing, and waits for the session then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import ProducerConfig
from barnabas.core.random import SeededRandom
from barnabas.sim.chance import happens, pick, stream
from barnabas.sim.history import Fault
from barnabas.sim.machine import Machine
from barnabas.sim.replication.events import DrillBegan, DrillStruck, PartitionSeen
from barnabas.sim.workload.client import CLIENT, Client
from barnabas.sim.workload.sending import MAX_BLOCK_MS, Sender

TOPIC = "drill"
SHAPES = ((2, 1), (2, 1), (3, 2))  # replicas and min.insync.replicas
CALM_S, STRUCK_S, DOWN_S = 1.0, 8.0, 6.0
PAUSE_S = 0.1
VALUE_BYTES = 50
DELIVERY_MS = 30_000
LEADER = 0.3  # how often it is the leader


async def run_drill(client: Client, machines: Sequence[Machine]) -> None:
    """One of them, where somebody may be struck."""
    random = stream(client.world.scenario.seed, "replication drill")
    replicas, min_in_sync = pick(random, SHAPES)
    client.history.add(DrillBegan(client.now))
    async with Admin(*client.seams, CLIENT) as admin:
        await admin.create_topics([NewTopic(TOPIC, 1, replicas, {"min.insync.replicas": str(min_in_sync)})])
    config = ProducerConfig(max_block_ms=MAX_BLOCK_MS, delivery_timeout_ms=DELIVERY_MS, client=CLIENT)
    sender = Sender(client, config)
    async with sender.producer:
        sending = asyncio.ensure_future(_send(client, sender))
        await client.clock.sleep(CALM_S)
        _strike(client, random, machines)
        await client.clock.sleep(STRUCK_S)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await sender.producer.flush()


async def _send(client: Client, sender: Sender) -> None:
    while True:
        await sender.send(TOPIC, 0, None, client.random.bytes(VALUE_BYTES))
        await client.clock.sleep(PAUSE_S)


def _strike(client: Client, random: SeededRandom, machines: Sequence[Machine]) -> None:
    seen = [each for each in client.history.of(PartitionSeen) if each.topic == TOPIC]
    plan = client.world.scenario.cluster
    assert plan is not None
    is_leader, kind = happens(random, LEADER), pick(random, ("kill", "kill", "stop"))
    if any(each.kind == "dials-refused" for each in client.history.of(Fault)):
        kind = "stop"
    if not seen:
        return
    leader = seen[-1].leader
    others = [each for each in seen[-1].replicas if each != leader]
    node = leader if is_leader else pick(random, others)
    if plan.voters == (node,):
        return
    machine = next(each for each in machines if each.node == node)
    client.history.add(DrillStruck(client.now, kind, node, node == leader))
    if kind == "kill":
        machine.crash("process", DOWN_S)
    else:
        machine.restart(DOWN_S)
