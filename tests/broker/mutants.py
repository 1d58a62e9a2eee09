"""Damaged requests for the fuzzer: sound ones of every API and version, hurt in all kinds of ways.

Some of the sound ones mean something to the broker (a topic that is there, offsets that may be), some have
one value replaced by another of its type, some are random altogether: the damage is to reach every depth.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from barnabas.broker.connections.requests import _class_of
from barnabas.broker.handlers import SERVED
from barnabas.protocol.messages import alter_configs, incremental_alter_configs
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicState,
)
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_quorum import AskedPartition, AskedTopic, DescribeQuorumRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.schema import NO_UUID, Message, Struct
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from tests.broker.admin_requests import administrative
from tests.broker.group_requests import of_groups
from tests.broker.offset_requests import of_offsets
from tests.broker.transaction_requests import transactional
from tests.support.messages import _random_field, random_message
from tests.support.raw_client import frame, payload

TOPIC = "fuzzed"
INTERESTING = (0, 1, 2, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
NUMBERS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x27\x10",
    b"\x00\x98\x96\x80",
)


def sensible(key: int, topic_id: bytes, random: Random) -> Message:
    """A request that means something: of a topic that is there, of offsets that may be."""
    partition = random.choice((0, 0, 0, 1, -1, 2**31 - 1))
    offset = random.choice((0, 1, 5, -1, -2, 2**62))
    timestamp = random.choice((-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_000))
    name = random.choice((TOPIC, TOPIC, TOPIC, f"other-{random.randrange(5)}", "", ".", "__consumer_offsets"))
    match key:
        case 0:
            return _produce(name, topic_id, partition, random)
        case 1:
            ask = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            return FetchRequest(
                max_wait_ms=random.choice((0, 1)),
                min_bytes=random.choice((0, 1, 1 << 20)),
                session_id=random.choice((0, 0, 7)),
                session_epoch=random.choice((-1, 0, 1)),
                isolation_level=random.choice((0, 1)),
                topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[ask])],
            )
        case 2:
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[asked])])
        case 3:
            names = [MetadataRequestTopic(name=name, topic_id=NO_UUID)]
            return MetadataRequest(topics=random.choice((names, names, [])))
        case 9:
            topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[partition])]
            several = [OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[partition])]
            groups = [OffsetFetchRequestGroup(group_id="group", topics=random.choice((several, None)))]
            return OffsetFetchRequest(group_id="group", topics=topics, groups=groups)
        case 10:
            return FindCoordinatorRequest(
                key="group", coordinator_keys=["group", name], key_type=partition & 1
            )
        case 18:
            return ApiVersionsRequest(client_software_name="fuzz", client_software_version="1.0")
        case 19:
            return CreateTopicsRequest(topics=[_new_topic(random)], validate_only=random.random() < 0.3)
        case 20:
            doomed = f"other-{random.randrange(5)}"
            states = [DeleteTopicState(name=doomed, topic_id=NO_UUID)]
            return DeleteTopicsRequest(topics=states, topic_names=[doomed], timeout_ms=1000)
        case 23:
            epoch = OffsetForLeaderPartition(partition=partition, leader_epoch=random.choice((-1, 0, 1)))
            return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[epoch])])
        case 32:
            kind, who = random.choice(((2, name), (4, "1"), (4, ""), (8, "1"), (3, "x")))
            resource = DescribeConfigsResource(resource_type=kind, resource_name=who, configuration_keys=None)
            return DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        case 33 | 44:
            return _settings(key, name, random)
        case 74:
            return ListConfigResourcesRequest(resource_types=random.choice(([], [2, 32], [16, 5])))
        case 55:
            partitions = [AskedPartition(partition_index=random.choice((0, 0, 1)))]
            topic_name = random.choice(("__cluster_metadata", name))
            return DescribeQuorumRequest(topics=[AskedTopic(topic_name=topic_name, partitions=partitions)])
        case 57:
            feature, level = random.choice((("metadata.version", 30), ("kraft.version", 1), (name, 0)))
            update = FeatureUpdateKey(
                feature=feature, max_version_level=level, upgrade_type=1, allow_downgrade=False
            )
            return UpdateFeaturesRequest(feature_updates=[update], validate_only=random.random() < 0.5)
        case 60:
            return DescribeClusterRequest(
                include_cluster_authorized_operations=True, endpoint_type=random.choice((1, 2))
            )
    if (request := administrative(key, name, partition, offset, random)) is not None:
        return request
    if (request := transactional(key, name, partition, random)) is not None:
        return request
    if (request := of_groups(key, random)) is not None:
        return request
    if (request := of_offsets(key, name, topic_id, partition, offset, random)) is not None:
        return request
    raise AssertionError(f"the fuzzer knows no sensible request of API {key}: give it one here")


def _produce(name: str, topic_id: bytes, partition: int, random: Random) -> ProduceRequest:
    records = [Record(i, 1_700_000_000_000, b"k", random.randbytes(20), ()) for i in range(3)]
    identity = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0} if random.random() < 0.3 else {}
    batch = memoryview(build_batch(records, codec=random.randrange(5), **identity))
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=random.choice((1, 1, -1, 0, 5)),
        timeout_ms=1,
        topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])],
    )


def _settings(key: int, name: str, random: Random) -> Message:
    kind, who, setting, value = random.choice(
        (
            (2, name, "retention.ms", "1000000"),
            (2, name, "cleanup.policy", "delete"),
            (4, "1", "log.cleaner.backoff.ms", "999"),
            (4, "", "no.such", "x"),
            (8, "1", "barnabas.fuzzed", "INFO"),
            (16, "m", "match", "client_id=a"),
            (32, "g", "consumer.session.timeout.ms", "50000"),
        )
    )
    is_judged = random.random() < 0.3
    if key == 33:
        whole = alter_configs.AlterableConfig(name=setting, value=value)
        resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=who, configs=[whole])
        return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=is_judged)
    change = incremental_alter_configs.AlterableConfig(
        name=setting, config_operation=random.randrange(5), value=random.choice((value, value, None))
    )
    changed = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=who, configs=[change]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[changed], validate_only=is_judged
    )


def _new_topic(random: Random) -> CreatableTopic:
    by_hand = random.random() < 0.3
    return CreatableTopic(
        name=f"other-{random.randrange(5)}",
        num_partitions=-1 if by_hand else random.choice((1, 3, 0, -5)),
        replication_factor=-1 if by_hand else random.choice((1, 1, 2, 0)),
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] if by_hand else [],
        configs=[CreatableTopicConfig(name="retention.ms", value=random.choice(("1000", "x", None)))],
    )


def sound_payloads(topic_id: bytes, random: Random) -> list[bytes]:
    """Requests of every API and version that is served, several of each, as they stand in a frame."""
    made = []
    for key, served in SERVED.items():
        cls = _class_of(served, "Request")
        for version in range(max(served.first, cls.__versions__[0]), served.last + 1):
            requests = [sensible(key, topic_id, random) for _ in range(12)]
            requests += [distorted(request, version, random) for request in requests]
            requests.append(random_message(cls, version, random))
            made += [payload(request, version, random.getrandbits(20)) for request in requests]
    return made


def distorted(request: Message, version: int, random: Random) -> Message:
    """The request with one value anywhere in it replaced by another of its type, or a list made longer."""
    copied = copy.deepcopy(request, {id(view): view for view in _views(request)})
    inside: Struct = copied
    while True:
        fields = [field for field in inside.__fields__ if field.first <= version <= field.last]
        if not fields:
            return copied
        chosen = random.choice(fields)
        value = getattr(inside, chosen.name)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], Struct):
            if random.random() < 0.2:
                setattr(inside, chosen.name, list(value) * random.choice((2, 3, 200)))
                return copied
            inside = random.choice(value)
        elif chosen.name == "max_wait_ms":  # the fuzzer would have to wait as well
            return copied
        else:
            setattr(inside, chosen.name, _random_field(type(inside), chosen, version, random, 1))
            return copied


def _views(value: object) -> Iterator[memoryview]:
    """Records, which cannot be copied and need not be."""
    if isinstance(value, memoryview):
        yield value
    elif isinstance(value, Struct):
        for field in value.__fields__:
            yield from _views(getattr(value, field.name))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _views(each)


class Mutant(NamedTuple):
    """What is sent, and whether the stream has lost its meaning with it."""

    stream: bytes
    ends: bool


def mutate(sound: bytes, random: Random) -> Mutant:
    """Damage a request in up to three places; one in twenty also in the frame around it."""
    data = bytearray(sound)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        _damage(data, random)
    if random.random() < 0.05:
        return Mutant(_lie(bytes(data), random), ends=True)
    return Mutant(frame(bytes(data)), ends=False)


def _damage(data: bytearray, random: Random) -> None:
    if not data:
        data += random.randbytes(8)
        return
    at = random.randrange(random.choice((0, 10)) if len(data) > 10 else 0, len(data))
    match random.randrange(16):
        case 0 | 1 | 2 | 3 | 4 | 5 | 6:
            data[at] ^= 1 << random.randrange(8)
        case 7 | 8 | 9:
            data[at] = random.choice(INTERESTING)
        case 10 | 11:
            data[at : at + 4] = random.choice(NUMBERS)
        case 12:
            del data[at:]
        case 13:
            del data[at : at + random.randrange(1, 9)]
        case 14:
            data[at:at] = random.randbytes(random.randrange(1, 9))
        case _:
            key = random.choice((*SERVED, random.randrange(100), random.getrandbits(16) - 32768))
            version = random.choice((random.randrange(20), random.getrandbits(16) - 32768))
            data[:4] = struct.pack(">hh", key, version)


def _lie(data: bytes, random: Random) -> bytes:
    size = random.choice(
        (0, -1, len(data) // 2, len(data) + 1, len(data) + 1000, 2**31 - 1, -(2**31), 9, 1 << 24)
    )
    return struct.pack(">i", size) + data


def mutants(seed: int, count: int, topic_id: bytes) -> Iterator[Mutant]:
    """`count` damaged requests, the same for the same seed and topic."""
    random = Random(seed)
    sound = sound_payloads(topic_id, random)
    for _ in range(count):
        yield mutate(random.choice(sound), random)
