"""Any history of commands: what is decided replays to the same image, and the image keeps its promises."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.controller.brokers import heartbeat, register_broker, unregister_broker
from barnabas.controller.configs import alter_config
from barnabas.controller.decisions import Decision
from barnabas.controller.producer_ids import allocate_producer_ids
from barnabas.controller.topics import create_topics, delete_topics
from barnabas.core.random import Random, SeededRandom
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, folded
from barnabas.metadata.parts import PartitionImage
from barnabas.metadata.records import decode_record, encode_record
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.clusters import CLUSTER_ID, POLICY, Cluster, creation, deletion, registration, topic
from tests.support.images import contents, image_of, to_records

BROKERS = (1, 2, 3, 4)
NAMES = ("a", "b.c", "b_c", "d")
SETTINGS = (("min.insync.replicas", "2"), ("min.insync.replicas", "1"), ("min.insync.replicas", None))
SETTINGS += (("unclean.leader.election.enable", "true"), ("unclean.leader.election.enable", None))


def _any(new: object) -> None:
    pass


def _command(image: ClusterImage, pick: Random, step: int, next_offset: int) -> Decision[object]:
    """One command, whatever comes; many are refused."""
    broker_id = BROKERS[pick.below(len(BROKERS))]
    epoch = image.brokers[broker_id].epoch if broker_id in image.brokers else -1
    name = NAMES[pick.below(len(NAMES))]
    kind = pick.below(10)
    if kind == 0:
        request = registration(
            broker_id, incarnation=step % 256, previous_epoch=epoch if pick.below(2) else -1
        )
        return register_broker(
            image, request, cluster_id=CLUSTER_ID, next_offset=next_offset, may_be_alive=pick.below(2) == 0
        )
    if kind == 1:
        return unregister_broker(image, UnregisterBrokerRequest(broker_id=broker_id))
    if kind in (2, 3, 4):
        beat = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=next_offset - 1,
            want_fence=pick.below(3) == 0,
            want_shut_down=pick.below(3) == 0,
        )
        return heartbeat(image, beat)
    if kind in (5, 6):
        wanted = creation(topic(name, 1 + pick.below(3), 1 + pick.below(3)))
        return create_topics(image, wanted, pick, POLICY)
    if kind == 7:
        return delete_topics(image, deletion(name))
    if kind == 8:
        return allocate_producer_ids(
            image, AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
        )
    setting, value = SETTINGS[pick.below(len(SETTINGS))]
    resource = (TOPIC_RESOURCE, name) if pick.below(2) else (BROKER_RESOURCE, "")
    return alter_config(image, *resource, {setting: value}, _any)


def run(seed: int, steps: int, *, has_elr: bool, check: Callable[[Cluster], None] | None = None) -> Cluster:
    cluster = Cluster(1, 2, has_elr=has_elr)
    for step in range(steps):
        decisions = [
            _command(cluster.image, SeededRandom(seed * 1000 + step), step, len(cluster.log))
            for _ in range(2)
        ]
        assert decisions[0] == decisions[1]  # deciding changed nothing, and depends on nothing else
        old = {topic.id: topic.partitions for topic in cluster.image.topics_by_name.values()}
        cluster.carry_out(decisions[0])
        _check_epochs(cluster.image, old)
        if check is not None:
            check(cluster)
    return cluster


def _check_epochs(image: ClusterImage, old: dict[bytes, tuple[PartitionImage, ...]]) -> None:
    for topic_id, partitions in old.items():
        now = image.topic_by_id(topic_id)
        if now is None:
            continue
        for index, before in enumerate(partitions):
            after = now.partitions[index]
            assert after.leader_epoch >= before.leader_epoch
            assert (after.partition_epoch > before.partition_epoch) == (after != before)
            if after.leader != before.leader:
                assert after.leader_epoch > before.leader_epoch


def _check_image(cluster: Cluster) -> None:
    image = cluster.image
    _check_index(image)
    for each in image.topics_by_name.values():
        for partition in each.partitions:
            _check_partition(image, partition)
    names = [name.replace(".", "_") for name in image.topics_by_name]
    assert len(set(names)) == len(names)


def _check_index(image: ClusterImage) -> None:
    """The index by broker and by name is what a look at everything would find."""
    assigned: dict[int, set[tuple[bytes, int]]] = {}
    led: dict[int, set[tuple[bytes, int]]] = {}
    for each in image.topics_by_id.values():
        assert image.topics_by_name[each.name] is each
        for index, partition in enumerate(each.partitions):
            led.setdefault(partition.leader, set()).add((each.id, index))
            for replica in partition.replicas:
                assigned.setdefault(replica, set()).add((each.id, index))
    assert {broker: set(keys) for broker, keys in image.assigned.items()} == assigned
    assert {broker: set(keys) for broker, keys in image.led.items()} == led
    assert len(image.topics_by_id) == len(image.topics_by_name) == len(list(image.topics_by_name))
    named = {folded(name): name for name in image.topics_by_name if folded(name)}
    assert dict(image.folded_names.items()) == named


def _check_partition(image: ClusterImage, partition: PartitionImage) -> None:
    replicas = set(partition.replicas)
    assert set(partition.isr) <= replicas
    assert set(partition.elr) <= replicas
    assert not set(partition.isr) & set(partition.elr)
    assert len(partition.directories) == len(partition.replicas)
    if partition.leader != -1:
        assert partition.leader in partition.isr
        assert image.brokers[partition.leader].is_active
    if not image.features.get("eligible.leader.replicas.version"):
        assert partition.isr
        assert not partition.elr


@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 40), steps=st.integers(0, 80), has_elr=st.booleans())
def test_any_history_replays_to_the_same_image(seed: int, steps: int, has_elr: bool) -> None:
    cluster = run(seed, steps, has_elr=has_elr, check=_check_image)
    again = image_of(*map(decode_record, cluster.log))
    assert again == contents(cluster.image)
    of_snapshot = image_of(*(decode_record(encode_record(each)) for each in to_records(cluster.image)))
    assert of_snapshot == again
    assert to_records(of_snapshot) == to_records(cluster.image)


def test_histories_are_the_same_in_every_process() -> None:
    """Nothing decided depends on the order of a set or on the seed of hashes."""
    code = (
        "from tests.controller.test_histories import run; import hashlib;"
        "print(hashlib.sha256(b''.join(run(7, 300, has_elr=True).log)).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
    assert len(digests.pop()) == 65
