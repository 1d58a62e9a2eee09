"""Records deleted on a broker that crashes, loses power and has a failing disk.

Where a deletion was answered, the log never begins before that again. Where it was not, it may have been
carried out or not. Nothing else goes: what was acknowledged beyond every deletion is there, unless power was
lost.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from barnabas.client.admin import Admin
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.core.errors import BarnabasError
from barnabas.log import trimming
from barnabas.log.partition import PartitionLog
from barnabas.records.compression import Codec
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Acked, Crash, FinalRead, History, Sent
from barnabas.sim.process import Process
from barnabas.sim.scenario import ProducerPlan, Scenario, TopicPlan, draw_scenario
from barnabas.sim.world import Outcome, World, simulate_scenario
from tests.sim import tiny

PLACE = TopicPartition("t", 0)
SECONDS = 40.0
PAUSE_S = 1.0
CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
    "segment.bytes": str(1 << 20),
    "file.delete.delay.ms": "1000",
}


class Deletion(NamedTuple):
    """What was asked for, and the start that was answered, and when; None where there was no answer."""

    offset: int
    low_watermark: int | None = None
    answered_at: float = 0.0


def scenario_of(seed: int) -> Scenario:
    producer = ProducerPlan("p", "t", 20.0, 200, 0, Codec.NONE, -1, True, 5.0, 4_000, 5)
    drawn = draw_scenario(seed, SECONDS)
    faults = drawn.faults | {"power-loss": 12.0, "process-crash": 12.0}
    return drawn._replace(topics=(TopicPlan("t", 1, CONFIGS),), producers=(producer,), faults=faults)


async def delete_some(world: World, process: Process, deletions: list[Deletion]) -> None:
    clock, random = process.clock, process.random
    async with Admin(process.network, clock, random, world.bootstrap, tiny.CLIENT) as admin:
        while clock.monotonic() < world.scenario.seconds:
            await clock.sleep(PAUSE_S * (0.5 + random.uniform()))
            try:
                start = (await admin.list_offsets({PLACE: EARLIEST}))[PLACE].offset
                end = (await admin.list_offsets({PLACE: LATEST}))[PLACE].offset
                wanted = start + random.below(max(1, end - start + 1))
                deletions.append(Deletion(wanted))
                (low_watermark,) = (await admin.delete_records({PLACE: wanted})).values()
                deletions[-1] = Deletion(wanted, low_watermark, clock.monotonic())
            except BarnabasError:
                continue  # faults are what it is here for


def run(seed: int) -> tuple[Outcome, list[Deletion]]:
    deletions: list[Deletion] = []

    async def workload(world: World) -> None:
        process = world.process("deleter")
        process.spawn(delete_some(world, process, deletions))
        await tiny.run(world)

    def check(history: History) -> list[Violation]:
        return violations_of(history, deletions)

    return simulate_scenario(scenario_of(seed), workload, check), deletions


def violations_of(history: History, deletions: list[Deletion]) -> list[Violation]:
    (final,) = history.of(FinalRead)
    said = []
    answered = [
        each.low_watermark
        for each in deletions
        if each.low_watermark is not None and each.answered_at <= final.asked_at
    ]
    if answered != sorted(answered):
        said.append(f"the start went back: {answered}")
    if final.start_offset < max(answered, default=0):
        said.append(f"{final.start_offset} is the start, although {max(answered)} was answered")
    asked = max((each.offset for each in deletions), default=0)
    if final.start_offset > asked:
        said.append(f"{final.start_offset} is the start, although nobody deleted beyond {asked}")
    there = {record.offset for record in final.records}
    if min(there, default=final.start_offset) < final.start_offset:
        said.append(f"{min(there)} was read, before the start {final.start_offset}")
    sent_at = {event.mark: event.at for event in history.of(Sent)}
    last_power_loss = max((event.at for event in history.of(Crash) if event.kind == "power"), default=-1.0)
    said += [
        f"offset {event.offset} is gone"
        for event in history.of(Acked)
        if event.offset >= max(asked, final.start_offset)
        and event.offset not in there
        and sent_at[event.mark] > last_power_loss
    ]
    return [Violation("deletions", final.at, each) for each in said]


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_deletion_that_was_answered_holds_and_nothing_else_goes(seed: int) -> None:
    outcome, deletions = run(seed)
    assert not outcome.violations, "\n".join(map(str, outcome.violations))
    assert sum(each.low_watermark is not None for each in deletions) > 5


def test_it_would_show_if_an_answer_did_not_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(log: PartitionLog, offset: int) -> None:
        log.start_offset = max(log.start_offset, offset)

    monkeypatch.setattr(trimming, "raise_start_offset", at_once)
    assert any(run(seed)[0].violations for seed in range(1, 5))
