"""Transactions of the client on real brokers, with every transaction.version; read by another client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping

import confluent_kafka
import pytest

from barnabas.client.admin import FeatureUpdate, FeatureUpgrade
from barnabas.client.errors import BrokerError, ProducerFenced, TransactionAborted, TransactionEnded
from barnabas.client.producer import ProducerConfig
from barnabas.client.transactions import PreparedTransaction
from tests.client.real import Clients, real
from tests.support.targets import Target

FEATURE = "transaction.version"
DEADLINE_S = 120.0

NewTarget = Callable[[Mapping[str, str]], Target]


@pytest.fixture(scope="module", params=[2, 1, 0])
def version(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[int]:
    """A transaction.version that the cluster has for a while."""
    level: int = request.param
    real(bootstrap, lambda clients: finalise(clients, level))
    yield level
    real(bootstrap, lambda clients: finalise(clients, 2))


async def finalise(clients: Clients, level: int) -> None:
    """Bring the cluster to that transaction.version, and wait until the broker knows."""
    async with clients.admin() as admin:

        async def present() -> int:
            found = (await admin.describe_features()).finalized.get(FEATURE)
            return 0 if found is None else found.last

        if await present() != level:
            way = FeatureUpgrade.UPGRADE if level == 2 else FeatureUpgrade.UNSAFE_DOWNGRADE
            await admin.update_features({FEATURE: FeatureUpdate(level, way)})
        deadline = time.monotonic() + DEADLINE_S
        while await present() != level:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


def named(name: str, version: int, **settings: int) -> ProducerConfig:
    return ProducerConfig(transactional_id=f"{name}-{version}", **settings)  # type: ignore[arg-type]


def committed(bootstrap: str, topic: str) -> list[bytes]:
    """What a reader of committed records finds up to the end, markers and all."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value())
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return values
        raise AssertionError(f"no end of {topic} within {DEADLINE_S} s")
    finally:
        consumer.close()


def test_committed_and_aborted(bootstrap: str, version: int) -> None:
    topic = f"txn-ends-{version}"

    async def work(clients: Clients) -> None:
        await clients.topic(topic)
        async with clients.producer(named("ends", version)) as producer:
            first = await producer.init_transactions()
            for number in range(20):
                producer.begin_transaction()
                for each in range(5):
                    await producer.send(topic, b"%d.%d" % (number, each))
                await producer.send_offsets({(topic, 0): number}, "group-of-" + topic)
                if number % 4 == 3:
                    await producer.flush()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
            producer.begin_transaction()
            prepared = await producer.prepare_transaction()
            assert prepared.version == version
            assert prepared.epoch == first.epoch + (20 if version == 2 else 0)
        async with clients.admin() as admin:
            (offset,) = (await admin.list_group_offsets("group-of-" + topic, require_stable=True)).values()
            assert offset.offset == 18

    real(bootstrap, work)
    due = [b"%d.%d" % (number, each) for number in range(20) if number % 4 != 3 for each in range(5)]
    assert committed(bootstrap, topic) == due


def test_the_older_one_is_fenced_and_what_it_left_is_aborted(bootstrap: str, version: int) -> None:
    topic = f"txn-fenced-{version}"

    async def work(clients: Clients) -> None:
        await clients.topic(topic)
        config = named("fenced", version)
        async with clients.producer(config) as older, clients.producer(config) as newer:
            await older.init_transactions()
            older.begin_transaction()
            await older.send(topic, b"left")
            await older.flush()
            await newer.init_transactions()
            async with newer.transaction():
                await newer.send(topic, b"new")
            with pytest.raises(ProducerFenced):
                await older.commit_transaction()
            with pytest.raises(ProducerFenced):
                await older.abort_transaction()

    real(bootstrap, work)
    assert committed(bootstrap, topic) == [b"new"]


def test_a_refused_record_spoils_the_transaction_alone(bootstrap: str, version: int) -> None:
    topic = f"txn-refused-{version}"

    async def work(clients: Clients) -> None:
        await clients.topic(topic, cleanup_policy="compact")
        async with clients.producer(named("refused", version)) as producer:
            await producer.init_transactions()
            for number in range(3):
                producer.begin_transaction()
                await producer.send(topic, b"%d" % number, key=b"%d" % number)
                if number == 1:
                    await producer.flush()
                    await producer.send(topic, b"compacted topics want keys")
                    with pytest.raises(TransactionAborted, match="INVALID_RECORD"):
                        await producer.commit_transaction()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()

    real(bootstrap, work)
    assert committed(bootstrap, topic) == [b"0", b"2"]


