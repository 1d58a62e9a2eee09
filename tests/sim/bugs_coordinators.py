"""Bugs in coordinators that move between nodes: in what is acknowledged and read about a move, in what the
next coordinator takes over, and in markers for partitions that move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from barnabas.broker.coordinators import coordinator, ends, loading
from barnabas.broker.coordinators.coordinator import Coordinator
from barnabas.broker.coordinators.errors import NotCoordinator
from barnabas.broker.coordinators.host import Host
from barnabas.broker.coordinators.loading import load
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.roles import NotLeaderOrFollower
from barnabas.coordination.effects import Effects, Now, Producer, TopicPartition
from barnabas.coordination.records import KeyedRecord, RecordReader
from barnabas.core.errors import BarnabasError
from barnabas.groups.shard import GroupShard
from barnabas.sim.scenario import REPLICATED_GROUPS, REPLICATED_TRANSACTIONS
from barnabas.transactions.records import TransactionLogKey
from barnabas.transactions.shard import TransactionShard
from tests.sim.bugs_switch import Patch, bug

SLOW_LOAD_S = 5.0
LOOK_S = 0.02
SELDOM = "takes a move at one moment: directed simulations have it (tests/sim/coordination)"

OUTPUTS = ("isolation", "exactly-once")

of_groups = partial(bug, kind=REPLICATED_GROUPS, unseen=SELDOM)
of_transactions = partial(bug, kind=REPLICATED_TRANSACTIONS, unseen=SELDOM)

# ---- commits and loads -----------------------------------------------------------------------------------


@of_groups(
    "commits that wait when the lead is lost are acknowledged when another leader has as many records "
    "(KAFKA-20634)",
    "commits",
)
def deposed_acknowledges(patch: Patch) -> None:
    lose = Host._lose

    def wait_on(self: Host[Any], error: BarnabasError) -> None:
        entries = [] if self.lost is not None else list(self._commits._entries)
        if entries and isinstance(error, (NotCoordinator, NotLeaderOrFollower)):
            self._waiting.clear()
            task = asyncio.get_running_loop().create_task(_acknowledge(self.replica, entries))
            self._still_waiting = task  # type: ignore[attr-defined]
        lose(self, error)

    patch(Host, "_lose", wait_on)


async def _acknowledge(replica: Replica, entries: Sequence[Any]) -> None:
    for entry in entries:
        while replica.log.ended is None and replica.log.high_watermark < entry.offset:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        for reply, response in entry.effects.replies:
            if not reply.done():
                reply.set_result(response)


@of_groups(
    "a partition is loaded up to the end of its log, and offsets are told before that is committed", "commits"
)
def loaded_uncommitted(patch: Patch) -> None:
    async def hasty(replica: Any, kinds: Any, shard: Any, turn: Any) -> float:
        await replica.count_written()
        log = replica.log
        args = (log, log.start_offset, log.end_offset, RecordReader(kinds), shard)
        await loading._replay(*args, lambda: asyncio.sleep(0))
        return 0.0

    patch(coordinator, "load", hasty)


@of_groups(
    "a load that takes long (every other one does) is used, although another epoch has begun meanwhile",
    "commits",
    "ownership",
    "settling",
)
def overtaken_load_used(patch: Patch) -> None:
    is_current = Coordinator._is_current

    async def slow(replica: Replica, *args: Any) -> float:
        is_slow = replica.leader_epoch % 2
        waited_seconds = await load(replica, *args)
        if is_slow:
            await asyncio.sleep(SLOW_LOAD_S)
        return waited_seconds

    def lax(self: Coordinator[Any], host: Host[Any]) -> bool:
        if host.lost is None and self._hosts.get(host.replica.partition) is not host:
            host.epoch = host.replica.leader_epoch  # it has just been loaded
        return is_current(self, host)

    patch(coordinator, "load", slow)
    patch(Coordinator, "_is_current", lax)


# ---- what is taken over ----------------------------------------------------------------------------------


@of_transactions("a new coordinator knows of no timeouts of transactions that were open", "settling")
def timeouts_not_kept(patch: Patch) -> None:
    loaded = TransactionShard.loaded

    def without_timeouts(self: TransactionShard, now: Now) -> Effects:
        effects = loaded(self, now)
        for name in self.transactions:
            self._timeouts.discard(name)
        return effects

    patch(TransactionShard, "loaded", without_timeouts)


class Bumpless:
    """A shard to be loaded in which the epochs of producers are never raised."""

    def __init__(self, shard: Any) -> None:
        self._shard = shard

    def replay(self, record: KeyedRecord, producer: Producer | None) -> None:
        if not isinstance(record.key, TransactionLogKey):
            self._shard.replay(record, producer)
            return
        known, name = self._shard.transactions, record.key.transactional_id
        before = known.get(name)
        self._shard.replay(record, producer)
        after = known.get(name)
        if before is not None and after is not None and before.producer_id == after.producer_id:
            known[name] = after._replace(epoch=before.epoch)

    def replay_end(self, producer: Producer, is_commit: bool) -> None:
        self._shard.replay_end(producer, is_commit)


@of_transactions("a new coordinator does not know that epochs of producers were raised", "fencing", *OUTPUTS)
def bumps_lost(patch: Patch) -> None:
    async def forget(replica: Any, kinds: Any, shard: Any, turn: Any) -> float:
        return await load(replica, kinds, Bumpless(shard), turn)  # type: ignore[arg-type]

    patch(coordinator, "load", forget)


@of_transactions(
    "a new coordinator does not know of offsets in open transactions", "commits", "exactly-once", "settling"
)
def pending_lost(patch: Patch) -> None:
    loaded = GroupShard.loaded

    def without_pending(self: GroupShard, now: Now) -> Effects:
        for group in self.offsets.by_group.values():
            group.pending.clear()
        self.offsets._open.clear()
        return loaded(self, now)

    patch(GroupShard, "loaded", without_pending)


# ---- markers ---------------------------------------------------------------------------------------------


@of_transactions(
    "a marker that comes to a node which does not lead its partition counts as written",
    "settling",
    "commits",
    *OUTPUTS,
)
def old_leader_takes_markers(patch: Patch) -> None:
    write_all = ends._write_all

    async def take(place: TopicPartition, some: Sequence[Any], services: Any) -> list[BarnabasError | None]:
        found = await write_all(place, some, services)
        return [None if isinstance(each, NotLeaderOrFollower) else each for each in found]

    patch(ends, "_write_all", take)
