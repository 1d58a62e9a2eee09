"""What is known of a cluster never goes back, whatever brokers that are behind answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.cluster import ClientConfig, Cluster, parse_bootstrap
from barnabas.client.errors import UnknownTopic
from barnabas.client.metadata import Leader, Metadata
from barnabas.core.network import Address
from barnabas.core.random import SeededRandom
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import NO_UUID, Message
from barnabas.sim.loop import LoopClock, run
from tests.client.fake_broker import PORT, FakeBroker, FakeCluster


def answer(topic_id: int, leaders: dict[int, tuple[int, int]], error_code: int = 0) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[],
            isr_nodes=[],
            offline_replicas=[],
        )
        for index, (leader, epoch) in leaders.items()
    ]
    topic = MetadataResponseTopic(
        error_code=error_code, name="t", topic_id=topic_id.to_bytes(16, "big"), partitions=partitions
    )
    brokers = [MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092) for node in (1, 2, 3)]
    return MetadataResponse(throttle_time_ms=0, brokers=brokers, topics=[topic], error_code=0)


@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(0, 5), st.booleans()), max_size=30)
)
def test_epochs_never_go_back_while_the_topic_is_the_same(
    answers: list[tuple[int, int, int, bool]],
) -> None:
    metadata = Metadata()
    last: tuple[int, int] | None = None  # topic id, epoch
    for topic_id, leader, epoch, is_unknown in answers:
        metadata.update(answer(0, {}, 3) if is_unknown else answer(topic_id, {0: (leader, epoch)}))
        known = metadata.leader("t", 0)
        if is_unknown:
            assert known is None
            continue
        assert known is not None
        if last is not None and last[0] == topic_id:
            assert known.epoch == max(last[1], epoch)
        else:
            assert known == Leader(leader, epoch)
        last = (topic_id, known.epoch)


def test_a_leader_told_in_passing() -> None:
    metadata = Metadata()
    metadata.update(answer(1, {0: (1, 5)}))
    assert not metadata.learn_leader("t", 0, Leader(2, 5), None)
    assert not metadata.learn_leader("t", 0, Leader(9, 6), None)  # at no known address
    assert metadata.learn_leader("t", 0, Leader(9, 6), Address("b9", 1))
    assert metadata.leader("t", 0) == (9, 6)
    assert not metadata.learn_leader("t", 1, Leader(1, 6), None)
    assert not metadata.learn_leader("other", 0, Leader(1, 6), None)


def test_a_partition_without_a_leader() -> None:
    metadata = Metadata()
    metadata.update(answer(1, {0: (1, 5), 1: (-1, 5)}))
    assert metadata.leader("t", 0) == (1, 5)
    assert metadata.leader("t", 1) is None
    assert not metadata.has_all_leaders(metadata.topics["t"])


def test_names_of_ids_follow_the_topic() -> None:
    metadata = Metadata()
    metadata.update(answer(1, {0: (1, 0)}))
    metadata.update(answer(2, {0: (1, 0)}))
    assert metadata.name_of((2).to_bytes(16, "big")) == "t"
    assert metadata.name_of((1).to_bytes(16, "big")) is None
    assert metadata.name_of(NO_UUID) is None


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
        ("a", [("a", 9092)]),
        ("[::1]:7", [("::1", 7)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", " , ", "a:b", ":9092"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_bootstrap(text)


def in_cluster(brokers: int, config: ClientConfig | None = None) -> tuple[FakeCluster, Cluster]:
    fake = FakeCluster(brokers)
    network = fake.network.host("client")
    return fake, Cluster(network, LoopClock(), SeededRandom(1), "b1:9092,b2:9092", config)


def test_metadata_that_grows_old_is_fetched_again() -> None:
    async def main() -> None:
        fake, cluster = in_cluster(1, ClientConfig(metadata_max_age_ms=1000))
        fake.add_topic("t")
        await fake.start()
        await cluster.topic("t", 5)
        await asyncio.sleep(10.5)
        assert 10 <= len(fake.asked("Metadata")) <= 12
        await cluster.close()

    run(main())


def test_the_next_bootstrap_address_is_tried() -> None:
    async def main() -> None:
        fake, cluster = in_cluster(2)
        fake.add_topic("t")
        await fake.brokers[2].start()
        topic = await cluster.topic("t", 5)
        assert len(topic.leaders) == 1
        await cluster.close()

    run(main())


def test_many_who_want_metadata_share_one_request() -> None:
    async def main() -> None:
        fake, cluster = in_cluster(1)
        fake.add_topic("t")
        await fake.start()
        await asyncio.gather(*(cluster.topic("t", 5) for _ in range(20)))
        assert len(fake.asked("Metadata")) <= 2
        await cluster.close()

    run(main())


def test_a_topic_that_is_not_there_does_not_flood_the_broker() -> None:
    async def main() -> None:
        fake, cluster = in_cluster(1)
        await fake.start()
        cluster.track("nowhere")
        await asyncio.sleep(30)
        assert 20 <= len(fake.asked("Metadata")) <= 60
        await cluster.close()

    run(main())


def test_who_gives_up_leaves_the_topic_to_those_who_still_wait() -> None:
    async def main() -> None:
        fake, cluster = in_cluster(1)
        await fake.start()
        hasty = asyncio.ensure_future(cluster.topic("late", 2))
        patient = asyncio.ensure_future(cluster.topic("late", 60))
        with pytest.raises(UnknownTopic):
            await hasty
        await asyncio.sleep(3)
        fake.add_topic("late")
        assert len((await patient).leaders) == 1
        await cluster.close()

    run(main())


def test_a_topic_that_nobody_waits_for_any_more_is_not_asked_for() -> None:
    async def main() -> None:
        fake, cluster = in_cluster(1)
        await fake.start()
        waiting = asyncio.ensure_future(cluster.topic("nowhere", 60))
        await asyncio.sleep(3)
        waiting.cancel()
        await asyncio.sleep(3)
        before = len(fake.asked("Metadata"))
        await asyncio.sleep(60)
        assert len(fake.asked("Metadata")) == before
        await cluster.close()

    run(main())


def test_who_still_waits_for_an_answer_is_not_cut_off() -> None:
    """The bootstrap address is not one that brokers tell, so its connection goes: but not in the middle."""

    async def main() -> None:
        fake = FakeCluster(1)
        fake.add_topic("t")
        await fake.start()
        await fake.network.host("alias").listen("alias", PORT, fake.brokers[1]._accept)

        async def slow(broker: FakeBroker, request: Any, version: int) -> Message | None:
            await asyncio.sleep(1)
            return None

        network = fake.network.host("client")
        cluster = Cluster(network, LoopClock(), SeededRandom(1), f"alias:{PORT}")
        connection = await cluster.any_connection()
        fake.rules.append(slow)
        topic = asyncio.ensure_future(cluster.topic("t", 60))
        await asyncio.sleep(0.5)
        identity = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        answer = connection.submit(identity, InitProducerIdResponse)
        assert len((await topic).leaders) == 1
        assert not answer.done()
        assert (await answer).error_code == 0
        await cluster.refresh()
        assert connection.lost is not None
        await cluster.close()

    run(main())


def test_a_broker_that_sends_us_back_to_the_bootstrap_list() -> None:
    async def main() -> None:
        fake, cluster = in_cluster(1)
        fake.add_topic("t")
        await fake.start()

        async def send_back(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, MetadataRequest):
                return None
            fake.rules.clear()
            return MetadataResponse(throttle_time_ms=0, brokers=[], topics=[], error_code=129)

        fake.rules.append(send_back)
        assert len((await cluster.topic("t", 5)).leaders) == 1
        assert len(fake.brokers[1].connections) == 2
        await cluster.close()

    run(main())
