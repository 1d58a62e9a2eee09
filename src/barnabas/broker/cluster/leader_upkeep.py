"""Periodic elections of the active controller (controller/leader_upkeep.py chooses the leaders).

    leader.imbalance.check.interval.seconds   preferred leaders, unless auto.leader.rebalance.enable is false
    unclean.leader.election.interval.ms       partitions without a leader

The first check is one interval after the controller has become active. The check for preferred leaders goes
through all partitions and yields to other tasks in between; its elections are decided in portions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from barnabas.broker.quorum.controller import ActiveController
from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.controller.elections import ElectionDefaults
from barnabas.controller.leader_upkeep import (
    MAX_ELECTIONS,
    has_leaderless,
    lead_leaderless,
    not_preferred,
    prefer,
)
from barnabas.core.clock import Clock
from barnabas.metadata.image import ClusterImage

logger = logging.getLogger("barnabas.controller")

PARTITIONS_A_TURN = 1000


class LeaderUpkeep:
    """`preferred_s` and `leaderless_s` are the intervals; None for no elections of that kind."""

    def __init__(
        self,
        active: ActiveController,
        clock: Clock,
        *,
        preferred_s: float | None,
        leaderless_s: float,
        election_defaults: Callable[[ClusterImage], ElectionDefaults],
    ) -> None:
        self._active = active
        self._clock = clock
        self._preferred_s = preferred_s
        self._leaderless_s = leaderless_s
        self._defaults = election_defaults

    async def run(self) -> None:
        """Elect leaders until cancelled. Begins when this node has become the active controller."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._every(self._leaderless_s, self._lead_leaderless))
                if self._preferred_s is not None:
                    tasks.create_task(self._every(self._preferred_s, self._prefer))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _every(self, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(seconds)
            try:
                await look()
            except NOT_COMMITTED as error:
                logger.warning("elections wait for the next look at the leaders: %s", error)

    async def _prefer(self) -> None:
        found: list[tuple[bytes, int]] = []
        image, seen = self._active.decided, 0
        for topic in list(image.topics_by_name.values()):
            found += not_preferred(image, topic)
            seen += len(topic.partitions)
            if seen >= PARTITIONS_A_TURN:
                seen = 0
                await asyncio.sleep(0)
        count = 0
        for at in range(0, len(found), MAX_ELECTIONS):
            some = found[at : at + MAX_ELECTIONS]
            count += await self._active.submit(
                lambda image, some=some: prefer(image, some, self._defaults(image))  # type: ignore[misc]
            )
        if count:
            logger.info("preferred leaders lead again in %d partitions", count)

    async def _lead_leaderless(self) -> None:
        count = MAX_ELECTIONS
        while count == MAX_ELECTIONS and has_leaderless(self._active.decided):
            count = await self._active.submit(lambda image: lead_leaderless(image, self._defaults(image)))
            if count:
                logger.info("%d partitions without a leader have one now", count)
