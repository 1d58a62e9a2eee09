"""A small cluster that speaks the protocol over a network in memory, for tests of the client.

Written from the protocol's rules and not from the broker's code. Partitions are lists of batches in memory,
shared by all brokers, with one leader each; a leader checks sequences as Kafka does. `rules` see every
request first: one may answer it, delay it, or have the connection dropped before or after it took effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from barnabas.client.metadata import TopicPartition
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import Connection, ConnectionLost
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.frames import FrameReader
from barnabas.protocol.headers import begin_response, read_request_header, set_length, skip_header_tags
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from barnabas.protocol.schema import NO_UUID, Message
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader
from barnabas.records.control import parse_end_transaction
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from tests.client.fake_transactions import FakeTransactions, TransactionHandlers

PORT = 9092
REQUESTS: list[type[Message]] = [
    api_versions.ApiVersionsRequest,
    create_topics.CreateTopicsRequest,
    delete_groups.DeleteGroupsRequest,
    delete_records.DeleteRecordsRequest,
    delete_topics.DeleteTopicsRequest,
    describe_cluster.DescribeClusterRequest,
    describe_configs.DescribeConfigsRequest,
    describe_groups.DescribeGroupsRequest,
    fetch.FetchRequest,
    find_coordinator.FindCoordinatorRequest,
    init_producer_id.InitProducerIdRequest,
    list_groups.ListGroupsRequest,
    list_offsets.ListOffsetsRequest,
    metadata.MetadataRequest,
    offset_commit.OffsetCommitRequest,
    offset_fetch.OffsetFetchRequest,
    produce.ProduceRequest,
    add_offsets_to_txn.AddOffsetsToTxnRequest,
    add_partitions_to_txn.AddPartitionsToTxnRequest,
    end_txn.EndTxnRequest,
    txn_offset_commit.TxnOffsetCommitRequest,
]

NOT_LEADER, OUT_OF_ORDER, BAD_EPOCH, OUT_OF_RANGE, UNKNOWN_PARTITION = 6, 45, 47, 1, 3
UNKNOWN_TOPIC_ID = 100
NO_SESSION, BAD_SESSION_EPOCH = 70, 71


class Drop(Exception):
    """Raised by a rule: drop the connection instead of answering; `first` lets the request take effect."""

    def __init__(self, *, first: bool = False) -> None:
        self.first = first


Rule = Callable[["FakeBroker", Any, int], Awaitable[Message | None]]


class FakePartition:
    """A log in memory."""

    def __init__(self, leader: int) -> None:
        self.leader, self.epoch = leader, 0
        self.start = 0
        self.emptied_to = 0  # whatever was below is compacted away
        self.local_start = 0  # whatever is below is in tiered storage
        self.batches: list[tuple[BatchHeader, bytearray]] = []
        self.producers: dict[int, list[tuple[int, int, int, int]]] = {}  # epoch, first, last, base offset
        self.aborted: list[fetch.AbortedTransaction] = []
        self.appended = asyncio.Event()

    @property
    def end(self) -> int:
        written_end = self.batches[-1][0].next_offset if self.batches else self.start
        return max(written_end, self.emptied_to)

    def compact(self, end: int) -> None:
        """Take away the batches up to that offset, and nothing else."""
        self.emptied_to = end
        self.batches = [each for each in self.batches if each[0].last_offset >= end]

    def append(self, data: bytes) -> tuple[int, int]:
        """(error code, base offset)"""
        batch = bytearray(data)
        header = kernel.check_batch(batch, 0, len(batch))
        if header.producer_id >= 0 and not header.is_control:
            past = self.producers.setdefault(header.producer_id, [])
            for epoch, first, last, base in past:
                if (epoch, first, last) == (
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                ):
                    return 0, base
            if past:
                epoch, _, last, _ = past[-1]
                if header.producer_epoch < epoch:
                    return BAD_EPOCH, -1
                due = 0 if header.producer_epoch > epoch else (last + 1) & 0x7FFFFFFF
                if header.base_sequence != due:
                    return OUT_OF_ORDER, -1
            past.append((header.producer_epoch, header.base_sequence, header.last_sequence, self.end))
            del past[:-5]
        base = self.end
        kernel.assign(batch, 0, base, self.epoch)
        self.batches.append((BatchHeader.parse(batch), batch))
        self.appended.set()
        self.appended = asyncio.Event()
        return 0, base

    def records(self) -> list[Record]:
        return [record for _, batch in self.batches for record in read_records(batch)]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def committed(self) -> list[bytes | None]:
        """The values that a reader of committed records gets, as far as the first open transaction."""
        found: list[bytes | None] = []
        for at, (header, batch) in enumerate(self.batches):
            if header.is_control:
                continue
            if header.is_transactional:
                later = (each for each in self.batches[at:] if each[0].is_control)
                end = next((each for each in later if each[0].producer_id == header.producer_id), None)
                if end is None:
                    break
                marker = parse_end_transaction(end[1])
                assert marker is not None
                if not marker.is_commit:
                    continue
            found += [record.value for record in read_records(batch)]
        return found


class FakeCluster:
    """Brokers 1..n at hosts b1..bn, and what they have in common."""

    def __init__(self, brokers: int = 1, network: MemoryNetwork | None = None) -> None:
        self.network = network or MemoryNetwork()
        self.bootstrap = f"b1:{PORT}"
        self.topics: dict[str, tuple[bytes, dict[int, FakePartition]]] = {}
        self.brokers = {node_id: FakeBroker(self, node_id) for node_id in range(1, brokers + 1)}
        self.rules: list[Rule] = []
        self.log: list[tuple[int, str, int, Any]] = []  # broker, request, version, what was asked
        self.max_versions: dict[str, int] = {}
        self.features: dict[str, int] = {}  # finalised
        self.next_producer_id = 1000
        self.next_topic = 1
        self.coordinators: dict[str, int] = {}  # by what they coordinate; broker 1 the rest
        self.transactions = FakeTransactions(self)

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()

    def add_topic(self, name: str, partitions: int = 1, *, with_id: bool = True) -> None:
        nodes = list(self.brokers)
        topic_id = self.next_topic.to_bytes(16, "big") if with_id else NO_UUID
        self.next_topic += 1
        self.topics[name] = (
            topic_id,
            {index: FakePartition(nodes[index % len(nodes)]) for index in range(partitions)},
        )

    def partition(self, topic: str, partition: int = 0) -> FakePartition:
        return self.topics[topic][1][partition]

    def move(self, topic: str, partition: int, leader: int) -> None:
        log = self.partition(topic, partition)
        log.leader, log.epoch = leader, log.epoch + 1

    def asked(self, name: str) -> list[Any]:
        return [request for _, each, _, request in self.log if each == name + "Request"]

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, (each, _) in self.topics.items() if each == topic_id), None)


class FakeBroker(TransactionHandlers):
    """One of them."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster, self.node_id = cluster, node_id
        self.host = f"b{node_id}"
        self.sessions: dict[int, tuple[int, dict[TopicPartition, Any]]] = {}
        self.told: dict[tuple[int, TopicPartition], int] = {}  # high watermarks, by session
        self.connections: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Any = None

    async def start(self) -> None:
        host = self.cluster.network.host(self.host)
        self._listener = await host.listen(self.host, PORT, self._accept)

    def stop(self) -> None:
        """As a process that dies: nobody listens, connections are reset."""
        self._listener.close()
        self.sessions.clear()
        for connection in self.connections:
            connection.abort()
        self.connections.clear()

    def _accept(self, connection: Connection) -> None:
        self.connections.append(connection)
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        reader = FrameReader(memoryview(bytearray(65536)), 1 << 30)
        try:
            while (count := await connection.readinto(reader.buffer())) > 0:
                for frame in reader.received(count):
                    await self._answer(connection, frame)
        except (ConnectionLost, Drop):
            pass
        connection.abort()

    async def _answer(self, connection: Connection, frame: memoryview) -> None:
        header = read_request_header(frame)
        cls = next(each for each in REQUESTS if each.__key__ == header.api_key)
        name, version = cls.__name__, header.api_version
        last = self.cluster.max_versions.get(name, cls.__versions__[1])
        if cls is api_versions.ApiVersionsRequest and version > last:
            refused = self.on_api_versions(None, 0, error_code=35)
            await self._write(connection, refused, header.correlation_id, 0)
            return
        assert version <= last
        body = skip_header_tags(frame, header.end) if version >= cls.__flexible__ else header.end
        request = decode(cls, version, frame, body)
        self.cluster.log.append((self.node_id, name, version, request))
        response = await self._decide(name, request, version)
        if response is not None:
            await self._write(connection, response, header.correlation_id, version)

    async def _decide(self, name: str, request: Any, version: int) -> Message | None:
        handle = getattr(self, "on_" + _snake(name.removesuffix("Request")), None)
        for rule in self.cluster.rules:
            try:
                response = await rule(self, request, version)
            except Drop as drop:
                if drop.first and handle is not None:
                    await _settled(handle(request, version))
                raise
            if response is not None:
                return response
        assert handle is not None, f"no rule of the test answers {name}"
        made: Message | None = await _settled(handle(request, version))
        return made

    async def _write(self, connection: Connection, response: Message, number: int, version: int) -> None:
        frame = begin_response(response.__key__, number, flexible=version >= type(response).__flexible__)
        frame += encode(response, version)
        set_length(frame)
        await connection.write([frame])

    # ---- one handler an API ------------------------------------------------------------------------------

    def on_api_versions(self, request: Any, version: int, error_code: int = 0) -> Message:
        keys = [
            api_versions.ApiVersion(
                api_key=cls.__key__,
                min_version=cls.__versions__[0],
                max_version=self.cluster.max_versions.get(cls.__name__, cls.__versions__[1]),
            )
            for cls in REQUESTS
        ]
        return api_versions.ApiVersionsResponse(
            error_code=error_code,
            api_keys=keys,
            throttle_time_ms=0,
            supported_features=(),
            finalized_features=[
                api_versions.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=0)
                for name, level in self.cluster.features.items()
            ],
        )

    def on_metadata(self, request: metadata.MetadataRequest, version: int) -> Message:
        cluster = self.cluster
        names = cluster.topics if request.topics is None else [each.name for each in request.topics]
        return metadata.MetadataResponse(
            throttle_time_ms=0,
            error_code=0,
            brokers=[
                metadata.MetadataResponseBroker(node_id=each.node_id, host=each.host, port=PORT)
                for each in cluster.brokers.values()
            ],
            controller_id=1,
            cluster_id="fake",
            topics=[self._topic(name or "", version) for name in names],
        )

    def _topic(self, name: str, version: int) -> metadata.MetadataResponseTopic:
        topic_id, partitions = self.cluster.topics.get(name, (NO_UUID, {}))
        return metadata.MetadataResponseTopic(
            error_code=0 if partitions else UNKNOWN_PARTITION,
            name=name,
            topic_id=topic_id,
            partitions=[
                metadata.MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=log.leader,
                    leader_epoch=log.epoch,
                    replica_nodes=[log.leader],
                    isr_nodes=[log.leader],
                    offline_replicas=[],
                )
                for index, log in partitions.items()
            ],
        )

    def on_find_coordinator(self, request: find_coordinator.FindCoordinatorRequest, version: int) -> Message:
        def found(key: str) -> find_coordinator.Coordinator:
            node_id = self.cluster.coordinators.get(key, 1)
            return find_coordinator.Coordinator(
                key=key, node_id=node_id, host=f"b{node_id}", port=PORT, error_code=0, error_message=None
            )

        if version >= 4:
            keys = [found(key) for key in request.coordinator_keys]
            return find_coordinator.FindCoordinatorResponse(coordinators=keys)
        one = found(request.key)
        return find_coordinator.FindCoordinatorResponse(node_id=one.node_id, host=one.host, port=one.port)

    def on_create_topics(self, request: create_topics.CreateTopicsRequest, version: int) -> Message:
        for topic in request.topics:
            self.cluster.add_topic(topic.name, topic.num_partitions)
        results = [
            create_topics.CreatableTopicResult(
                name=topic.name,
                topic_id=self.cluster.topics[topic.name][0],
                error_code=0,
                error_message=None,
                num_partitions=topic.num_partitions,
                configs=None,
            )
            for topic in request.topics
        ]
        return create_topics.CreateTopicsResponse(throttle_time_ms=0, topics=results)

    def on_describe_cluster(self, request: Any, version: int) -> Message:
        brokers = [
            describe_cluster.DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=PORT)
            for each in self.cluster.brokers.values()
        ]
        return describe_cluster.DescribeClusterResponse(
            throttle_time_ms=0, error_code=0, cluster_id="fake", controller_id=1, brokers=brokers
        )

    def on_delete_records(self, request: delete_records.DeleteRecordsRequest, version: int) -> Message:
        def result(topic: str, each: delete_records.DeleteRecordsPartition) -> Any:
            log = self.cluster.partition(topic, each.partition_index)
            is_here = log.leader == self.node_id
            if is_here:
                log.start = max(log.start, each.offset)
            return delete_records.DeleteRecordsPartitionResult(
                partition_index=each.partition_index,
                low_watermark=log.start if is_here else -1,
                error_code=0 if is_here else NOT_LEADER,
            )

        topics = [
            delete_records.DeleteRecordsTopicResult(
                name=topic.name, partitions=[result(topic.name, each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
        return delete_records.DeleteRecordsResponse(throttle_time_ms=0, topics=topics)

    def on_produce(self, request: produce.ProduceRequest, version: int) -> Message | None:
        topics = []
        for topic in request.topic_data:
            name = topic.name if version < 13 else self.cluster.name_of(topic.topic_id)
            answers = []
            for data in topic.partition_data:
                log = self.cluster.topics.get(name or "", (b"", {}))[1].get(data.index)
                error_code, base = UNKNOWN_TOPIC_ID if version >= 13 else UNKNOWN_PARTITION, -1
                if log is not None:
                    error_code, base = NOT_LEADER, -1
                    if log.leader == self.node_id:
                        batch = bytes(data.records)  # type: ignore[arg-type]
                        error_code = self.cluster.transactions.refusal(
                            request.transactional_id,
                            BatchHeader.parse(batch),
                            (name or "", data.index),
                            version,
                        )
                        if not error_code:
                            error_code, base = log.append(batch)
                answers.append(produced(data.index, error_code, base))
            topics.append(
                produce.TopicProduceResponse(
                    topic_id=topic.topic_id, name=topic.name, partition_responses=answers
                )
            )
        if request.acks == 0:
            return None
        return produce.ProduceResponse(responses=topics, node_endpoints=())

    async def on_fetch(self, request: fetch.FetchRequest, version: int) -> Message:
        wanted: dict[TopicPartition, Any] = {}
        session_id, session_epoch = request.session_id, request.session_epoch
        if session_epoch > 0:
            if session_id not in self.sessions:
                return fetched(NO_SESSION, 0, [])
            due, wanted = self.sessions[session_id]
            if due != session_epoch:
                return fetched(BAD_SESSION_EPOCH, 0, [])
        else:
            self.sessions.pop(session_id, None)
            session_id = len(self.sessions) + 100 * self.node_id + 1 if version >= 7 else 0
        for gone in request.forgotten_topics_data:
            name = gone.topic if version < 13 else self.cluster.name_of(gone.topic_id)
            for index in gone.partitions:
                wanted.pop(TopicPartition(name or "", index), None)
        for topic in request.topics:
            name = topic.topic if version < 13 else self.cluster.name_of(topic.topic_id)
            for each in topic.partitions:
                wanted[TopicPartition(name or "", each.partition)] = each
        if version >= 7:
            self.sessions[session_id] = (session_epoch + 1, wanted)
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            changes = [self.cluster.topics[tp.topic][1][tp.partition].appended for tp in wanted]
            answers = {tp: self._read(tp, want, request) for tp, want in wanted.items()}
            size = sum(len(each.records) for each in answers.values())
            is_error = any(each.error_code or each.diverging_epoch for each in answers.values())
            left = deadline - asyncio.get_running_loop().time()
            if size >= request.min_bytes or is_error or left <= 0:
                break
            waits = [asyncio.ensure_future(change.wait()) for change in changes]
            if waits:
                await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(left)
            for wait in waits:
                wait.cancel()
        topics: dict[str, Any] = {}
        for tp, answer in answers.items():
            is_told = self.told.get((session_id, tp)) == answer.high_watermark and session_epoch > 0
            self.told[session_id, tp] = answer.high_watermark
            if is_told and not (answer.records or answer.error_code or answer.diverging_epoch):
                continue
            topic_id = self.cluster.topics[tp.topic][0]
            by_id = version >= 13
            entry = topics.setdefault(
                tp.topic,
                fetch.FetchableTopicResponse(
                    topic_id=topic_id if by_id else NO_UUID, topic="" if by_id else tp.topic, partitions=[]
                ),
            )
            entry.partitions.append(answer)
        return fetched(0, session_id, list(topics.values()))

    def _read(self, tp: TopicPartition, want: Any, request: fetch.FetchRequest) -> Any:
        log = self.cluster.partition(*tp)
        error_code, data, diverging = 0, b"", None
        if log.leader != self.node_id:
            error_code = NOT_LEADER
        elif 0 <= want.current_leader_epoch < log.epoch:
            error_code = 74
        elif want.current_leader_epoch > log.epoch:
            error_code = 75
        elif want.last_fetched_epoch >= 0 and want.fetch_offset > log.end:
            diverging = fetch.EpochEndOffset(epoch=want.last_fetched_epoch, end_offset=log.end)
        elif not log.start <= want.fetch_offset <= log.end:
            error_code = OUT_OF_RANGE
        else:
            for header, batch in log.batches:
                if header.last_offset >= want.fetch_offset:
                    data += batch
                    if len(data) >= want.partition_max_bytes:
                        break
            first = next((len(b) for h, b in log.batches if h.last_offset >= want.fetch_offset), 0)
            data = data[: max(first, want.partition_max_bytes)]  # the last one may be cut
        return fetch.PartitionData(
            partition_index=tp.partition,
            error_code=error_code,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            aborted_transactions=list(log.aborted) if request.isolation_level else None,
            diverging_epoch=diverging,
            current_leader=None,
            snapshot_id=None,
            records=data,
        )

    def on_list_offsets(self, request: list_offsets.ListOffsetsRequest, version: int) -> Message:
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                log = self.cluster.partition(topic.name, each.partition_index)
                error_code, offset, timestamp = 0, -1, -1
                if log.leader != self.node_id:
                    error_code = NOT_LEADER
                elif each.timestamp == -1:
                    offset = log.end
                elif each.timestamp in (-2, -4):
                    offset = log.start if each.timestamp == -2 else max(log.start, log.local_start)
                else:
                    found = next((r for r in log.records() if r.timestamp >= each.timestamp), None)
                    if found is not None:
                        offset, timestamp = found.offset, found.timestamp
                answers.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=error_code,
                        offset=offset,
                        timestamp=timestamp,
                        leader_epoch=log.epoch,
                    )
                )
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return list_offsets.ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def produced(index: int, error_code: int, base_offset: int) -> produce.PartitionProduceResponse:
    return produce.PartitionProduceResponse(
        index=index, error_code=error_code, base_offset=base_offset, record_errors=(), current_leader=None
    )


def refuse_produce(request: produce.ProduceRequest, error_code: int) -> Message:
    """The same error for every partition of a produce request."""
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                topic_id=topic.topic_id,
                name=topic.name,
                partition_responses=[produced(each.index, error_code, -1) for each in topic.partition_data],
            )
            for topic in request.topic_data
        ],
        node_endpoints=(),
    )


def fetched(error_code: int, session_id: int, responses: list[Any]) -> Message:
    return fetch.FetchResponse(
        throttle_time_ms=0,
        error_code=error_code,
        session_id=session_id,
        responses=responses,
        node_endpoints=(),
    )


async def _settled(made: Any) -> Any:
    return await made if asyncio.iscoroutine(made) else made


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
