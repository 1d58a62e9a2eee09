"""Clients of groups: they join, read what they are given, commit, leave, stall, and commit what they should
not.

A member reads on from what was committed. Sooner or later it stalls for longer than its session, leaves, or
tries a commit in the name of an earlier generation. Others only look at what has been committed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from barnabas.client.consumer import Consumer
from barnabas.sim.chance import between, happens, pick
from barnabas.sim.coordination_scenario import GroupPlan
from barnabas.sim.group_events import GroupSeen, Place
from barnabas.sim.workload.client import Client
from barnabas.sim.workload.coordinators import Asking
from barnabas.sim.workload.membership import Member
from barnabas.sim.workload.reading import make_consumer

FETCH_BYTES = 50_000
POLL_MS, POLL_RECORDS = 600, 50
HEARTBEATS_A_SESSION = 4
LEAVES, STALLS, COMMITS_LATE, COMMITS = 0.02, 0.02, 0.25, 0.5
STALL_S = (0.8, 1.6)  # times the session
WATCH_S = 0.7
VANISH_S = 10.0


async def run_member(
    client: Client, plan: GroupPlan, instance: str, places: Sequence[Place], is_last: bool = False
) -> None:
    """Be a member until asked to stop, again and again; the last ones stay, and say what they have."""
    async with Asking(client) as asking, make_consumer(client, FETCH_BYTES) as consumer:
        working = _Working(client, asking, consumer, plan, instance, places, is_last)
        while not client.stopping.is_set():
            await client.go_on(f"being a member of {plan.name}", working.live)
            await client.pause(0.3)
        working.say_what_it_has()
        if not is_last and happens(client.random, 0.5):
            await client.go_on(f"leaving {plan.name}", working.leave)


class _Working:
    def __init__(
        self,
        client: Client,
        asking: Asking,
        consumer: Consumer,
        plan: GroupPlan,
        instance: str,
        places: Sequence[Place],
        is_last: bool,
        until: float = math.inf,
    ) -> None:
        self._client, self._asking, self._consumer, self._plan = client, asking, consumer, plan
        self._member = Member(client, asking, plan, instance, places)
        self._positions: dict[Place, int] = {}
        self._is_last = is_last
        self._next_heartbeat_at = 0.0
        self._until = until

    async def live(self) -> None:
        """From joining until something goes wrong."""
        client, member = self._client, self._member
        while not client.stopping.is_set() and client.now < self._until:
            if member.must_join or member.has_run_out():
                before = member.generation
                await self._join()
                await self._commit_late(before)
            await self._read()
            if client.now >= self._next_heartbeat_at:
                self._next_heartbeat_at = client.now + self._plan.session_ms / 1000 / HEARTBEATS_A_SESSION
                await client.go_on("a heartbeat", member.heartbeat)
            if self._positions and member.places is not None and happens(client.random, COMMITS):
                await client.go_on("a commit", partial(member.commit, dict(self._positions)))
            await self._misbehave()

    async def _join(self) -> None:
        places = await self._member.join()
        self._positions = {}
        self._consumer.assign(places)
        if places:
            found = await self._asking.committed(self._plan.name, places, is_stable=True)
            for place, (offset, _) in found.items():
                self._positions[place] = max(offset, 0)
                self._consumer.seek(place, max(offset, 0))

    async def _read(self) -> None:
        if not self._positions:
            await self._client.pause(POLL_MS / 1000)
            return
        await self._consumer.poll(POLL_MS, POLL_RECORDS)
        for place in self._positions:
            self._positions[place] = await self._consumer.position(place)

    async def _misbehave(self) -> None:
        client, random = self._client, self._client.random
        if self._is_last:
            return
        if happens(random, LEAVES):
            await self.leave()
        elif happens(random, STALLS):
            await client.clock.sleep(between(random, *STALL_S) * self._plan.session_ms / 1000)

    async def _commit_late(self, generation: int) -> None:
        """A commit in the name of a generation that is over."""
        client, member = self._client, self._member
        is_over = 0 <= generation < member.generation
        if is_over and self._positions and not self._is_last and happens(client.random, COMMITS_LATE):
            late = {place: client.random.below(position + 1) for place, position in self._positions.items()}
            await client.go_on("a late commit", partial(member.commit, late, generation))

    async def leave(self) -> None:
        if self._member.member_id:
            await self._member.leave()

    def say_what_it_has(self) -> None:
        if self._is_last:
            client, member = self._client, self._member
            has_any = member.places is not None and not member.must_join
            generation, places = (member.generation, member.places or ()) if has_any else (-1, ())
            seen = GroupSeen(client.now, self._plan.name, client.name, generation, places)
            client.history.add(seen)


async def run_vanisher(client: Client, plan: GroupPlan, places: Sequence[Place]) -> None:
    """Be a member, as the last ones are, and after a while say nothing any more."""
    until = client.now + VANISH_S
    async with Asking(client) as asking, make_consumer(client, FETCH_BYTES) as consumer:
        working = _Working(client, asking, consumer, plan, "", places, is_last=True, until=until)
        while client.now < until:
            await client.go_on(f"being a member of {plan.name}", working.live)
            await client.pause(0.3)


async def run_commit_watcher(client: Client, groups: Sequence[str], places: Sequence[Place]) -> None:
    """Look at what is committed, until asked to stop."""
    async with Asking(client) as asking:

        async def look() -> None:
            is_stable = happens(client.random, 0.5)
            await asking.committed(pick(client.random, groups), places, is_stable=is_stable)

        while not client.stopping.is_set():
            await client.go_on("looking at commits", look)
            await client.pause(WATCH_S)
