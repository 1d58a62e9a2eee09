"""Scripts of transactions whose coordinators, and whose partitions, move."""

from __future__ import annotations

from contextlib import suppress
from copy import copy

from barnabas.core.errors import BarnabasError
from barnabas.sim.workload.transacting import TransactionalProducer
from tests.sim.coordination.directed import (
    CONTROLLER,
    GROUPS,
    INPUT,
    OTHER_OUTPUT,
    OUTPUT,
    TRANSACTIONS,
    Stage,
)

LONG_MS = 60_000


async def open_transaction_times_out(stage: Stage) -> None:
    """A transaction is left open, and its coordinator moves."""
    await stage.begun()
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    await stage.wait(12.0)
    await stage.stable()


async def epochs_after_a_move(stage: Stage) -> None:
    """Producers of one id begin one after another; the last one has another coordinator."""
    for _ in range(3):
        await stage.again(stage.producer().begin_life)
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    await stage.again(stage.producer().begin_life)


async def offsets_in_a_transaction(stage: Stage) -> None:
    """Offsets are committed in a transaction, and the group's coordinator moves before it ends."""
    await stage.commit(0)
    producer = await stage.begun()
    await producer.commit_offsets("g", {(INPUT, 0): 77}, None)
    await stage.lead(GROUPS, 3, 2, 4)
    await stage.look(is_stable=False)
    await stage.wait(0.1)
    await producer.end(is_commit=True)
    await stage.drained(77)
    await stage.lead(GROUPS, 2, 3, 4)
    await stage.wait(1.0)
    await stage.drained(77)
    await stage.stable()


async def marker_for_an_old_leader(stage: Stage) -> None:
    """A coordinator that does not know of a move sends the marker to the leader of before."""
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    producer = await stage.begun()
    stage.cut(CONTROLLER, 3)
    await stage.lead(OUTPUT, 4, 3, 2)
    stage.begin(lambda: producer.end(is_commit=True))
    await stage.wait(1.0)
    stage.join(CONTROLLER, 3)
    await stage.wait(10.0)
    await stage.stable()


async def decided_transaction_moves(stage: Stage) -> None:
    """The coordinator moves when a transaction is decided, and its marker cannot be committed yet."""
    producer = await stage.begun()
    await stage.lead(OUTPUT, 4, 3, 2)
    stage.cut(4, 2)
    stage.cut(4, 3)
    stage.begin(lambda: producer.end(is_commit=True))
    await stage.wait(0.5)
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    stage.join(4, 2)
    stage.join(4, 3)
    await stage.wait(10.0)
    await stage.stable()


async def late_requests(stage: Stage) -> None:
    """What a producer asked for in a transaction that is over comes late, when its coordinator has moved:
    while nothing is open, and while its next transactions are."""
    producer = await stage.begun()
    late = _as_it_is(producer)
    await producer.end(is_commit=True)
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    with suppress(BarnabasError):
        await late.write(OTHER_OUTPUT, [""])
    producer.begin()
    await producer.write(OUTPUT, [""])
    with suppress(BarnabasError):
        await late.write(OUTPUT, [""])
    await _end(producer, is_commit=False)
    producer = await stage.begun()
    await _end(late, is_commit=True)
    await _end(producer, is_commit=False)
    await stage.read_outputs()


def _as_it_is(producer: TransactionalProducer) -> TransactionalProducer:
    """The producer as it is now, which knows of nothing that comes after."""
    late = copy(producer)
    late._sequences = dict(producer._sequences)
    return late


async def _end(producer: TransactionalProducer, *, is_commit: bool) -> None:
    """Try to end a transaction; another one may have ended it."""
    with suppress(BarnabasError):
        await producer.end(is_commit)


async def open_through_moves(stage: Stage) -> None:
    """Transactions are open while their coordinator moves and a replica of their partition is started anew,
    which leads it then. One is left, one is taken over by the producer's next life, one commits."""
    await stage.begun("left")
    await stage.begun("taken over", LONG_MS)
    open_one = await stage.begun("open", LONG_MS)
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    after = await stage.begun("taken over", LONG_MS)
    await after.end(is_commit=True)
    life = stage.machine(4).life
    stage.machine(4).crash("process", 0.5)
    await stage.until(lambda: stage.machine(4).life > life and stage.machine(4).running is not None)
    await stage.lead(OUTPUT, 4, 3, 2)
    await stage.look_stable()
    await stage.wait(6.0)
    await stage.look_stable()
    await open_one.end(is_commit=True)
    await stage.read_outputs()
