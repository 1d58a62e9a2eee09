"""Transactions of the producer in virtual time, against coordinators in memory that can be made to misbehave.

Most hold for both ways of the protocol: where partitions are added one by one (transaction.version 0 and 1),
and where they add themselves and every end raises the epoch (2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.admin import Admin
from barnabas.client.cluster import ClientConfig
from barnabas.client.errors import (
    BadTable,
    BrokerError,
    ClientClosed,
    NotAuthorized,
    OutsideTransaction,
    ProducerFenced,
    RecordTooLarge,
    TimedOut,
    TransactionAborted,
    TransactionEnded,
    broker_error,
)
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.client.sequences import ProducerIdentity
from barnabas.client.transactions import Phase, PreparedTransaction, Step, Transaction
from barnabas.core.errors import wire_error
from barnabas.core.random import SeededRandom
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema import Message
from barnabas.sim.loop import LoopClock, run
from tests.client.fake_broker import Drop, FakeBroker, FakeCluster, Rule, refuse_produce
from tests.client.fake_transactions import ABORTED, COMMITTED, ONGOING, added, code

OLD, NEW = 1, 2
BAD_RECORD = code("INVALID_RECORD")
CONFIG = ProducerConfig(transactional_id="x", linger_ms=0)

Work = Callable[[FakeCluster, Producer], Awaitable[Any]]

both = pytest.mark.parametrize("version", [OLD, NEW])


def transacting(
    work: Work,
    version: int = NEW,
    *,
    config: ProducerConfig = CONFIG,
    brokers: int = 1,
    partitions: int = 1,
    seed: int = 1,
) -> FakeCluster:
    """Run `work` with a producer that has been initialised."""

    async def main() -> FakeCluster:
        cluster = FakeCluster(brokers)
        cluster.features["transaction.version"] = version
        cluster.add_topic("t", partitions)
        await cluster.start()
        async with another(cluster, config, seed) as producer:
            await producer.init_transactions()
            await work(cluster, producer)
        return cluster

    return run(main())


def another(cluster: FakeCluster, config: ProducerConfig = CONFIG, seed: int = 2) -> Producer:
    network = cluster.network.host(f"client-{seed}")
    return Producer(network, LoopClock(), SeededRandom(seed), cluster.bootstrap, config)


def once(kind: type[Message], do: Callable[[Any], Message | None], times: int = 1) -> Rule:
    """A rule for the next requests of a kind."""
    left = [times]

    async def rule(broker: FakeBroker, request: Any, version: int) -> Message | None:
        if isinstance(request, kind) and left[0]:
            left[0] -= 1
            return do(request)
        return None

    return rule


def drop(*, first: bool) -> Callable[[Any], Message | None]:
    def do(request: Any) -> Message | None:
        raise Drop(first=first)

    return do


def versions_of(cluster: FakeCluster, name: str) -> set[int]:
    return {version for _, each, version, _ in cluster.log if each == name + "Request"}


# ---- what is written, and how ---------------------------------------------------------------------------


@both
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        for number in range(3):
            async with producer.transaction():
                await producer.send("t", b"in %d" % number)
            producer.begin_transaction()
            sent = await producer.send("t", b"out %d" % number)
            await producer.flush()
            assert (await sent).offset >= 0
            await producer.abort_transaction()

    cluster = transacting(work, version)
    assert cluster.partition("t").committed() == [b"in 0", b"in 1", b"in 2"]
    assert len(cluster.partition("t").batches) == 3 + 3 + 6


def test_partitions_add_themselves_and_every_end_raises_the_epoch() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        for _ in range(2):
            async with producer.transaction():
                for partition in (0, 1):
                    await producer.send("t", b"v", partition=partition)
                    await producer.flush()
                    await producer.send("t", b"v", partition=partition)

    cluster = transacting(work, NEW, partitions=2)
    assert not cluster.asked("AddPartitionsToTxn")
    assert versions_of(cluster, "EndTxn") == {5}
    assert min(versions_of(cluster, "Produce")) >= 12
    headers = [header for header, _ in cluster.partition("t").batches if not header.is_control]
    assert [(header.producer_epoch, header.base_sequence) for header in headers] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_partitions_are_added_first_and_the_epoch_stays(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        for _ in range(2):
            async with producer.transaction():
                for partition in (0, 1):
                    await producer.send("t", b"v", partition=partition)
                await producer.flush()
                await producer.send("t", b"v", partition=0)

    cluster = transacting(work, version, partitions=2, config=CONFIG._replace(linger_ms=5))
    assert max(versions_of(cluster, "AddPartitionsToTxn")) <= 3
    assert max(versions_of(cluster, "EndTxn")) <= 4
    assert max(versions_of(cluster, "Produce")) <= 11
    assert len(cluster.asked("AddPartitionsToTxn")) == 2  # of both together, by transaction
    headers = [header for header, _ in cluster.partition("t").batches if not header.is_control]
    assert [(header.producer_epoch, header.base_sequence) for header in headers] == [(0, n) for n in range(4)]


@both
def test_an_empty_transaction_asks_nothing(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        async with producer.transaction():
            pass
        producer.begin_transaction()
        await producer.abort_transaction()
        producer.begin_transaction()
        prepared = await producer.prepare_transaction()
        assert prepared.is_empty

    assert not transacting(work, version).asked("EndTxn")


@both
def test_offsets_become_those_of_the_group_with_the_transaction(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.coordinators.update(x=2, g=3)
        async with producer.transaction():
            await producer.send_offsets({("t", 0): 5}, "g")
            assert cluster.transactions.group_offsets == {}
        assert cluster.transactions.group_offsets == {"g": {("t", 0): 5}}
        producer.begin_transaction()
        await producer.send_offsets({("t", 0): 9}, "g")
        await producer.abort_transaction()
        assert cluster.transactions.group_offsets == {"g": {("t", 0): 5}}

    cluster = transacting(work, version, brokers=3)
    assert bool(cluster.asked("AddOffsetsToTxn")) == (version < 2)
    assert (max if version < 2 else min)(versions_of(cluster, "TxnOffsetCommit")) == (4 if version < 2 else 5)


@both
def test_tables_belong_to_transactions_as_records_do(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        tables = [pa.table({"value": [b"%d.%d" % (n, row) for row in range(3)]}) for n in range(3)]
        with pytest.raises(OutsideTransaction, match="begin_transaction"):
            await producer.send_table(tables[0], "t")
        for number, table in enumerate(tables):
            producer.begin_transaction()
            written = await producer.send_table(table, "t")
            await producer.send("t", b"and a record")
            if number == 1:
                assert await written == 3
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                assert written.result() == 3
        cluster.rules.append(once(ProduceRequest, lambda asked: refuse_produce(asked, BAD_RECORD)))
        producer.begin_transaction()
        await producer.send_table(tables[0], "t")
        with pytest.raises(TransactionAborted, match="INVALID_RECORD"):
            await producer.commit_transaction()

    committed = transacting(work, version).partition("t").committed()
    assert committed == [b"0.0", b"0.1", b"0.2", b"and a record", b"2.0", b"2.1", b"2.2", b"and a record"]


@both
def test_a_table_that_is_sent_in_part_spoils_the_transaction(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        with pytest.raises(BadTable):  # before any of it was taken
            await producer.send_table(pa.table({"value": [1]}), "t")
        await producer.send("t", b"fine")
        await producer.commit_transaction()
        table = pa.table({"value": [b"small", bytes(2000)]})
        producer.begin_transaction()
        with pytest.raises(RecordTooLarge):
            await producer.send_table(table, "t")
        with pytest.raises(TransactionAborted, match="in part only: a row for t takes 2"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        cluster.rules.append(once(ProduceRequest, drop(first=False), times=1000))
        producer.begin_transaction()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await producer.send_table(pa.table({"value": [bytes(200)] * 50}), "t")
        cluster.rules.clear()
        with pytest.raises(TransactionAborted, match="in part only: CancelledError"):
            await producer.commit_transaction()
        await producer.abort_transaction()

    config = CONFIG._replace(max_request_bytes=1000, batch_bytes=100, buffer_bytes=2000)
    assert transacting(work, version, config=config).partition("t").committed() == [b"fine"]


@both
def test_a_block_that_raises_is_aborted(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        async def block() -> None:
            async with producer.transaction():
                await producer.send("t", b"lost")
                await producer.flush()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await block()
        async with producer.transaction():
            await producer.send("t", b"kept")

    assert transacting(work, version).partition("t").committed() == [b"kept"]


@both
def test_a_block_that_is_cancelled_is_aborted(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        async def block() -> None:
            async with producer.transaction():
                await producer.send("t", b"lost")
                await producer.flush()
                await asyncio.sleep(1000)

        task = asyncio.create_task(block())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cluster.transactions.known["x"].state == ABORTED

    transacting(work, version)


# ---- the order of calls ---------------------------------------------------------------------------------


def test_what_is_out_of_order_says_what_to_do() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        for call in (producer.send("t", b"v"), producer.commit_transaction(), producer.abort_transaction()):
            with pytest.raises(OutsideTransaction, match="begin_transaction"):
                await call
        with pytest.raises(OutsideTransaction, match="begin_transaction"):
            await producer.send_offsets({("t", 0): 1}, "g")
        with pytest.raises(OutsideTransaction):
            await producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(OutsideTransaction, match="commit or abort it first"):
            producer.begin_transaction()
        await producer.prepare_transaction()
        with pytest.raises(OutsideTransaction, match="prepared"):
            await producer.send("t", b"v")
        fresh = another(cluster)
        with pytest.raises(OutsideTransaction, match="init_transactions"):
            fresh.begin_transaction()
        await fresh.close()
        with pytest.raises(ClientClosed):
            fresh.begin_transaction()
        async with another(cluster, ProducerConfig()) as plain:
            with pytest.raises(OutsideTransaction, match="transactional_id"):
                plain.begin_transaction()

    transacting(work)


def test_settings_that_contradict_each_other() -> None:
    for bad in (
        ProducerConfig(transactional_id="x", idempotence=False),
        ProducerConfig(transactional_id=""),
        ProducerConfig(transactional_id="x", transaction_timeout_ms=0),
    ):
        with pytest.raises(ValueError, match="transaction"):
            bad.check()


# ---- who has the id --------------------------------------------------------------------------------------


@both
def test_whoever_comes_later_ends_what_was_left_and_fences(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"left")
        await producer.flush()
        async with another(cluster) as newer:
            identity = await newer.init_transactions()
            assert identity == ProducerIdentity(cluster.transactions.known["x"].producer_id, 2)
            assert cluster.partition("t").committed() == []
            async with newer.transaction():
                await newer.send("t", b"newer")
            with pytest.raises(ProducerFenced, match="newer producer"):
                await producer.commit_transaction()
            for call in (producer.abort_transaction(), producer.send("t", b"no")):
                with pytest.raises(ProducerFenced):
                    await call
            with pytest.raises(ProducerFenced):
                producer.begin_transaction()

    assert transacting(work, version).partition("t").committed() == [b"newer"]


@both
def test_a_fenced_one_hears_of_it_from_a_partition_too(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"left")
        await producer.flush()
        async with another(cluster) as newer:
            await newer.init_transactions()
            sent = await producer.send("t", b"late")
            with pytest.raises(ProducerFenced):
                await sent
            with pytest.raises(TransactionAborted):
                await producer.commit_transaction()
            with pytest.raises(ProducerFenced):
                await producer.abort_transaction()

    assert transacting(work, version).partition("t").committed() == []


def test_a_transaction_that_took_too_long_is_aborted_and_the_next_is_fine() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"slow")
        await producer.flush()
        cluster.transactions.time_out("x")
        with pytest.raises(TransactionAborted, match="transaction_timeout_ms=60000"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"quick")

    assert transacting(work, NEW).partition("t").committed() == [b"quick"]


def test_where_the_epoch_stays_one_that_took_too_long_is_fenced() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"slow")
        await producer.flush()
        cluster.transactions.time_out("x")
        with pytest.raises(ProducerFenced, match="timeout"):
            await producer.commit_transaction()

    transacting(work, OLD)


# ---- what fails ------------------------------------------------------------------------------------------


@both
def test_a_batch_that_fails_spoils_the_transaction_and_abort_mends_it(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        async with producer.transaction():
            await producer.send("t", b"before", partition=0)
        cluster.rules.append(once(ProduceRequest, lambda asked: refuse_produce(asked, BAD_RECORD)))
        producer.begin_transaction()
        bad = await producer.send("t", b"bad", partition=1)
        with pytest.raises(TransactionAborted, match="INVALID_RECORD") as told:
            await producer.commit_transaction()
        assert isinstance(told.value.__cause__, BrokerError)
        assert isinstance(bad.exception(), BrokerError)
        with pytest.raises(TransactionAborted):
            await producer.send("t", b"more")
        with pytest.raises(TransactionAborted):
            await producer.prepare_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            for number in range(3):
                await producer.send("t", b"after %d" % number, partition=number % 2)
                await producer.flush()

    cluster = transacting(work, version, partitions=2)
    assert cluster.partition("t", 0).committed() == [b"before", b"after 0", b"after 2"]
    assert cluster.partition("t", 1).committed() == [b"after 1"]
    inits = [(asked.producer_id, asked.producer_epoch) for asked in cluster.asked("InitProducerId")]
    assert len(inits) == (2 if version == OLD else 1)
    assert inits[1:] == ([(1001, 0)] if version == OLD else [])


@both
def test_records_that_nobody_could_take_in_time_spoil_the_transaction(version: int) -> None:
    config = CONFIG._replace(delivery_timeout_ms=3000, client=ClientConfig(request_timeout_ms=1000))

    async def work(cluster: FakeCluster, producer: Producer) -> None:
        async def deaf(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if isinstance(request, ProduceRequest):
                raise Drop(first=True)
            return None

        cluster.rules.append(deaf)
        producer.begin_transaction()
        sent = await producer.send("t", b"who knows")
        with pytest.raises(TransactionAborted):
            await producer.commit_transaction()
        assert isinstance(sent.exception(), TimedOut)
        cluster.rules.clear()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"after")

    assert transacting(work, version, config=config).partition("t").committed() == [b"after"]


def test_a_topic_that_must_not_be_written_to_spoils_the_transaction() -> None:
    def refuse(asked: Any) -> Message:
        return added(asked, "TOPIC_AUTHORIZATION_FAILED")

    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.rules.append(once(AddPartitionsToTxnRequest, refuse))
        with pytest.raises(TransactionAborted) as told:
            async with producer.transaction():
                await producer.send("t", b"v")
        assert isinstance(told.value.__cause__, NotAuthorized)
        async with producer.transaction():
            await producer.send("t", b"w")

    assert transacting(work, OLD).partition("t").committed() == [b"w"]


def test_a_topic_that_is_not_known_yet_where_it_is_added() -> None:
    """The coordinator refuses all partitions for the sake of one, which it will know in a moment."""

    def refuse(asked: Any) -> Message:
        answer = added(asked, "OPERATION_NOT_ATTEMPTED")
        last = answer.results_by_topic_v3_and_below[-1].results_by_partition[-1]
        last.partition_error_code = code("UNKNOWN_TOPIC_OR_PARTITION")
        return answer

    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.rules.append(once(AddPartitionsToTxnRequest, refuse))
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
            await producer.send("t", b"w", partition=1)

    cluster = transacting(work, OLD, config=CONFIG._replace(linger_ms=5), partitions=2)
    assert [cluster.partition("t", each).committed() for each in (0, 1)] == [[b"v"], [b"w"]]


@both
def test_a_commit_that_can_only_be_an_abort_says_so(version: int) -> None:
    def refuse(asked: Any) -> Message:
        error_code = code("TRANSACTION_ABORTABLE")
        return EndTxnResponse(throttle_time_ms=0, error_code=error_code, producer_id=-1, producer_epoch=-1)

    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.rules.append(once(EndTxnRequest, refuse))
        producer.begin_transaction()
        await producer.send("t", b"v")
        with pytest.raises(TransactionAborted, match="abort it"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"w")

    assert transacting(work, version).partition("t").committed() == [b"w"]


@both
def test_an_answer_that_comes_after_the_transaction_has_ended(version: int) -> None:
    config = CONFIG._replace(delivery_timeout_ms=1000)
    complaints: list[Any] = []

    async def work(cluster: FakeCluster, producer: Producer) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        cluster.move("t", 0, 2)  # away from the coordinator, which must not wait
        async with producer.transaction():
            await producer.send("t", b"before")
        late = asyncio.Event()

        async def slow(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if isinstance(request, ProduceRequest) and not late.is_set():
                await late.wait()
                return refuse_produce(request, code("OUT_OF_ORDER_SEQUENCE_NUMBER"))
            return None

        cluster.rules.append(slow)
        producer.begin_transaction()
        await producer.send("t", b"v")
        with pytest.raises(TransactionAborted):
            await producer.commit_transaction()
        await producer.abort_transaction()
        late.set()
        await asyncio.sleep(1)  # and the answer has come
        async with producer.transaction():
            await producer.send("t", b"after")

    cluster = transacting(work, version, config=config, brokers=2)
    assert complaints == []
    assert cluster.partition("t").committed() == [b"before", b"after"]


@both
def test_a_coordinator_that_has_forgotten_the_id_gives_a_new_one(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.transactions.known.clear()
        with pytest.raises(TransactionAborted):
            async with producer.transaction():
                await producer.send("t", b"v")
        async with producer.transaction():
            await producer.send("t", b"w")

    assert transacting(work, version).partition("t").committed() == [b"w"]


@both
def test_an_id_that_must_not_be_used_ends_the_producer(version: int) -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.features["transaction.version"] = version
        await cluster.start()

        async def forbid(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if isinstance(request, InitProducerIdRequest):
                answer = broker.on_init_producer_id(request, version)
                answer.error_code = code("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
                return answer
            return None

        cluster.rules.append(forbid)
        async with another(cluster) as producer:
            with pytest.raises(NotAuthorized):
                await producer.init_transactions()
            with pytest.raises(NotAuthorized):
                producer.begin_transaction()

    run(main())


# ---- lost answers, moved coordinators --------------------------------------------------------------------

KINDS: list[type[Message]] = [AddPartitionsToTxnRequest, EndTxnRequest, ProduceRequest]


@both
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("was_done", [False, True])
def test_a_question_whose_answer_is_lost_is_asked_again(
    version: int, kind: type[Message], was_done: bool
) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.rules.append(once(kind, drop(first=was_done), times=2))
        async with producer.transaction():
            await producer.send("t", b"one")
            await producer.send_offsets({("t", 0): 1}, "g")
        cluster.rules.append(once(kind, drop(first=was_done)))
        producer.begin_transaction()
        await producer.send("t", b"two")
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"three")

    assert transacting(work, version).partition("t").committed() == [b"one", b"three"]


@both
def test_an_end_that_comes_late_does_not_end_the_next_transaction(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        late: list[Any] = []

        def lose(asked: Any) -> Message | None:
            late.append(asked)
            raise Drop

        cluster.rules.append(once(EndTxnRequest, lose))
        async with producer.transaction():
            await producer.send("t", b"one")
        producer.begin_transaction()
        await producer.send("t", b"two")
        await producer.flush()
        (broker,) = cluster.brokers.values()
        answer = broker.on_end_txn(late[0], 5 if version == NEW else 4)
        assert answer.error_code == code("PRODUCER_FENCED")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"three")

    assert transacting(work, version).partition("t").committed() == [b"one", b"three"]


@both
def test_a_coordinator_that_moves_is_found_again(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        for node_id in (2, 3, 1):
            async with producer.transaction():
                await producer.send("t", b"to %d" % node_id, partition=1)
                await producer.send_offsets({("t", 0): node_id}, "g")
                await producer.flush()
                cluster.coordinators.update(x=node_id, g=node_id % 3 + 1)
        assert cluster.transactions.group_offsets == {"g": {("t", 0): 1}}

    cluster = transacting(work, version, brokers=3, partitions=2)
    assert cluster.partition("t", 1).committed() == [b"to 2", b"to 3", b"to 1"]


@both
def test_a_broker_that_dies_in_the_middle_comes_back(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"before")
        await producer.flush()
        (broker,) = cluster.brokers.values()
        broker.stop()
        await producer.send("t", b"meanwhile")
        ending = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(5)
        assert not ending.done()
        await broker.start()
        await ending

    assert transacting(work, version).partition("t").committed() == [b"before", b"meanwhile"]


@both
def test_a_commit_that_nobody_answers_is_asked_for_again(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v")
        cluster.rules.append(once(EndTxnRequest, drop(first=True), times=1000))
        with pytest.raises(TimedOut, match="EndTxn"):
            await producer.commit_transaction()
        with pytest.raises(OutsideTransaction, match="commit_transaction"):
            await producer.abort_transaction()
        cluster.rules.clear()
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"w")

    config = CONFIG._replace(max_block_ms=5000)
    assert transacting(work, version, config=config).partition("t").committed() == [b"v", b"w"]


def test_a_cluster_that_goes_over_to_version_2_keeps_its_producers() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        async with producer.transaction():
            await producer.send("t", b"old")
        cluster.features["transaction.version"] = NEW
        for broker in cluster.brokers.values():  # what a connection says is as old as itself
            broker.stop()
            await broker.start()
        for number in range(3):
            async with producer.transaction():
                await producer.send("t", b"%d" % number)

    cluster = transacting(work, OLD)
    assert cluster.partition("t").committed() == [b"old", b"0", b"1", b"2"]
    assert versions_of(cluster, "EndTxn") == {4, 5}
    epochs = [header.producer_epoch for header, _ in cluster.partition("t").batches if not header.is_control]
    assert epochs == [0, 0, 1, 2]


# ---- prepared, and ended from elsewhere ------------------------------------------------------------------


async def prepared_by(producer: Producer, value: bytes) -> PreparedTransaction:
    producer.begin_transaction()
    await producer.send("t", value)
    prepared = await producer.prepare_transaction()
    await producer.close()
    return prepared


def admin_of(cluster: FakeCluster) -> Admin:
    config = ClientConfig(request_timeout_ms=2000)
    return Admin(cluster.network.host("admin"), LoopClock(), SeededRandom(3), cluster.bootstrap, config)


@both
@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_ended_by_somebody_else(version: int, commit: bool) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        prepared = await prepared_by(producer, b"v")
        assert prepared == PreparedTransaction("x", 1001, 0, False, version)
        assert cluster.transactions.known["x"].state == ONGOING
        cluster.rules.append(once(EndTxnRequest, drop(first=True)))
        async with admin_of(cluster) as admin:
            await admin.end_transaction(prepared, commit=commit)
            await admin.end_transaction(prepared, commit=commit)
            assert len(cluster.asked("EndTxn")) == 3
            with pytest.raises(TransactionEnded):
                await admin.end_transaction(prepared, commit=not commit)

    cluster = transacting(work, version)
    assert cluster.transactions.known["x"].state == (COMMITTED if commit else ABORTED)
    assert cluster.partition("t").committed() == ([b"v"] if commit else [])


@both
def test_a_prepared_transaction_that_was_taken_over_says_so(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        prepared = await prepared_by(producer, b"v")
        async with another(cluster) as newer:
            await newer.init_transactions()
        async with admin_of(cluster) as admin:
            for commit in (True, False):
                with pytest.raises(ProducerFenced):
                    await admin.end_transaction(prepared, commit=commit)

    assert transacting(work, version).partition("t").committed() == []


@both
def test_a_prepared_transaction_can_be_ended_by_its_producer(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v")
        assert await producer.prepare_transaction() == await producer.prepare_transaction()
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"w")

    assert transacting(work, version).partition("t").committed() == [b"v", b"w"]


@both
def test_closing_aborts_what_is_open(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v")
        await producer.flush()
        await producer.close()
        assert cluster.transactions.known["x"].state == ABORTED

    transacting(work, version)


@both
def test_closing_takes_no_longer_than_it_may(version: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v")
        await producer.flush()
        (broker,) = cluster.brokers.values()
        broker.stop()
        before = asyncio.get_running_loop().time()
        await producer.close(timeout_ms=1000)
        assert asyncio.get_running_loop().time() - before == pytest.approx(1)

    transacting(work, version)


# ---- anything at any time --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30), version=st.sampled_from([OLD, NEW]))
def test_whatever_is_lost_a_transaction_is_all_or_nothing(seed: int, version: int) -> None:
    random = SeededRandom(seed)
    due: list[bytes] = []

    async def spoil(broker: FakeBroker, request: Any, version: int) -> Message | None:
        match random.below(25):
            case 0:
                raise Drop(first=True)
            case 1:
                raise Drop
            case 2 if broker.cluster.coordinators:
                broker.cluster.coordinators["x"] = random.below(2) + 1
            case 3:
                broker.cluster.move("t", random.below(2), random.below(2) + 1)
        return None

    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.coordinators["x"] = 1
        cluster.rules.append(spoil)
        for number in range(8):
            values = [b"%d-%d" % (number, each) for each in range(random.below(6))]
            is_commit = random.below(3) > 0
            producer.begin_transaction()
            try:
                for each, value in enumerate(values):
                    await producer.send("t", value, partition=each % 2)
                    if random.below(3) == 0:
                        await producer.flush()
                if is_commit:
                    await producer.commit_transaction()
                    due.extend(values)
                else:
                    await producer.abort_transaction()
            except TransactionAborted:
                await producer.abort_transaction()
        cluster.rules.clear()

    config = CONFIG._replace(max_block_ms=600_000)
    cluster = transacting(work, version, config=config, brokers=2, partitions=2, seed=seed)
    found = [value for partition in (0, 1) for value in cluster.partition("t", partition).committed()]
    assert sorted(value for value in found if value is not None) == sorted(due)


# ---- the states by themselves ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "step", "phase"),
    [
        ("PRODUCER_FENCED", Step.PRODUCE, Phase.DEAD),
        ("INVALID_PRODUCER_EPOCH", Step.PRODUCE, Phase.FAILED),
        ("INVALID_PRODUCER_EPOCH", Step.COMMIT, Phase.DEAD),
        ("INVALID_PRODUCER_EPOCH", Step.ADD, Phase.DEAD),
        ("INVALID_TXN_STATE", Step.COMMIT, Phase.FAILED),
        ("INVALID_TXN_STATE", Step.ABORT, Phase.DEAD),
        ("INVALID_TXN_STATE", Step.ADD, Phase.DEAD),
        ("TRANSACTION_ABORTABLE", Step.COMMIT, Phase.FAILED),
        ("TRANSACTION_ABORTABLE", Step.OFFSETS, Phase.FAILED),
        ("GROUP_AUTHORIZATION_FAILED", Step.OFFSETS, Phase.FAILED),
        ("UNSUPPORTED_FOR_MESSAGE_FORMAT", Step.OFFSETS, Phase.DEAD),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Step.ADD, Phase.DEAD),
        ("UNKNOWN_SERVER_ERROR", Step.COMMIT, Phase.DEAD),
    ],
)
def test_what_an_error_means(name: str, step: Step, phase: Phase) -> None:
    transaction = Transaction("x")
    transaction.initialised(ProducerIdentity(1, 0), NEW)
    transaction.begin()
    transaction.failed(broker_error(wire_error(name), "said"), step)
    assert transaction.phase is phase
