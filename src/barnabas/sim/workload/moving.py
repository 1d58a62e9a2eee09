"""Admins who have partitions moved to other brokers, moves given up, and leaders elected.

Where topics are replicated only. Nobody asks for a move again: what became of it is seen in the metadata.
When the faults have ended nothing new is begun, so that all that was begun comes to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from barnabas.client.admin import Admin, ElectionType
from barnabas.client.errors import BrokerError
from barnabas.core.errors import BarnabasError
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.sim.chance import happens, pick
from barnabas.sim.cluster.events import DONE, OPEN
from barnabas.sim.coordination_scenario import INTERNAL
from barnabas.sim.replication.events import ElectionAsked, MoveAsked
from barnabas.sim.scenario import REPLICATED, Scenario, TopicPlan
from barnabas.sim.workload.client import CLIENT, Client

PAUSE_S = 2.5
HASTY_PAUSE_S = 1.2  # where coordinators are to move
OTHER_NUMBER = 0.15  # how often a move changes the replication factor
LEFT_OPEN = ("NOT_CONTROLLER", "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR")


def moving_roles(scenario: Scenario) -> dict[str, Callable[[Client], Coroutine[Any, Any, None]]]:
    """The admins of a scenario, by name."""
    plan = scenario.replication
    count = 0 if plan is None else plan.movers
    return {f"mover-{number}": run_mover for number in range(count)}


async def run_mover(client: Client) -> None:
    """Ask for one thing after another, until the faults end."""
    scenario = client.world.scenario
    assert scenario.cluster is not None
    async with Admin(*client.seams, CLIENT) as admin:
        mover = _Mover(client, admin, moved_topics(scenario), scenario.cluster.brokers)
        while not client.stopping.is_set():
            await client.pause(PAUSE_S if scenario.kind not in REPLICATED else HASTY_PAUSE_S)
            if not client.world.faults_ended.is_set():
                await mover.ask()


def moved_topics(scenario: Scenario) -> tuple[TopicPlan, ...]:
    """All topics with replicas; those of coordinators only where they have several."""
    copies, least = scenario.topics, {"min.insync.replicas": "2"}
    coordination = scenario.coordination
    has_groups = bool(coordination.groups or coordination.loops)
    if not (has_groups or coordination.writers):
        return copies
    delete, compact = {"cleanup.policy": "delete"} | least, {"cleanup.policy": "compact"} | least
    outputs = [TopicPlan(name, count, delete, 3) for name, count in coordination.outputs]
    internal = [CONSUMER_OFFSETS] * 2 * has_groups + [TRANSACTION_STATE] * 2 * bool(outputs)
    counts = {name: int(scenario.broker[f"{INTERNAL[name]}.num.partitions"]) for name in INTERNAL}
    return (*copies, *outputs, *(TopicPlan(name, counts[name], compact, 3) for name in internal))


class _Mover:
    def __init__(
        self, client: Client, admin: Admin, topics: tuple[TopicPlan, ...], brokers: tuple[int, ...]
    ) -> None:
        self._client = client
        self._admin = admin
        self._topics = topics
        self._brokers = brokers

    async def ask(self) -> None:
        random = self._client.random
        topic = pick(random, self._topics)
        place = (topic.name, random.below(topic.partitions))
        kinds = [partial(self._move, topic)] * 3 + [self._give_up] + [self._elect_preferred] * 2
        if self._client.world.scenario.kind in REPLICATED:
            kinds += [partial(self._hand_over, topic)] * 3
        if topic.facts.is_unclean:
            kinds.append(self._elect_uncleanly)
        await pick(random, kinds)(place)

    async def _move(self, topic: TopicPlan, place: tuple[str, int]) -> None:
        random = self._client.random
        count = topic.replicas
        if happens(random, OTHER_NUMBER):
            count = max(topic.facts.min_in_sync, min(len(self._brokers), count + pick(random, (-1, 1))))
        left, replicas = list(self._brokers), []
        for _ in range(min(count, len(left))):
            replicas.append(left.pop(random.below(len(left))))
        error = await self._answer(self._admin.alter_reassignments({place: replicas}))
        self._client.history.add(MoveAsked(self._client.now, *place, tuple(replicas), error))

    async def _give_up(self, place: tuple[str, int]) -> None:
        error = await self._answer(self._admin.alter_reassignments({place: None}))
        self._client.history.add(MoveAsked(self._client.now, *place, (), error))

    async def _elect_preferred(self, place: tuple[str, int]) -> None:
        error = await self._answer(self._admin.elect_leaders(ElectionType.PREFERRED, [place]))
        self._client.history.add(ElectionAsked(self._client.now, *place, False, error))

    async def _hand_over(self, topic: TopicPlan, place: tuple[str, int]) -> None:
        """Another order of replicas, and so another leader, at once."""
        await self._move(topic, place)
        await self._elect_preferred(place)

    async def _elect_uncleanly(self, place: tuple[str, int]) -> None:
        error = await self._answer(self._admin.elect_leaders(ElectionType.UNCLEAN, [place]))
        self._client.history.add(ElectionAsked(self._client.now, *place, True, error))

    async def _answer(self, asking: Coroutine[Any, Any, object]) -> str:
        """DONE, OPEN, or the name of an error."""
        try:
            await asking
        except BrokerError as failure:
            return OPEN if failure.error.name in LEFT_OPEN else failure.error.name
        except BarnabasError:
            return OPEN
        return DONE
