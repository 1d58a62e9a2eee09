"""The producer: sends records, and reports their acknowledgement.

    async with Producer(network, clock, random, "localhost:9092") as producer:
        written = await producer.send("orders", b"value", key=b"key")   # added to a batch
        print((await written).offset)                                   # acknowledged

`send` adds a record to its partition's batch (accumulator); one task, the sender, sends ready batches to the
partitions' leaders. With a transactional id everything happens in transactions (transactional):

    await producer.init_transactions()
    async with producer.transaction():                                  # committed at the end of the block
        await producer.send("orders", b"value")

All decisions are made by pure code in accumulator, batches, sequences and transactions. This module only has
the calls, and their waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from barnabas.client.accumulator import Accumulator
from barnabas.client.batches import Batch, Receipt, RecordMetadata, record_size_limit
from barnabas.client.cluster import Cluster
from barnabas.client.errors import (
    ClientClosed,
    NoSuchPartition,
    OutsideTransaction,
    RecordTooLarge,
    TimedOut,
)
from barnabas.client.metadata import Topic, TopicPartition
from barnabas.client.partitioner import StickyPartitioner, partition_of
from barnabas.client.producer_config import ALL, ProducerConfig, accumulator_config
from barnabas.client.sender import Sender
from barnabas.client.sequences import ProducerIdentity
from barnabas.client.transactional import Transactional
from barnabas.client.transactions import Phase, PreparedTransaction
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.network import Address, Network
from barnabas.core.random import Random
from barnabas.records.batch import HEADER_BYTES
from barnabas.records.record import Headers
from barnabas.transport.waiting import Wake, within

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from barnabas.client.admin.group_offsets import CommittedOffset
    from barnabas.client.tables import BatchLimits, RowBatch

P = TypeVar("P", bound=tuple[str, int])

logger = logging.getLogger("barnabas.client")

__all__ = ["ALL", "Producer", "ProducerConfig"]


class _Flush:
    """A caller of `flush`, which waits until the batches that exist now are settled."""

    def __init__(self, last_ordinal: int, remaining: int, done: asyncio.Future[None]) -> None:
        self.last_ordinal = last_ordinal
        self.remaining = remaining
        self.done = done


class Producer:
    """Sends records to topics. To be used by the tasks of one event loop."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        random: Random,
        bootstrap: str | Sequence[Address],
        config: ProducerConfig | None = None,
    ) -> None:
        self.config = config or ProducerConfig()
        self.config.check()
        self.cluster = Cluster(network, clock, random, bootstrap, self.config.client)
        self._clock = clock
        self._accumulator = Accumulator(accumulator_config(self.config), self._on_settled, self._on_split)
        self._sticky = StickyPartitioner(random, self.config.batch_bytes)
        self._wake = Wake(clock)
        self.cluster.on_change = self._wake.call
        self._flushes: list[_Flush] = []
        self._room_turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._fatal: BarnabasError | None = None
        self._transactions: Transactional | None = None
        if self.config.transactional_id is not None:
            self._transactions = Transactional(
                self.cluster, self.config, self._accumulator, self.flush, self._wake.call
            )
        self._sender = Sender(
            self.cluster, self.config, self._accumulator, self._transactions, self._wake, self._die
        )

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(timeout_ms=None if kind is None else 0)

    # ---- for users ---------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Add a record to a batch. The future returned has the place of the written record, or the error.

        Waits while metadata or memory is missing, for at most max_block_ms. A record with a key goes to the
        partition of that key, one without to the partition whose batch is being filled.
        """
        self._check_may_send()
        known = self.cluster.metadata.topics.get(topic)
        if known is None or known.error is not None:
            known = await self.cluster.topic(topic, self.config.max_block_ms / 1000)
        size_limit = record_size_limit(key, value, headers)
        if size_limit + HEADER_BYTES > self.config.max_request_bytes:
            raise RecordTooLarge(
                f"a record of about {size_limit} bytes is more than max_request_bytes="
                f"{self.config.max_request_bytes} allow; raise that (max.request.size), and the topic's "
                "max.message.bytes"
            )
        accumulator = self._accumulator
        if self._room_turn.locked() or not accumulator.has_room(size_limit):
            await self._wait_for_room(size_limit)
        self._check_may_send()  # again: it may have waited
        target = TopicPartition(topic, self._partition(known, key, partition, size_limit))
        written: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        time_ms = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
        now = self._clock.monotonic()
        if accumulator.append(target, now, time_ms, key, value, headers, written, size_limit):
            self._sender.start()
            await asyncio.sleep(0)  # let the sender run: the caller may send without ever waiting
        return written

    async def send_table(
        self, table: pa.Table | pa.RecordBatch, topic: str | None = None
    ) -> asyncio.Future[int]:
        """Add the rows of an Arrow table. The future returned has the number of written rows, or the error.

        Columns: see tables. `topic`, if given, is that of all rows. Waits as `send` does while metadata or
        memory is missing. After an error some of the rows may be written; a transaction can then only be
        aborted.
        """
        self._check_may_send()
        receipt = Receipt(asyncio.get_running_loop().create_future())
        if self._transactions is None:
            await self._send_rows(table, topic, receipt)
            return receipt.told
        # the end of the transaction reports the error, if nobody awaits this future
        receipt.told.add_done_callback(lambda told: told.cancelled() or told.exception())
        try:
            await self._send_rows(table, topic, receipt)
        except BaseException as error:
            if not receipt.is_unused:
                self._transactions.torn(error)
            raise
        return receipt.told

    async def _send_rows(self, table: pa.Table | pa.RecordBatch, topic: str | None, receipt: Receipt) -> None:
        from barnabas.client.tables import row_batches, rows_by_topic  # pyarrow, only if it is used

        for rows in rows_by_topic(table, topic, self._clock.wall_ms()):
            known = await self.cluster.topic(rows.topic, self.config.max_block_ms / 1000)
            limits, unsent_bytes = self._row_limits(rows.topic), 0
            choose = partial(self._partition, known, None, None, limits.batch_bytes)
            for batch in row_batches(rows, len(known.leaders), limits, choose):
                await self._take_rows(known, batch, receipt)
                unsent_bytes += len(batch.data)
                if unsent_bytes >= limits.batch_bytes:  # small ones, for many partitions, are sent together
                    unsent_bytes = 0
                    await asyncio.sleep(0)  # let the sender run
            await asyncio.sleep(0)
        receipt.close()

    async def flush(self) -> None:
        """Send everything at once, and return when it is acknowledged or has failed."""
        open_batches = self._accumulator.open_batches()
        if not open_batches:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flush = _Flush(self._accumulator.created_batches, len(open_batches), done)
        self._flushes.append(flush)
        self._accumulator.hurries += 1
        self._wake.call()
        try:
            await done
        finally:
            self._accumulator.hurries -= 1
            if flush in self._flushes:
                self._flushes.remove(flush)

    async def partitions_of(self, topic: str) -> int:
        """The number of partitions of a topic."""
        known = await self.cluster.topic(topic, self.config.max_block_ms / 1000)
        return len(known.leaders)

    # ---- transactions ------------------------------------------------------------------------------------

    async def init_transactions(self) -> ProducerIdentity:
        """Initialise the transactional id: an earlier producer with it is fenced, and its open transaction is
        ended before this returns. To be called once, before the first transaction."""
        return await self._transactional.initialise()

    def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on belong to it."""
        self._transactional.state.begin()

    async def commit_transaction(self) -> None:
        """Commit the transaction: all its records become visible. Raises TransactionAborted if it can only be
        aborted. After TimedOut the outcome is unknown; call this again to find out."""
        await self._transactional.commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction, whether or not it has failed; then the next one may begin."""
        await self._transactional.abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction around a block: committed at its end, aborted if it raises."""
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            await self._transactional.abort_if_open()
            raise

    async def send_offsets(self, offsets: Mapping[P, int | CommittedOffset], group_id: str) -> None:
        """Commit a group's offsets, by partition, as part of the transaction."""
        await self._transactional.send_offsets(offsets, group_id)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Wait until everything is acknowledged, and leave the transaction open, even after `close`. With the
        result, `Admin.end_transaction` can end it from any process, before transaction_timeout_ms."""
        return await self._transactional.prepare()

    @property
    def _transactional(self) -> Transactional:
        if self._fatal is not None:
            raise self._fatal
        if self._transactions is None:
            raise OutsideTransaction("this producer has no transactions; give it a transactional_id")
        return self._transactions

    async def close(self, timeout_ms: int | None = None) -> None:
        """Flush for at most that long (None: without limit) and close. It may be called repeatedly.

        An open transaction is aborted, unless it is prepared, or the timeout is 0.
        """
        if timeout_ms is None:
            await self._wind_up()
        elif timeout_ms > 0:
            try:
                await within(self._clock, timeout_ms / 1000, self._wind_up(), "winding up")
            except TimedOut as error:
                logger.warning("closing a producer with records unsent, or a transaction open: %s", error)
        closed = self._fatal = self._fatal or ClientClosed("the producer has been closed; make a new one")
        if self._transactions is not None:
            self._transactions.close()
        self._sender.close()
        for batch in self._accumulator.open_batches():
            self._accumulator.give_up(batch, closed)
        await self.cluster.close()

    async def _wind_up(self) -> None:
        transactions = self._transactions
        if transactions is not None and self._fatal is None and not transactions.is_prepared:
            await transactions.abort_if_open()
        await self.flush()

    # ---- from a record to a batch ------------------------------------------------------------------------

    def _check_may_send(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._transactions is not None:
            self._transactions.state.check("send", Phase.OPEN)

    def _row_limits(self, topic: str) -> BatchLimits:
        from barnabas.client.tables import BatchLimits

        config = self.config
        wanted_bytes = max(config.batch_bytes, config.max_request_bytes // 2)
        return BatchLimits(
            min(wanted_bytes, config.max_request_bytes, self._accumulator.batch_limit(topic)),
            config.max_request_bytes,
            config.compression,
            self._accumulator.config.is_transactional,
        )

    async def _take_rows(self, topic: Topic, batch: RowBatch, receipt: Receipt) -> None:
        size_bytes = len(batch.data)
        if self._room_turn.locked() or not self._accumulator.has_room(size_bytes):
            await self._wait_for_room(size_bytes)
        if receipt.error is not None:  # set while this one waited
            raise receipt.error
        self._check_may_send()
        partition = self._partition(topic, None, batch.partition, size_bytes)
        target = TopicPartition(topic.name, partition)
        self._accumulator.append_rows(target, self._clock.monotonic(), batch.data, batch.rows, receipt)
        self._sender.start()

    def _partition(self, topic: Topic, key: bytes | None, partition: int | None, size_bytes: int) -> int:
        leaders = topic.leaders
        if partition is not None:
            if partition not in leaders:
                raise NoSuchPartition(f"{topic.name} has {len(leaders)} partitions, no number {partition}")
            return partition
        if key is not None:
            return partition_of(key, len(leaders))
        stuck = self._sticky.current(topic.name)
        if stuck is None or stuck not in leaders:
            brokers = self.cluster.metadata.brokers
            with_leader = [each for each, leader in leaders.items() if leader.node_id in brokers]
            stuck = self._sticky.switch(topic.name, with_leader or list(leaders))
        self._sticky.sent(topic.name, size_bytes)
        return stuck

    async def _wait_for_room(self, size_bytes: int) -> None:
        self._accumulator.hurries += 1
        self._wake.call()
        try:
            limit_s = self.config.max_block_ms / 1000
            await within(self._clock, limit_s, self._room(size_bytes), "waiting for buffer memory")
        except TimedOut as error:
            raise TimedOut(f"{error}; the brokers do not keep up: send less, or raise buffer_bytes") from None
        finally:
            self._accumulator.hurries -= 1

    async def _room(self, size_bytes: int) -> None:
        async with self._room_turn:  # first come, first served
            while self._fatal is None and not self._accumulator.has_room(size_bytes):
                self._freed.clear()
                await self._freed.wait()

    def _on_settled(self, batch: Batch) -> None:
        for flush in self._flushes:
            if batch.ordinal < flush.last_ordinal:
                flush.remaining -= 1
                if flush.remaining == 0 and not flush.done.done():
                    flush.done.set_result(None)
        self._freed.set()
        if self._transactions is not None:
            self._transactions.settled(batch)

    def _on_split(self, batch: Batch) -> None:
        for flush in self._flushes:
            if batch.ordinal < flush.last_ordinal:
                flush.remaining += 1

    def _die(self, error: BarnabasError) -> None:
        self._fatal = error
        for batch in self._accumulator.open_batches():
            self._accumulator.give_up(batch, error)
