"""Those who read what transactions wrote: committed or all of it, from the start or at the end; and those
who ask where what is committed ends. At last, a read of everything, by both kinds of readers.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.admin import Admin
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import LATEST
from barnabas.sim.chance import between
from barnabas.sim.group_events import Place
from barnabas.sim.transaction_events import Drained, OutputFinal, OutputRead, StableFinal, StableSeen
from barnabas.sim.workload.client import CLIENT, Client, mark_of
from barnabas.sim.workload.coordinators import Asking
from barnabas.sim.workload.ending import READ_S, TRIES
from barnabas.sim.workload.reading import make_consumer

POLL_MS = 500
FETCH_BYTES = 20_000
SESSION_S = (3.0, 20.0)
WATCH_S = 0.3
LOOK_S = 1.0
STABLE_S = 40.0  # how long after everything transactions may still be open


class _Marks:
    """What a consumer was given of one poll, by place."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def poll(self) -> dict[Place, list[tuple[int, str]]]:
        found: dict[Place, list[tuple[int, str]]] = {}
        for record in await self._consumer.poll(POLL_MS):
            mark = mark_of(record.value, record.headers)
            found.setdefault((record.topic, record.partition), []).append((record.offset, mark))
        return found


async def run_output_reader(client: Client, places: Sequence[Place], is_committed: bool) -> None:
    """Read from the start, again and again, until asked to stop."""
    number = 0

    async def read() -> None:
        async with make_consumer(client, FETCH_BYTES, read_committed=is_committed) as consumer:
            consumer.assign(places)
            at = dict.fromkeys(places, 0)
            for place in places:
                consumer.seek(place, 0)
            until, before, now = client.now + between(client.random, *SESSION_S), client.now, client.now
            while client.now < until and not client.stopping.is_set():
                before, now = now, client.now  # a fetch may have been sent while the one before was used
                found = await _Marks(consumer).poll()
                for place in places:
                    start, at[place] = at[place], await consumer.position(place)
                    if at[place] > start:
                        session, marks = f"{client.name}#{number}", tuple(found.get(place, ()))
                        client.history.add(
                            OutputRead(
                                client.now, before, session, is_committed, *place, start, at[place], marks
                            )
                        )

    while not client.stopping.is_set():
        number += 1
        await client.go_on("reading the output", read)
        await client.pause(1.0)


async def run_stable_watcher(client: Client, places: Sequence[Place]) -> None:
    """Ask where what is committed ends, until asked to stop."""
    async with Admin(*client.seams, CLIENT) as admin:

        async def look() -> None:
            asked_at = client.now
            found = await admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
            for place, one in found.items():
                client.history.add(StableSeen(client.now, asked_at, client.name, *place, one.offset))

        while not client.stopping.is_set():
            await client.go_on("asking for stable offsets", look)
            await client.pause(WATCH_S)


# ---- at last -----------------------------------------------------------------------------------------------


async def drain(client: Client, group: str, places: Sequence[Place], patience_s: float) -> None:
    """Wait until all of these have been worked off, and tell how far each was."""
    committed, ends = dict.fromkeys(places, -1), dict.fromkeys(places, 0)

    async def look() -> None:
        nonlocal committed, ends
        committed, ends = await _progress(client, group, places)

    deadline = client.now + patience_s
    while any(committed[place] < ends[place] for place in places) and client.now < deadline:
        await client.go_on("looking at what is done", look)
        await client.pause(LOOK_S)
    for place in places:
        is_done = committed[place] >= ends[place]
        client.history.add(Drained(client.now, group, *place, ends[place], is_done))


async def _progress(
    client: Client, group: str, places: Sequence[Place]
) -> tuple[dict[Place, int], dict[Place, int]]:
    async with Asking(client) as asking, make_consumer(client, FETCH_BYTES) as consumer:
        ends = await consumer.end_offsets(*places)
        committed = await asking.committed(group, places, is_stable=True)
    return {place: max(0, offset) for place, (offset, _) in committed.items()}, {
        (each.topic, each.partition): end for each, end in ends.items()
    }


async def read_outputs(client: Client, places: Sequence[Place]) -> None:
    """When nothing is open any more, or patience is over: all of the output, as either reader sees it."""
    deadline = client.now + STABLE_S
    for place in places:
        await _tell_stable(client, place, deadline)
        for is_committed in (True, False):
            for _ in range(TRIES):
                if await client.go_on(f"reading {place[0]}-{place[1]}", _Final(client, place, is_committed)):
                    break


async def _tell_stable(client: Client, place: Place, deadline: float) -> None:
    ends = [-1, 0]

    async def ask() -> None:
        async with Admin(*client.seams, CLIENT) as admin:
            for index, read_committed in enumerate((True, False)):
                found = await admin.list_offsets({place: LATEST}, read_committed=read_committed)
                (ends[index],) = (one.offset for one in found.values())

    while ends[0] < ends[1] and client.now < deadline:
        await client.go_on("asking for the end", ask)
        await client.pause(0.5)
    client.history.add(StableFinal(client.now, *place, ends[0], ends[1]))


class _Final:
    def __init__(self, client: Client, place: Place, is_committed: bool) -> None:
        self._client, self._place, self._is_committed = client, place, is_committed

    async def __call__(self) -> None:
        client, place = self._client, self._place
        async with make_consumer(client, 1 << 20, read_committed=self._is_committed) as consumer:
            asked_at = client.now
            (start,) = (await consumer.beginning_offsets(place)).values()
            (end,) = (await consumer.end_offsets(place)).values()
            consumer.assign([place])
            consumer.seek(place, start)
            marks: list[tuple[int, str]] = []
            deadline = client.now + READ_S
            while await consumer.position(place) < end and client.now < deadline:
                marks += (await _Marks(consumer).poll()).get(place, [])
            if await consumer.position(place) >= end:
                final = OutputFinal(
                    client.now, asked_at, self._is_committed, *place, start, end, tuple(marks)
                )
                client.history.add(final)
