"""Requests of administrators, one after another, odd ones among them: what two brokers are compared by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.protocol.messages import alter_client_quotas as alter_quotas
from barnabas.protocol.messages import describe_client_quotas as describe_quotas
from barnabas.protocol.messages import describe_producers as producers
from barnabas.protocol.messages import describe_topic_partitions as describe
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.protocol.schema import NO_UUID, Message
from barnabas.records.builder import build_batch
from barnabas.records.record import Record

EARLIEST, LATEST = -2, -1
TIMEOUT_MS = 10_000


class Step(NamedTuple):
    """One request, and what its response is read as."""

    request: Message
    version: int
    response: type[Message]


def steps() -> Iterator[Step]:
    """All of them; they build on each other."""
    yield from _topics()
    yield from _partitions()
    yield from _records()
    yield from _descriptions()
    yield from _producers()
    yield from _elections()
    yield from _reassignments()
    yield from _quotas()
    yield from _filters()
    yield from _removals()
    yield Step(UnregisterBrokerRequest(broker_id=7), 0, UnregisterBrokerResponse)


def _topics() -> Iterator[Step]:
    for name, count, policy in (
        ("a", 2, "delete"),
        ("b", 1, "delete"),
        ("compacted", 1, "compact"),
        ("both", 1, "compact,delete"),
        ("t1", 3, "delete"),
        ("t2", 2, "delete"),
        ("t3", 4, "delete"),
    ):
        yield create(name, count, configs={"cleanup.policy": policy})
    yield create("a", 1)
    yield create("zero", 0)
    yield create("many", 1, 0)
    yield create("odd", 1, 2)
    cases: list[dict[int, list[int]]] = [
        {0: [2]},
        {0: [1, 1]},
        {0: []},
        {1: [1]},
        {0: [1], 2: [1]},
    ]
    for assigned in cases:
        yield create("by-hand", -1, -1, assigned)
    yield create("by-hand", 2, -1, {0: [1]})
    yield create("by-hand", -1, 1, {0: [1]})


def create(
    name: str,
    count: int,
    factor: int = 1,
    assigned: dict[int, list[int]] | None = None,
    configs: dict[str, str] | None = None,
) -> Step:
    """Create one topic."""
    topic = CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assigned or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    return Step(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 4, CreateTopicsResponse)


def _removals() -> Iterator[Step]:
    unknown = b"x" * 16
    cases: list[list[tuple[str | None, bytes]]] = [
        [("t3", NO_UUID), ("nope", NO_UUID), ("", NO_UUID)],
        [(None, unknown)],
        [(None, NO_UUID)],
        [("t2", unknown)],
        [("t2", NO_UUID), ("t2", NO_UUID)],
        [(None, unknown), (None, unknown)],
    ]
    for named in cases:
        topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in named]
        request = DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=TIMEOUT_MS)
        yield Step(request, 6, DeleteTopicsResponse)


# ---- CreatePartitions -------------------------------------------------------------------------------------

_Wanted = tuple[str, int, list[list[int]] | None]


def _partitions() -> Iterator[Step]:
    for count in (2, 1, 0, -1):
        yield _grow(("a", count, None))
    yield _grow(("nope", 3, None))
    yield _grow(("", 3, None))
    yield _grow(("__cluster_metadata", 3, None))
    yield _grow(("a", 3, None), ("a", 4, None))
    yield _grow(("a", 3, None), ("b", 2, None), validate_only=True)
    for assigned in ([[1]], [[1]] * 3, [[1], [2]], [[1], []], [[1], [1, 1]], [[1], [1, 2]], [], [[1], [-1]]):
        yield _grow(("a", 4, assigned))
    yield _grow(("a", 4, [[1], [1]]), validate_only=True)
    yield _grow(("a", 4, [[1], [1]]), ("b", 1, None), version=0)
    yield _grow(("a", 4, None))
    yield _grow()


def _grow(*topics: _Wanted, validate_only: bool = False, version: int = 3) -> Step:
    wanted = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if assigned is None
            else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned],
        )
        for name, count, assigned in topics
    ]
    request = CreatePartitionsRequest(topics=wanted, timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    return Step(request, version, CreatePartitionsResponse)


# ---- DeleteRecords ----------------------------------------------------------------------------------------


def _records() -> Iterator[Step]:
    for name in ("a", "compacted", "both"):
        for _ in range(5):
            yield _produce(name, 2)
    for offset in (0, 3, 2, 11, -2):
        yield _delete("a", (0, offset))
        yield _offset("a", EARLIEST)
        yield _offset("a", LATEST)
    yield _delete("a", (0, -1), version=0)
    yield _offset("a", EARLIEST)
    yield _delete("a", (0, 10), version=1)
    yield _delete("a", (1, 0), (1, 1), (0, 5))
    yield _delete("nope", (0, 0))
    yield _delete("a", (99, 0))
    yield _delete("compacted", (0, 1))
    yield _delete("compacted", (0, -1))
    yield _delete("both", (0, 3))
    yield _delete("__cluster_metadata", (0, 0))
    yield _delete("a")


def _delete(name: str, *offsets: tuple[int, int], version: int = 2) -> Step:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets]
    topics = [DeleteRecordsTopic(name=name, partitions=partitions)]
    return Step(DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS), version, DeleteRecordsResponse)


def _offset(name: str, timestamp: int) -> Step:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=name, partitions=[asked])]
    )
    return Step(request, 6, ListOffsetsResponse)


def _produce(name: str, count: int, *, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> Step:
    records = [Record(i, 1_700_000_000_000 + i, b"k", b"v", ()) for i in range(count)]
    batch = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=name, topic_id=NO_UUID, partition_data=[data])],
    )
    return Step(request, 9, ProduceResponse)


# ---- DescribeTopicPartitions, DescribeProducers -----------------------------------------------------------


def _descriptions() -> Iterator[Step]:
    yield _describe([])
    yield _describe(["t1", "t2"])
    yield _describe(["t2", "t1", "t1"], 4)
    yield _describe(["t1", "t2", "t3"], 5)
    yield _describe(["t1", "t2"], 3)
    yield _describe(["nope", "t1", "..", "a b"])
    yield _describe(["t1", "nope"], 3)
    yield _describe(["nope", "t1"], 0)
    yield _describe(["t1"], -1)
    yield _describe([], 0)
    for names, limit, cursor in (
        (["t1", "t2"], 1, ("t1", 2)),
        (["t1", "t2"], 10, ("t1", 3)),
        (["t1", "t2"], 10, ("t2", 9)),
        (["t1"], 10, ("t2", 0)),
        (["t1"], -5, ("t1", 1)),
        (["t1"], 10, ("t1", -1)),
        (["t1"], 10, ("", 1)),
        (["t1"], 10, ("a", 0)),
        (["nope"], 10, ("nope", 3)),
        (["nope", "t1"], 10, ("nope", 1)),
        ([], 2, ("t2", 1)),
        ([], 2, ("t15", 1)),
        ([], 100, ("zzz", 0)),
    ):
        yield _describe(names, limit, cursor)


def _describe(names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Step:
    request = describe.DescribeTopicPartitionsRequest(
        topics=[describe.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else describe.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return Step(request, 0, describe.DescribeTopicPartitionsResponse)


def _producers() -> Iterator[Step]:
    yield _produce("t1", 2, producer_id=4711, epoch=3, sequence=0)
    yield _produce("t1", 2, producer_id=4711, epoch=3, sequence=2)
    cases: list[list[tuple[str, list[int]]]] = [
        [("t1", [0, 1, 9]), ("nope", [0]), ("t1", [0])],
        [("..", [0]), ("", [0])],
        [("t1", [0, 0])],
        [("t1", [])],
        [],
    ]
    for asked in cases:
        topics = [producers.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in asked]
        yield Step(producers.DescribeProducersRequest(topics=topics), 0, producers.DescribeProducersResponse)


# ---- ElectLeaders, reassignments --------------------------------------------------------------------------


def _elections() -> Iterator[Step]:
    for election_type in (0, 1, 2, -1):
        yield _elect([("b", [0])], election_type)
    yield _elect([])
    yield _elect([("b", [0, 7]), ("nope", [0])])
    yield _elect([("b", [7]), ("", [0])], 1)
    yield _elect([("b", [0, 0]), ("b", [0])])
    yield _elect([("b", [])])
    for version in (0, 1, 2):
        yield _elect([("b", [0])], version=version)
        yield _elect(None, version=version)
    yield _elect(None, 1)


def _elect(asked: list[tuple[str, list[int]]] | None, election_type: int = 0, version: int = 2) -> Step:
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=None
        if asked is None
        else [TopicPartitions(topic=name, partitions=indexes) for name, indexes in asked],
        timeout_ms=TIMEOUT_MS,
    )
    return Step(request, version, ElectLeadersResponse)


def _reassignments() -> Iterator[Step]:
    for asked in (None, [], [("b", [0])], [("nope", [0])], [("b", [7])]):
        yield _list_moves(asked)
    for target in ([1], None, [], [2], [1, 2], [1, 1], [-1], [2, 1]):
        yield _move("b", (0, target))
    yield _move("b", (0, [1]), version=0)
    yield _move("b", (7, [1]), (7, None))
    yield _move("nope", (0, [1]), (0, None))
    yield _move("b", (0, [1, 2]), may_change_factor=False)
    yield _move("b", (0, [1]), may_change_factor=False)
    yield _move("b", (0, [1]), (0, [2]))


def _list_moves(asked: list[tuple[str, list[int]]] | None) -> Step:
    topics = (
        None
        if asked is None
        else [ListPartitionReassignmentsTopics(name=name, partition_indexes=at) for name, at in asked]
    )
    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)
    return Step(request, 0, ListPartitionReassignmentsResponse)


def _move(
    name: str, *targets: tuple[int, list[int] | None], version: int = 1, may_change_factor: bool = True
) -> Step:
    partitions = [
        ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in targets
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        allow_replication_factor_change=may_change_factor,
        topics=[ReassignableTopic(name=name, partitions=partitions)],
    )
    return Step(request, version, AlterPartitionReassignmentsResponse)


# ---- quotas -----------------------------------------------------------------------------------------------

_Named = list[tuple[str, str | None]]
_Ops = list[tuple[str, float | None]]
PRODUCE, CONSUME, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATE, CONNECT = "controller_mutation_rate", "connection_creation_rate"

# rates so high that nobody is throttled while the steps are taken
_QUOTAS: list[tuple[_Named, _Ops]] = [
    ([("user", "u")], [(PRODUCE, 1e9)]),
    ([("user", "u")], [(PRODUCE, 1e9), (PRODUCE, 5.0)]),
    ([("user", "u")], [("nokey", 1.0)]),
    ([("user", "u")], [(PRODUCE, 1.5)]),
    ([("user", "u")], [(REQUEST, 150.5)]),
    ([("user", "u")], [(PRODUCE, None)]),
    ([("user", "u")], [(PRODUCE, None), ("nokey", None)]),
    ([("user", "u")], []),
    ([("user", "u"), ("user", "v")], [(PRODUCE, 7e9)]),
    ([], [(PRODUCE, 1.0)]),
    ([("user", "")], [(PRODUCE, 1.0)]),
    ([("group", "g")], [(PRODUCE, 1.0)]),
    ([("user", "u"), ("ip", "1.2.3.4")], [(PRODUCE, 1.0)]),
    ([("ip", "1.2.3.4")], [(PRODUCE, 1.0)]),
    ([("ip", "1.2.3.4")], [(CONNECT, 1e6)]),
    ([("ip", "1.2.3.4")], [(CONNECT, 3e9)]),
    ([("ip", "::1")], [(CONNECT, 1e6)]),
    ([("ip", None)], [(CONNECT, 10.5)]),
    ([("ip", None)], [(CONNECT, 1e6)]),
    ([("ip", "not an ip")], [(CONNECT, 10.0)]),
    ([("client-id", "c")], [(PRODUCE, 1e9), (CONSUME, 2e9), (REQUEST, 300.0), (MUTATE, 4000.5)]),
    ([("client-id", None)], [(PRODUCE, 1e9)]),
    ([("user", None)], [(PRODUCE, 1e9)]),
    ([("user", "u"), ("client-id", "c")], [(PRODUCE, 1e9)]),
    ([("client-id", None), ("user", "u")], [(PRODUCE, 1e9)]),
    ([("client-id", "c"), ("user", None)], [(PRODUCE, 1e9)]),
    ([("user", "negative")], [(PRODUCE, -7.0)]),
    ([("user", "nothing")], [(PRODUCE, 0.0)]),
    ([("user", "partly")], [(PRODUCE, 5e9), ("nokey", 6.0)]),
    ([("user", "infinite")], [(PRODUCE, float("inf"))]),
    ([("user", "infinite")], [(REQUEST, float("inf"))]),
    ([("user", "large")], [(PRODUCE, 1e300)]),
    ([("user", "largest")], [(PRODUCE, 2.0**63)]),
    ([("user", "nearly")], [(PRODUCE, 99.9999999)]),
    ([("user", "hardly")], [(PRODUCE, 1e9 + 1e-7)]),
    ([("user", "wrong")], [(CONNECT, 4.0)]),
    ([("ip", "1.2.3.4")], [(REQUEST, 4.0)]),
]


def _quotas() -> Iterator[Step]:
    for named, ops in _QUOTAS:
        yield _alter([(named, ops)])
    yield _alter([([("user", "seen")], [(PRODUCE, 7e9)])], validate_only=True)
    yield _alter([([("user", "one")], [("nokey", 6.0)]), ([("user", "two")], [(PRODUCE, 1e9)])], version=0)
    yield _alter([])


def _alter(entries: Iterable[tuple[_Named, _Ops]], *, validate_only: bool = False, version: int = 1) -> Step:
    request = alter_quotas.AlterClientQuotasRequest(
        entries=[
            alter_quotas.EntryData(
                entity=[alter_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in named],
                ops=[
                    alter_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in ops
                ],
            )
            for named, ops in entries
        ],
        validate_only=validate_only,
    )
    return Step(request, version, alter_quotas.AlterClientQuotasResponse)


_FILTERS: list[list[tuple[str, int, str | None]]] = [
    [],
    [("user", 0, "u")],
    [("user", 0, "nobody")],
    [("user", 1, None)],
    [("user", 2, None)],
    [("client-id", 2, None)],
    [("user", 2, None), ("client-id", 2, None)],
    [("user", 0, "u"), ("client-id", 2, None)],
    [("user", 0, "u"), ("client-id", 1, None)],
    [("ip", 2, None)],
    [("ip", 1, None)],
    [("ip", 2, None), ("user", 2, None)],
    [("", 2, None)],
    [("group", 2, None)],
    [("user", 0, None)],
    [("user", 1, "u")],
    [("user", 2, "u")],
    [("user", 3, "u")],
    [("user", 0, "u"), ("user", 0, "v")],
]


def _filters() -> Iterator[Step]:
    for version, strict in ((1, False), (0, True)):
        for components in _FILTERS:
            request = describe_quotas.DescribeClientQuotasRequest(
                components=[
                    describe_quotas.ComponentData(entity_type=kind, match_type=match_type, match=match)
                    for kind, match_type, match in components
                ],
                strict=strict,
            )
            yield Step(request, version, describe_quotas.DescribeClientQuotasResponse)
