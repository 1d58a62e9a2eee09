"""The transactional ids of one partition of `__transaction_state`, and the commands on them.

Each command finds the id, has its next state decided (`initialising`, `adding`, `ending`), and returns the
record of that state; `replay` applies it. Some state is in memory only, and may be lost with the process: the
epoch before the current one, by which a repeated InitProducerId is recognised, and the deadlines, which a
load computes again.

    - An epoch is never given to two producers, and never goes back for a producer id.
    - The end of a prepared transaction is certain: its markers are sent, again after a load, until
      `markers_written` reports that every partition has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from barnabas.coordination.effects import (
    NOTHING,
    Effects,
    Markers,
    Now,
    Producer,
    Reply,
    TopicPartition,
    Write,
)
from barnabas.coordination.records import KeyedRecord
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.schema import Struct
from barnabas.transactions.adding import added, verified
from barnabas.transactions.answers import (
    INIT_KNOWS_FENCED,
    NO_PRODUCER,
    OTHERS_KNOW_FENCED,
    end_answer,
    init_answer,
    partitions_of,
    partitions_result,
    told,
)
from barnabas.transactions.deadlines import Deadlines
from barnabas.transactions.ending import completed, ended, ended_with_bump, fenced, producer_after
from barnabas.transactions.initialising import begun, initialised, refusal_of
from barnabas.transactions.listing import described
from barnabas.transactions.records import TransactionLogKey
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.states import ONGOING, PREPARED
from barnabas.transactions.transaction import (
    BUMPS_EPOCHS,
    NO_EPOCH,
    Move,
    Refused,
    Transaction,
    markers,
    record_of,
    transaction_of,
)

IDS_A_TURN = 1000  # that expire in one step: other tasks run before the next


class TransactionShard:
    """One partition's ids; `settings` are the broker's, with the cluster's transaction version."""

    def __init__(self, settings: Callable[[], TransactionSettings]) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._settings = settings
        self._last_epochs: dict[str, int] = {}
        self._timeouts = Deadlines()
        self._timeouts_from = 0.0  # they are not checked before that
        self._expiry_seconds: float | None = None

    # ---- records

    def replay(self, record: KeyedRecord, producer: Producer | None = None) -> None:
        """Apply a record of this partition."""
        key = record.key
        assert isinstance(key, TransactionLogKey)
        if record.value is None:
            self.transactions.pop(key.transactional_id, None)
            self._last_epochs.pop(key.transactional_id, None)
            self._timeouts.discard(key.transactional_id)
            return
        transaction = transaction_of(record)
        self.transactions[key.transactional_id] = transaction
        if transaction.state != ONGOING:
            self._timeouts.discard(key.transactional_id)

    def replay_end(self, producer: Producer, is_commit: bool) -> None:
        """Ignored: nothing here is written within a transaction."""

    def loaded(self, now: Now) -> Effects:
        """All records are replayed: continue prepared transactions, set the deadlines of open ones."""
        self._expiry_seconds = now.seconds + self._settings().expiration_check_interval_ms / 1000
        effects = []
        for transactional_id, transaction in self.transactions.items():
            if transaction.state == ONGOING:
                self._set_timeout(transactional_id, transaction, now)
            elif transaction.state in PREPARED:
                effects.append(self._carry_on(transactional_id, transaction, now))
        return _together(effects)

    # ---- commands of producers

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        api_version: int,
        now: Now,
        reply: Reply,
        fresh_producer_id: int | None = None,
    ) -> Effects:
        """InitProducerId; NeedsProducerId if a new id is needed and none was given."""
        name = request.transactional_id
        assert name is not None
        try:
            move = self._initialised(name, request, now, fresh_producer_id)
        except Refused as refusal:
            error = told(refusal.error_name, api_version, INIT_KNOWS_FENCED)
            return _answer(reply, init_answer(error))
        self._remember(name, move)
        if move.transaction.state in PREPARED:
            effects = self._prepare(name, move.transaction, now)
            return effects._replace(replies=[(reply, init_answer("CONCURRENT_TRANSACTIONS"))])
        answer = init_answer("NONE", move.transaction.producer)
        return Effects([self._write(name, move.transaction)], [(reply, answer)])

    def _initialised(
        self, name: str, request: InitProducerIdRequest, now: Now, fresh_producer_id: int | None
    ) -> Move:
        settings = self._settings()
        refusal = refusal_of(request, settings.max_timeout_ms)
        if refusal is not None:
            raise Refused(refusal)
        expected = Producer(request.producer_id, request.producer_epoch)
        transaction = self.transactions.get(name)
        if transaction is None:
            return begun(fresh_producer_id, request.transaction_timeout_ms, now.wall_ms)
        return initialised(
            transaction,
            expected if expected != NO_PRODUCER else None,
            self._last_epochs.get(name, NO_EPOCH),
            timeout_ms=request.transaction_timeout_ms,
            level=settings.transaction_version,
            now_ms=now.wall_ms,
            fresh_producer_id=fresh_producer_id,
        )

    def add_partitions(
        self,
        asked: AddPartitionsToTxnTransaction,
        now: Now,
        reply: Reply,
        *,
        client_version: int = BUMPS_EPOCHS,
        api_version: int = OTHERS_KNOW_FENCED,
    ) -> Effects:
        """Add partitions, or only verify them; the reply is an AddPartitionsToTxnResult.

        `client_version` is the transaction version that the client supports: 0 or 2. Error names depend on
        `api_version`, the client's own version of its request.
        """
        if asked.verify_only:
            return _answer(reply, partitions_result(asked, self._verified(asked)))
        writes, error = self._add(asked, client_version, now)
        return Effects(writes, [(reply, partitions_result(asked, told(error, api_version)))])

    def _add(
        self, asked: AddPartitionsToTxnTransaction, client_version: int, now: Now
    ) -> tuple[list[Write], str]:
        """The records to write, or the error."""
        name = asked.transactional_id
        if not name:
            return [], "INVALID_REQUEST"
        producer = Producer(asked.producer_id, asked.producer_epoch)
        client_version = self._client_version(client_version)
        before = self.transactions.get(name)
        try:
            transaction = added(before, producer, partitions_of(asked), client_version, now.wall_ms)
        except Refused as refusal:
            return [], refusal.error_name
        if transaction is before:
            return [], "NONE"
        if before is None or before.state != ONGOING:
            self._set_timeout(name, transaction, now)
        return [self._write(name, transaction)], "NONE"

    def _verified(self, asked: AddPartitionsToTxnTransaction) -> str | dict[TopicPartition, str]:
        """One error for all partitions, or one for each."""
        if not asked.transactional_id:
            return "INVALID_REQUEST"
        producer = Producer(asked.producer_id, asked.producer_epoch)
        try:
            known = verified(self.transactions.get(asked.transactional_id), producer)
        except Refused as refusal:
            return refusal.error_name
        return {one: "NONE" if one in known else "TRANSACTION_ABORTABLE" for one in partitions_of(asked)}

    def end(
        self,
        request: EndTxnRequest,
        api_version: int,
        now: Now,
        reply: Reply,
        fresh_producer_id: int | None = None,
    ) -> Effects:
        """EndTxn; NeedsProducerId if a new id is needed and none was given."""
        name = request.transactional_id
        before = self.transactions.get(name)
        has_bumps = self._client_version(BUMPS_EPOCHS if api_version > 4 else 0) >= BUMPS_EPOCHS
        try:
            move = self._ended(request, before, has_bumps, now, fresh_producer_id)
        except Refused as refusal:
            return _answer(reply, end_answer(told(refusal.error_name, api_version)))
        if move is None:
            assert before is not None
            return _answer(reply, end_answer("NONE", before.producer if has_bumps else NO_PRODUCER))
        self._remember(name, move)
        after = producer_after(move.transaction) if has_bumps else NO_PRODUCER
        effects = self._prepare(name, move.transaction, now)
        return effects._replace(replies=[(reply, end_answer("NONE", after))])

    def _ended(
        self,
        request: EndTxnRequest,
        before: Transaction | None,
        has_bumps: bool,
        now: Now,
        fresh_producer_id: int | None,
    ) -> Move | None:
        if not request.transactional_id:
            raise Refused("INVALID_REQUEST")
        asked = Producer(request.producer_id, request.producer_epoch)
        if not has_bumps:
            return ended(before, asked, is_commit=request.committed, now_ms=now.wall_ms)
        return ended_with_bump(
            before,
            asked,
            is_commit=request.committed,
            now_ms=now.wall_ms,
            fresh_producer_id=fresh_producer_id,
        )

    # ---- towards the end

    def _prepare(self, name: str, prepared: Transaction, now: Now) -> Effects:
        """Write the decision of a transaction."""
        return _together([Effects([self._write(name, prepared)]), self._carry_on(name, prepared, now)])

    def _carry_on(self, name: str, prepared: Transaction, now: Now) -> Effects:
        """The next step of a decided transaction: its markers, or its completion if it has no partitions."""
        if prepared.partitions:
            return Effects(markers=[markers(name, prepared)])
        return Effects([self._write(name, completed(prepared, now.wall_ms))])

    def markers_written(self, written: Markers, now: Now) -> Effects:
        """Every partition of a decided transaction has its marker: complete it."""
        name = written.transactional_id
        transaction = self.transactions.get(name)
        if transaction is None or transaction.state not in PREPARED:
            return NOTHING
        if transaction.producer != written.producer:
            return NOTHING
        return Effects([self._write(name, completed(transaction, now.wall_ms))])

    # ---- describing

    def describe(self, transactional_id: str, reply: Reply) -> Effects:
        """The reply is the state of one id in a DescribeTransactions response."""
        return _answer(reply, described(transactional_id, self.transactions.get(transactional_id)))

    # ---- time

    def tick(self, now: Now) -> Effects:
        """Abort transactions whose timeout has passed; expire ids that have not been used for long."""
        settings = self._settings()
        effects = []
        if self._timeouts_from <= now.seconds:
            effects = self._timed_out(now)
            if effects:
                self._timeouts_from = now.seconds + settings.timeout_check_interval_ms / 1000
        if self._expiry_seconds is not None and self._expiry_seconds <= now.seconds:
            expired = list(islice(self._expired(now.wall_ms - settings.id_expiration_ms), IDS_A_TURN))
            is_over = len(expired) < IDS_A_TURN
            self._expiry_seconds = now.seconds + settings.expiration_check_interval_ms / 1000 * is_over
            effects.append(Effects(expired))
        return _together(effects)

    def _timed_out(self, now: Now) -> list[Effects]:
        effects = []
        for name in self._timeouts.take_due(now.seconds):
            transaction = self.transactions.get(name)
            if transaction is not None and transaction.state == ONGOING:
                move = fenced(transaction, self._level, now.wall_ms)
                self._remember(name, move)
                effects.append(self._prepare(name, move.transaction, now))
        return effects

    def _expired(self, oldest_ms: int) -> Iterator[Write]:
        for name, transaction in self.transactions.items():
            if transaction.is_at_rest and transaction.updated_ms <= oldest_ms:
                yield Write([KeyedRecord(TransactionLogKey(transactional_id=name), None)])

    def next_due_seconds(self) -> float | None:
        """The time at which `tick` should be called."""
        timeout = self._timeouts.next_seconds()
        if timeout is None:
            return self._expiry_seconds
        timeout = max(timeout, self._timeouts_from)
        return timeout if self._expiry_seconds is None else min(timeout, self._expiry_seconds)

    def _set_timeout(self, name: str, transaction: Transaction, now: Now) -> None:
        left_ms = min(transaction.started_ms + transaction.timeout_ms - now.wall_ms, transaction.timeout_ms)
        self._timeouts.set(name, now.seconds + max(0, left_ms) / 1000)

    # ---- helpers

    @property
    def _level(self) -> int:
        return self._settings().transaction_version

    def _client_version(self, known: int) -> int:
        """The transaction version used for a client; records of level 0 can only store version 0."""
        return known if self._level > 0 else 0

    def _write(self, name: str, transaction: Transaction) -> Write:
        return Write([record_of(name, transaction, self._level)])

    def _remember(self, name: str, move: Move) -> None:
        if move.last_epoch is not None:
            self._last_epochs[name] = move.last_epoch


def _together(effects: list[Effects]) -> Effects:
    """The effects of several decisions without replies."""
    writes = [write for one in effects for write in one.writes]
    sent = [one_sent for one in effects for one_sent in one.markers]
    return Effects(writes, (), sent) if writes or sent else NOTHING


def _answer(reply: Reply, response: Struct) -> Effects:
    return Effects(replies=[(reply, response)])
