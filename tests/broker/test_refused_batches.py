"""Batches of idempotent producers that continue refused ones."""

from __future__ import annotations

import gc
import weakref

import pytest

from barnabas.broker.replicas import refused_batches
from barnabas.broker.replicas.refused_batches import RefusedBatches
from barnabas.broker.replicas.replica import NotEnoughReplicas
from barnabas.broker.replicas.roles import NotLeaderOrFollower
from barnabas.core.errors import OutOfOrderSequence
from barnabas.records.batch import MAX_SEQUENCE
from tests.support.clusters import VirtualCluster, run_cluster
from tests.support.logs import batch
from tests.support.replication import create_topic, error_of, partition_of, send

TOPIC = b"t" * 16


def sent(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> memoryview:
    return memoryview(batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))


def refused(*batches: memoryview) -> RefusedBatches:
    found = RefusedBatches()
    for each in batches:
        found.add(TOPIC, 0, each, NotLeaderOrFollower("node 2 leads"))
    return found


def test_a_batch_that_continues_a_refused_one_is_refused_with_its_error() -> None:
    batches = refused(sent(3, 2))
    with pytest.raises(NotLeaderOrFollower, match="node 2 leads"):
        batches.check(TOPIC, 0, sent(5))
    batches = RefusedBatches()
    batches.add(TOPIC, 0, sent(MAX_SEQUENCE - 1, 2), NotEnoughReplicas("1 of 2"))
    with pytest.raises(NotEnoughReplicas):
        batches.check(TOPIC, 0, sent(0))


def test_the_refused_batch_itself_ends_it() -> None:
    batches = refused(sent(3), sent(4))
    batches.check(TOPIC, 0, sent(3))
    batches.check(TOPIC, 0, sent(4))
    assert not batches


def test_others_are_not_refused() -> None:
    batches = refused(sent(3))
    batches.check(TOPIC, 1, sent(4))
    batches.check(b"u" * 16, 0, sent(4))
    batches.check(TOPIC, 0, sent(4, producer=8))
    batches.check(TOPIC, 0, memoryview(batch(1)))
    batches.check(TOPIC, 0, memoryview(b"damaged"))
    assert batches
    batches.check(TOPIC, 0, sent(4, epoch=1))
    assert not batches


def test_errors_after_which_nothing_is_sent_again_are_not_kept() -> None:
    batches = RefusedBatches()
    batches.add(TOPIC, 0, sent(3), OutOfOrderSequence("4 comes next"))
    batches.add(TOPIC, 0, memoryview(batch(1)), NotLeaderOrFollower("no producer id"))
    batches.add(TOPIC, 0, memoryview(b"damaged"), NotLeaderOrFollower("no batch"))
    assert not batches


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_batches, "KEPT", 2)
    batches = refused(sent(3, producer=1), sent(3, producer=2), sent(3, producer=1), sent(3, producer=3))
    batches.check(TOPIC, 0, sent(4, producer=2))
    with pytest.raises(NotLeaderOrFollower):
        batches.check(TOPIC, 0, sent(4, producer=1))


def test_a_row_of_refused_batches_names_the_first_error() -> None:
    batches = refused(sent(3))
    for sequence in (4, 5):
        with pytest.raises(NotLeaderOrFollower) as refusal:
            batches.check(TOPIC, 0, sent(sequence))
        assert str(refusal.value) == "an earlier batch of the producer was refused: node 2 leads"
        batches.add(TOPIC, 0, sent(sequence), refusal.value)


def test_refused_batches_are_not_kept_in_memory() -> None:
    def refuse(batches: RefusedBatches) -> weakref.ref[memoryview]:
        batch = sent(3)
        try:
            raise NotLeaderOrFollower("node 2 leads")
        except NotLeaderOrFollower as error:
            batches.add(TOPIC, 0, batch, error)
        return weakref.ref(batch)

    batches = RefusedBatches()
    batch = refuse(batches)
    gc.collect()
    assert batches
    assert batch() is None


def test_a_new_leader_takes_a_refused_batch_before_the_next_one() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "t", [[1, 2, 3]], min_insync_replicas="2")
        assert error_of(await send(cluster.nodes[1], "t", sent(0))) == "NONE"
        next_leader = cluster.nodes[2]
        for producer in (7, 8):
            answer = await send(next_leader, "t", sent(1, producer=producer))
            assert error_of(answer) == "NOT_LEADER_OR_FOLLOWER"
        await cluster.kill(1)
        await cluster.until(lambda: partition_of(next_leader, "t").leader == 2, "the next one leads")
        for producer in (7, 8):  # nothing is known of the second
            answers = [await send(next_leader, "t", sent(each, producer=producer)) for each in (2, 1, 2)]
            assert [error_of(each) for each in answers] == ["NOT_LEADER_OR_FOLLOWER", "NONE", "NONE"]
        await cluster.stop()

    run_cluster(scenario, VirtualCluster())


def test_a_batch_refused_under_min_insync_replicas_comes_before_the_next_one() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "t", [[1, 2, 3]], min_insync_replicas="3")
        leader = cluster.nodes[1]
        await cluster.kill(3)
        await cluster.until(lambda: set(partition_of(leader, "t").isr) == {1, 2}, "the ISR shrinks")
        assert error_of(await send(leader, "t", sent(0))) == "NOT_ENOUGH_REPLICAS"
        await cluster.start(3)
        await cluster.until(lambda: set(partition_of(leader, "t").isr) == {1, 2, 3}, "it is whole")
        answers = [await send(leader, "t", sent(each)) for each in (1, 0, 1)]
        assert [error_of(each) for each in answers] == ["NOT_ENOUGH_REPLICAS", "NONE", "NONE"]
        await cluster.stop()

    run_cluster(scenario, VirtualCluster())
