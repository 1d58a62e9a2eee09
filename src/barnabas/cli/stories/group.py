"""The members of a story's group as its director sees them: started, killed, told to leave, and listened to.

What members tell is kept: who had which partitions in which generation, what was processed and how often, how
far the group has committed. From that the count is made: nothing acknowledged may be left unprocessed, no
partition may have had two owners in one generation, and no commit may go back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from barnabas.cli.stories.stage import WAIT_S, Stage
from barnabas.cli.stories.timeline import DEAD, GONE, SERVES

GROUP = "readers"
READS = "group reads"


class Group:
    """All members of the group of a story."""

    def __init__(self, stage: Stage, topic: str, partitions: int) -> None:
        self._stage, self._topic, self.partitions = stage, topic, partitions
        self._members: dict[int, asyncio.subprocess.Process] = {}
        self._listening: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self.processed: Counter[str] = Counter()
        self.assigned: dict[int, tuple[int, list[int]]] = {}  # by member: generation, and partitions
        self.committed: dict[int, int] = {}
        self.commits = self.refused = self.generation = 0
        self.batches: Counter[int] = Counter()  # by member
        self.faults: list[str] = []
        self._owners: dict[tuple[int, int], int] = {}
        self._ended: set[int] = set()

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._members.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(process.wait() for process in self._members.values()))
        await asyncio.gather(*self._listening, return_exceptions=True)

    async def join(self, number: int) -> None:
        """Start a member; it joins when it is ready."""
        command = [
            sys.executable,
            "-m",
            "barnabas.cli.stories.member",
            self._stage.bootstrap,
            GROUP,
            self._topic,
        ]
        with (self._stage.directory / f"member-{number}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._members[number] = process
        self._listening.append(asyncio.create_task(self._listen(number, process)))
        self._stage.timeline.add(member_lane(number), "is started, and joins the group", SERVES)

    async def kill(self, number: int) -> None:
        """Kill a member right after it has processed a batch, before that is committed."""
        process, before = self._members[number], self.batches[number]
        await self.until(lambda: self.batches[number] > before, f"member {number} processes a batch")
        process.kill()
        self._ended.add(number)
        self.assigned.pop(number, None)
        text = "is killed (kill -9) after it has processed a batch, and before it commits that"
        self._stage.timeline.add(member_lane(number), text, DEAD)

    async def leave(self, number: int) -> None:
        """Have a member leave, and wait until it has."""
        process = self._members[number]
        self._ended.add(number)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            await process.wait()
        self.assigned.pop(number, None)
        self._stage.timeline.add(member_lane(number), "leaves the group, and says so", GONE)

    async def settled(self, *members: int) -> None:
        """Wait until these share all partitions in one generation."""

        def are() -> bool:
            parts = [self.assigned.get(each) for each in members]
            known = [part for part in parts if part is not None]
            numbers = sorted(number for _, found in known for number in found)
            return (
                len(known) == len(members)
                and len({generation for generation, _ in known}) == 1
                and numbers == list(range(self.partitions))
            )

        await self.until(are, f"members {members} share all partitions")

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"it did not come to this within {WAIT_S:g} s: {what}") from None

    async def _listen(self, number: int, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            with contextlib.suppress(ValueError):  # half a line of one that was killed
                self._heard(number, json.loads(line))
            self._changed.set()
        if number not in self._ended:
            self.faults.append(f"member {number} has ended by itself: see its log")
            self._changed.set()

    def _heard(self, number: int, told: dict[str, Any]) -> None:
        match told["event"]:
            case "assigned" if number not in self._ended:
                self._note_assigned(number, told["generation"], told["partitions"])
            case "read":
                self.batches[number] += 1
                for value in told["values"]:
                    self.processed[value] += 1
                    self._stage.timeline.mark(READS)
            case "committed":
                self.commits += 1
                for partition, offset in told["offsets"].items():
                    self._note_committed(int(partition), offset)
            case "refused":
                self.refused += 1

    def _note_assigned(self, number: int, generation: int, partitions: list[int]) -> None:
        self.assigned[number] = generation, partitions
        self.generation = max(self.generation, generation)
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), number)
            if owner != number:
                self.faults.append(
                    f"generation {generation} gave partition {partition} to {owner} and {number}"
                )

    def _note_committed(self, partition: int, offset: int) -> None:
        before = self.committed.get(partition, 0)
        if offset < before:
            self.faults.append(f"partition {partition} was committed at {before}, and then at {offset}")
        self.committed[partition] = max(before, offset)


def member_lane(number: int) -> str:
    """The lane of a member."""
    return f"member {number}"