def test_prepared_and_ended_from_elsewhere(bootstrap: str, version: int) -> None:
    topic = f"txn-prepared-{version}"

    async def prepare(clients: Clients, number: int) -> PreparedTransaction:
        async with clients.producer(named("prepared", version)) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send(topic, b"%d" % number)
            return await producer.prepare_transaction()

    async def work(clients: Clients) -> None:
        await clients.topic(topic)
        async with clients.admin() as admin:
            for number, commit in enumerate((True, False, True)):
                prepared = await prepare(clients, number)
                (open_,) = (await admin.describe_transactions([prepared.transactional_id])).values()
                assert (open_.state, open_.producer_epoch) == ("Ongoing", prepared.epoch)
                for _ in range(3):
                    await admin.end_transaction(prepared, commit=commit)
                with pytest.raises(TransactionEnded, match="committed" if commit else "aborted"):
                    await admin.end_transaction(prepared, commit=not commit)
            await prepare(clients, 3)
            with pytest.raises(ProducerFenced, match="newer producer"):
                await admin.end_transaction(prepared)
            await admin.fence_producers([prepared.transactional_id])

    real(bootstrap, work)
    assert committed(bootstrap, topic) == [b"0", b"2"]


@pytest.mark.parametrize("level", [2, 1])
def test_one_that_outlasts_its_timeout(new_target: NewTarget, level: int) -> None:
    """How the coordinator's end of it is told: to the producer, and to whoever ends a prepared one."""

    async def work(clients: Clients) -> None:
        await finalise(clients, level)
        await clients.topic("slow")
        config = ProducerConfig(transactional_id="slow", transaction_timeout_ms=1000)
        async with clients.admin() as admin, clients.producer(config) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send("slow", b"slow")
            prepared = await producer.prepare_transaction()
            deadline = time.monotonic() + DEADLINE_S
            while (await admin.describe_transactions(["slow"]))["slow"].state != "CompleteAbort":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            with pytest.raises((TransactionEnded, ProducerFenced), match="aborted, for taking over 1000 ms"):
                await admin.end_transaction(prepared)
            if level == 1:
                with pytest.raises(ProducerFenced):
                    await producer.commit_transaction()
                return
            with pytest.raises(TransactionAborted, match="transaction_timeout_ms=1000"):
                await producer.commit_transaction()
            await producer.abort_transaction()

    target = new_target({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "10"})
    real(target.bootstrap, work)
    assert committed(target.bootstrap, "slow") == []


@pytest.mark.parametrize("level", [2, 1])
def test_a_broker_is_killed_in_the_middle(new_target: NewTarget, level: int) -> None:
    async def work(clients: Clients) -> None:
        await finalise(clients, level)
        await clients.topic("killed")
        async with clients.producer(ProducerConfig(transactional_id="killed")) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("killed", b"before")
                await producer.flush()
                await asyncio.to_thread(target.kill)
                await producer.send("killed", b"meanwhile")
                await asyncio.to_thread(target.start)
            producer.begin_transaction()
            await producer.send("killed", b"prepared")
            prepared = await producer.prepare_transaction()
        await asyncio.to_thread(target.kill)
        async with clients.admin() as admin:
            ending = asyncio.create_task(admin.end_transaction(prepared))
            await asyncio.to_thread(target.start)
            await ending

    target = new_target({})
    real(target.bootstrap, work)
    assert committed(target.bootstrap, "killed") == [b"before", b"meanwhile", b"prepared"]


def test_a_timeout_that_brokers_do_not_allow(bootstrap: str) -> None:
    async def work(clients: Clients) -> None:
        config = ProducerConfig(transactional_id="patient", transaction_timeout_ms=2_000_000_000)
        async with clients.producer(config) as producer:
            with pytest.raises(BrokerError, match=r"transaction\.max\.timeout\.ms"):
                await producer.init_transactions()

    real(bootstrap, work)
