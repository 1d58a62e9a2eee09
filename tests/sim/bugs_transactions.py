"""Bugs in transactions: epochs and fencing, markers and what they decide, and what readers are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.broker.coordinators import loading, produced, verification
from barnabas.broker.coordinators.markers import MarkerSender
from barnabas.coordination.effects import NOTHING, Effects, Markers, Now, Producer
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.offsets import OffsetStore
from barnabas.log import directory, reading
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import TRUSTED, ProducerStates
from barnabas.sim.scenario import TRANSACTIONS
from barnabas.transactions import ending, initialising
from barnabas.transactions import shard as shards
from barnabas.transactions.records import TransactionLogKey
from barnabas.transactions.shard import TransactionShard
from barnabas.transactions.states import ONGOING
from barnabas.transactions.transaction import Move, Transaction
from tests.sim.bugs_groups import forget_at_load
from tests.sim.bugs_switch import Patch, bug, loops_in_group, new_way, starts

# ---- offsets in transactions -----------------------------------------------------------------------------


@bug("offsets committed in a transaction show before it commits", "commits", kind=TRANSACTIONS)
def pending_offsets_visible(patch: Patch) -> None:
    replay = OffsetStore.replay

    def at_once(self: OffsetStore, key: Any, value: Any, producer: Producer | None) -> None:
        replay(self, key, value, None)

    patch(OffsetStore, "replay", at_once)


@bug(
    "offsets committed in a transaction are dropped when it commits",
    "commits",
    "exactly-once",
    kind=TRANSACTIONS,
)
def pending_offsets_dropped(patch: Patch) -> None:
    replay_end = OffsetStore.replay_end

    def drop(self: OffsetStore, producer: Producer, is_commit: bool) -> None:
        replay_end(self, producer, False)

    patch(OffsetStore, "replay_end", drop)


@bug(
    "ends of transactions among the offsets are not replayed at a start",
    "commits",
    "settling",
    kind=TRANSACTIONS,
)
def ends_not_replayed(patch: Patch) -> None:
    patch(loading, "parse_end_transaction", lambda chunk, position, header: None)


@bug(
    "offsets in a transaction are taken of any generation",
    "ownership",
    "exactly-once",
    kind=TRANSACTIONS,
    needs=(loops_in_group,),
)
def zombie_member_commits(patch: Patch) -> None:
    check_commit = ClassicGroup.check_commit

    def lax(self: ClassicGroup, *args: Any, is_transactional: bool) -> None:
        if not is_transactional:
            check_commit(self, *args, is_transactional=False)

    patch(ClassicGroup, "check_commit", lax)


# ---- epochs ----------------------------------------------------------------------------------------------


@bug("InitProducerId gives the epoch that there was", "fencing", kind=TRANSACTIONS)
def epoch_not_raised(patch: Patch) -> None:
    def same(transaction: Transaction, expected: Producer | None, last_epoch: int) -> tuple[int, int]:
        return transaction.epoch, -1

    patch(initialising, "_next_epoch", same)


@bug("EndTxn of an earlier epoch ends what is open now", "isolation", kind=TRANSACTIONS, needs=(new_way,))
def late_end_accepted(patch: Patch) -> None:
    honest = shards.ended_with_bump

    def lax(transaction: Transaction | None, asked: Producer, **kwargs: Any) -> Move | None:
        if transaction is not None and transaction.state == ONGOING and asked.id == transaction.producer_id:
            asked = transaction.producer
        return honest(transaction, asked, **kwargs)

    patch(shards, "ended_with_bump", lax)


@bug(
    "the end of a transaction does not raise the epoch, so what comes late is in the next one",
    "isolation",
    "exactly-once",
    kind=TRANSACTIONS,
    needs=(new_way,),
)
def epoch_for_ever(patch: Patch) -> None:
    bumped, markers = ending._bumped, shards.markers

    def same_epoch(transaction: Transaction, *args: Any) -> Move:
        move = bumped(transaction, *args)
        return move._replace(transaction=move.transaction._replace(epoch=transaction.epoch))

    def old_markers(transactional_id: str, transaction: Transaction) -> Markers:
        return markers(transactional_id, transaction)._replace(transaction_version=0)

    patch(ending, "_bumped", same_epoch)
    patch(shards, "markers", old_markers)


@bug(
    "what a coordinator refuses is written all the same, and hangs",
    "settling",
    "isolation",
    "fencing",
    kind=TRANSACTIONS,
    needs=(new_way,),
)
def not_verified(patch: Patch) -> None:
    verify = verification.verify

    async def trust(claims: Sequence[Any], *args: Any) -> list[Any]:
        return [TRUSTED if isinstance(one, Exception) else one for one in await verify(claims, *args)]

    patch(produced, "verify", trust)


# ---- ends ------------------------------------------------------------------------------------------------


@bug(
    "the last partition of a transaction gets no marker",
    "settling",
    "exactly-once",
    "commits",
    kind=TRANSACTIONS,
)
def marker_missing(patch: Patch) -> None:
    send = MarkerSender.send

    def send_less(self: MarkerSender, host: Any, markers: Markers) -> None:
        send(
            self, host, markers._replace(partitions=markers.partitions[: max(1, len(markers.partitions) - 1)])
        )

    patch(MarkerSender, "send", send_less)


@bug(
    "transactions that are decided are not ended after a start",
    "settling",
    kind=TRANSACTIONS,
    needs=(starts,),
)
def prepared_left(patch: Patch) -> None:
    loaded = TransactionShard.loaded

    def forget(self: TransactionShard, now: Now) -> Effects:
        loaded(self, now)
        return NOTHING

    patch(TransactionShard, "loaded", forget)


@bug("transactions that take too long are never aborted", "settling", kind=TRANSACTIONS)
def never_timed_out(patch: Patch) -> None:
    def wait_for_ever(self: TransactionShard, now: Now) -> list[Effects]:
        list(self._timeouts.take_due(now.seconds))
        return []

    patch(TransactionShard, "_timed_out", wait_for_ever)


@bug("a transaction that takes too long is committed", "isolation", kind=TRANSACTIONS)
def timed_out_commits(patch: Patch) -> None:
    fenced = shards.fenced

    def commit(transaction: Transaction, level: int, now_ms: int) -> Move:
        move = fenced(transaction, level, now_ms)
        return move._replace(transaction=move.transaction._replace(state=ending.PREPARE_COMMIT))

    patch(shards, "fenced", commit)


@bug("transactional ids are forgotten at a start", "settling", "fencing", kind=TRANSACTIONS, needs=(starts,))
def transactions_not_replayed(patch: Patch) -> None:
    forget_at_load(patch, TransactionLogKey)


@bug("what is open is not aborted by a new producer, which goes on with it", "isolation", kind=TRANSACTIONS)
def open_taken_over(patch: Patch) -> None:
    initialised = shards.initialised

    def take_over(transaction: Transaction, *args: Any, **kwargs: Any) -> Move:
        if transaction.state != ONGOING:
            return initialised(transaction, *args, **kwargs)
        return Move(transaction._replace(epoch=transaction.epoch + 1))

    patch(shards, "initialised", take_over)


# ---- readers ---------------------------------------------------------------------------------------------


@bug("readers of what is committed are not told what was aborted", "isolation", kind=TRANSACTIONS)
def aborted_not_told(patch: Patch) -> None:
    async def nothing(*args: Any) -> list[Any]:
        return []

    patch(reading, "_aborted_between", nothing)


@bug("what is committed ends at the high watermark", "stable", "isolation", kind=TRANSACTIONS)
def stable_is_high_watermark(patch: Patch) -> None:
    patch(PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark))


@bug(
    "open transactions are forgotten at a start",
    "stable",
    "isolation",
    "settling",
    kind=TRANSACTIONS,
    needs=(starts,),
)
def open_forgotten(patch: Patch) -> None:
    open_partition = directory.open_partition

    async def forget(*args: Any, **kwargs: Any) -> PartitionLog:
        log = await open_partition(*args, **kwargs)
        log.producers = ProducerStates(log.end_offset)
        return log

    patch(directory, "open_partition", forget)
