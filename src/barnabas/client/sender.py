"""The task of a producer that sends batches to the leaders of their partitions.

It checks the accumulator whenever it is woken, or when a batch's linger time is over, and sends ready batches
while a broker has fewer than `max_in_flight` requests to answer. It does not wait for responses: they arrive
by callback, are handled (produce_answers), and wake it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from barnabas.client.accumulator import Accumulator
from barnabas.client.batches import Batch
from barnabas.client.cluster import Cluster
from barnabas.client.errors import BrokerError, TimedOut, broker_error, wire_error_of
from barnabas.client.metadata import TopicPartition
from barnabas.client.produce_answers import judge_response, produce_request
from barnabas.client.producer_config import ProducerConfig
from barnabas.client.sequences import ProducerIdentity
from barnabas.client.transactional import Transactional
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.schema import EVERY_VERSION
from barnabas.transport.connection import BrokerConnection
from barnabas.transport.waiting import Wake

logger = logging.getLogger("barnabas.client")


class Sender:
    """Sends the batches of an accumulator; `on_fatal` is called if nothing can ever be sent."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        transactions: Transactional | None,
        wake: Wake,
        on_fatal: Callable[[BarnabasError], None],
    ) -> None:
        self._cluster, self._config, self._accumulator = cluster, config, accumulator
        self._transactions = transactions
        self._wake = wake
        self._on_fatal = on_fatal
        self._in_flight: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._identifying: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, or wake it."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        self._wake.call()

    def close(self) -> None:
        for task in (self._task, self._identifying):
            if task is not None:
                task.cancel()

    async def _run(self) -> None:
        accumulator = self._accumulator
        while True:
            now = self._cluster.clock.monotonic()
            accumulator.expire(now, self._too_old)
            self._send_ready(now)
            await self._wake.wait(accumulator.next_time(now))

    def _send_ready(self, now: float) -> None:
        accumulator, cluster = self._accumulator, self._cluster
        if accumulator.needs_identity and not accumulator.is_empty and self._identifying is None:
            self._identifying = asyncio.get_running_loop().create_task(self._identify())
        nodes: dict[int, None] = {}
        for partition in accumulator.ready(now):
            leader = cluster.leader(*partition)
            if leader is not None and self._belongs(partition):
                nodes[leader.node_id] = None
        for node_id in nodes:
            while self._in_flight.get(node_id, 0) < self._config.max_in_flight:
                connection = cluster.connection(node_id)
                if connection is None:
                    break
                leads = partial(self._leads, node_id)
                batches = accumulator.drain(now, leads, self._config.max_request_bytes)
                if not batches:
                    break
                self._submit(connection, node_id, batches)

    def _leads(self, node_id: int, partition: TopicPartition) -> bool:
        leader = self._cluster.leader(*partition)
        return leader is not None and leader.node_id == node_id and self._belongs(partition)

    def _belongs(self, partition: TopicPartition) -> bool:
        """Whether a partition may be written to: with transactions, only if it is part of the transaction."""
        return self._transactions is None or self._transactions.may_write(partition)

    def _submit(self, connection: BrokerConnection, node_id: int, batches: list[Batch]) -> None:
        timeout_ms = self._config.client.request_timeout_ms
        at_most = EVERY_VERSION
        if self._transactions is not None:
            at_most = self._transactions.sent()
        request, at_most = produce_request(
            batches,
            self._cluster.metadata,
            self._config.acks,
            timeout_ms,
            self._config.transactional_id,
            at_most,
        )
        answer: asyncio.Future[ProduceResponse] | asyncio.Future[None]
        try:
            if self._config.acks == 0:
                answer = connection.tell(request, at_most=at_most)
            else:
                answer = connection.submit(request, ProduceResponse, at_most=at_most)
        except BarnabasError as error:
            self._not_answered(batches, error)
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        answer.add_done_callback(partial(self._answered, node_id, batches))

    def _answered(
        self, node_id: int, batches: list[Batch], answer: asyncio.Future[ProduceResponse | None]
    ) -> None:
        self._in_flight[node_id] -= 1
        if not answer.cancelled():
            error = answer.exception()
            if error is not None:
                assert isinstance(error, BarnabasError)
                self._not_answered(batches, error)
            elif (response := answer.result()) is not None:
                judge_response(response, batches, self._accumulator, self._cluster)
            else:  # acks=0: sending it is enough
                for batch in batches:
                    self._accumulator.written(batch, -1, -1)
        self._wake.call()

    def _not_answered(self, batches: list[Batch], error: BarnabasError) -> None:
        """The outcome is unknown: retry the batches, with the same numbers."""
        now = self._cluster.clock.monotonic()
        for batch in batches:
            if error.wire.retriable:
                again = now + self._cluster.backoff.seconds(batch.attempts)
                self._accumulator.send_again(batch, again)
            else:
                self._accumulator.give_up(batch, error)
        self._wake.call()

    def _too_old(self, batch: Batch) -> Exception:
        tried = f"sent {batch.attempts} times" if batch.attempts else "never sent: no leader could be reached"
        if batch.refusal is not None:
            tried += f", and refused with {batch.refusal.name}"
        limit_ms = self._config.delivery_timeout_ms
        return TimedOut(
            f"{batch.record_count} records for {batch.partition} were not acknowledged within {limit_ms} ms "
            f"({tried}); they may have been written or not. Check the brokers ({self._cluster.where}), or "
            "raise delivery_timeout_ms",
            batch.refusal,
        )

    async def _identify(self) -> None:
        """Request a producer id until there is one."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        failures = 0
        while True:
            try:
                response = await self._cluster.ask(request, InitProducerIdResponse)
                if response.error_code == 0:
                    break
                raise broker_error(wire_error_of(response.error_code), "no producer id")
            except BarnabasError as error:
                wire = error.error if isinstance(error, BrokerError) else error.wire
                if not wire.retriable:
                    self._on_fatal(error)
                    return
                failures += 1
                logger.info("no producer id yet: %s", error)
                await self._cluster.clock.sleep(self._cluster.backoff.seconds(failures))
        self._accumulator.identify(ProducerIdentity(response.producer_id, response.producer_epoch))
        self._identifying = None
        self._wake.call()
