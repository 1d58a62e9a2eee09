"""What a node tells of itself: the numbers are those of what was done, and the dashboard asks for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from barnabas.broker.metrics import endpoint as endpoint_module
from barnabas.broker.metrics.endpoint import MetricsEndpoint
from barnabas.broker.metrics.table import FAMILIES
from barnabas.core.clock import SystemClock
from barnabas.core.metrics import Page
from barnabas.core.os_network import OsNetwork
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.workers import InlineWorkers
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.testing import Broker
from tests.support.logs import batch
from tests.support.raw_client import (
    RawClient,
    fetch_request,
    metadata_request,
    produce_request,
    wait_until,
)
from tests.support.scraping import SETTINGS, TIMEOUT_S, Scrape, address_of, get

ROOT = Path(__file__).parents[2]
BTM = "kafka_server_brokertopicmetrics"
REQUESTS = "kafka_network_requestmetrics_requests_total"
ERRORS = "kafka_network_requestmetrics_errors_total"
# there is nothing to tell before a compacted topic was looked at
LATER = {"kafka_log_logcleanermanager_time_since_last_run_ms"}
OF_OTHERS = {name for name in FAMILIES if name.startswith(("barnabas_follower", "barnabas_fetcher"))}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        yield connected


def produce(client: RawClient, topic: str, values: list[bytes]) -> int:
    answer = client.ask(produce_request(topic, values), 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def test_traffic_is_counted_by_topic_and_together(broker: Broker, client: RawClient) -> None:
    client.ask(metadata_request("letters", "parcels"), 9, MetadataResponse)
    assert produce(client, "letters", [b"one", b"two"]) == 0
    assert produce(client, "parcels", [b"three"]) == 0
    fetched = client.ask(fetch_request("letters"), 12, FetchResponse)
    records = fetched.responses[0].partitions[0].records
    assert records
    scrape = Scrape(broker)
    assert scrape(f"{BTM}_messagesin_total", topic="letters") == 2
    assert scrape(f"{BTM}_messagesin_total", topic="parcels") == 1
    assert scrape(f"{BTM}_messagesin_total") == 3
    assert scrape(f"{BTM}_bytesin_total", topic="letters") == len(records)
    assert scrape(f"{BTM}_bytesout_total", topic="letters") == len(records)
    assert scrape(f"{BTM}_bytesout_total", topic="parcels") == 0
    assert scrape(f"{BTM}_totalproducerequests_total") == 2
    assert scrape(f"{BTM}_totalfetchrequests_total") == 1
    assert scrape(REQUESTS, request="Produce", version="9") == 2
    assert scrape(REQUESTS, request="Fetch", version="12") == 1
    assert scrape(REQUESTS, request="FetchConsumer", version="12") == 1
    assert not scrape.has(REQUESTS, request="FetchFollower", version="12")
    assert scrape("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 2
    assert scrape("barnabas_request_seconds_bucket", request="Produce", le="+Inf") == 2


def test_partitions_logs_and_waits_are_told(broker: Broker, client: RawClient) -> None:
    client.ask(metadata_request("letters"), 9, MetadataResponse)
    produce(client, "letters", [b"one", b"two"])
    with RawClient(broker.port) as reader:
        reader.send(fetch_request("letters", offset=2, max_wait_ms=60_000), 12)
        waits = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
        wait_until(lambda: Scrape(broker)(waits, delayedOperation="Fetch") == 1, "a fetch waits")
        scrape = Scrape(broker)
    assert scrape("kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Fetch") == 1
    assert scrape("kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Produce") == 0
    connections = "kafka_server_socket_server_metrics_connection_count"
    assert scrape(connections, listener="PLAINTEXT") == 2
    assert scrape("kafka_server_replicamanager_partitioncount") == 1
    assert scrape("kafka_server_replicamanager_leadercount") == 1
    assert scrape("kafka_server_replicamanager_offlinereplicacount") == 0
    assert scrape("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert scrape("kafka_controller_kafkacontroller_globaltopiccount") == 1
    assert scrape("kafka_log_log_logendoffset", topic="letters", partition="0") == 2
    assert scrape("kafka_log_log_size", topic="letters", partition="0") > 0
    assert scrape("kafka_log_log_numlogsegments", topic="__cluster_metadata", partition="0") == 1
    assert scrape("kafka_cluster_partition_insyncreplicascount", topic="letters", partition="0") == 1
    produce(client, "letters", [b"three"])  # which would be its answer
    wait_until(lambda: Scrape(broker)(connections, listener="PLAINTEXT") == 1, "it is seen that one left")


def test_groups_and_transactions_are_told_of(broker: Broker, client: RawClient) -> None:
    client.ask(metadata_request("letters"), 9, MetadataResponse)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.subscribe(["letters"])
    wait_until(lambda: consumer.poll(0.05) is not None or bool(consumer.assignment()), "it has its part")
    consumer.commit(offsets=[TopicPartition("letters", 0, 7)], asynchronous=False)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("letters", b"one")
    producer.flush(20)
    scrape = Scrape(broker)
    groups = "kafka_coordinator_group_groupmetadatamanager"
    assert scrape(f"{groups}_numgroups") == scrape(f"{groups}_numgroupsstable") == 1
    assert scrape(f"{groups}_numoffsets") == 1
    assert scrape("barnabas_group_rebalances_total") == 1
    assert scrape("barnabas_transactional_ids", state="Ongoing") == 1
    producer.commit_transaction(20)
    consumer.close()
    scrape = Scrape(broker)
    assert scrape(f"{groups}_numgroupsempty") == 1
    assert scrape("barnabas_transactional_ids", state="Ongoing") == 0
    assert scrape("barnabas_transactional_ids", state="CompleteCommit") == 1


def test_errors_are_counted_by_name(broker: Broker, client: RawClient) -> None:
    small = CreatableTopicConfig(name="max.message.bytes", value="100")
    topic = CreatableTopic(
        name="letters", num_partitions=1, replication_factor=1, assignments=[], configs=[small]
    )
    for _ in range(2):
        client.ask(CreateTopicsRequest(topics=[topic]), 4, CreateTopicsResponse)
    assert produce(client, "letters", [b"x" * 200]) == 10
    assert produce(client, "nothing", [b"x"]) == 3
    client.ask(fetch_request("letters", offset=99), 12, FetchResponse)
    scrape = Scrape(broker)
    assert scrape(ERRORS, request="CreateTopics", error="NONE") == 1
    assert scrape(ERRORS, request="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1
    assert scrape(ERRORS, request="Produce", error="MESSAGE_TOO_LARGE") == 1
    assert scrape(ERRORS, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert scrape(ERRORS, request="Fetch", error="OFFSET_OUT_OF_RANGE") == 1
    assert scrape(f"{BTM}_bytesrejected_total", topic="letters") > 200
    # these are in the course of things
    assert scrape(f"{BTM}_failedproducerequests_total", topic="letters") == 0
    assert scrape(f"{BTM}_failedfetchrequests_total", topic="letters") == 0
    assert (
        client.ask(produce_request("letters", [b"x"], acks=7), 9, ProduceResponse)
        .responses[0]
        .partition_responses[0]
        .error_code
        == 21
    )


def test_what_a_deleted_topic_had_is_not_taken_back(broker: Broker, client: RawClient) -> None:
    client.ask(metadata_request("letters"), 9, MetadataResponse)
    produce(client, "letters", [b"one", b"two"])
    client.ask(DeleteTopicsRequest(topic_names=["letters"], timeout_ms=1000), 5, DeleteTopicsResponse)
    scrape = Scrape(broker)
    assert not scrape.has(f"{BTM}_messagesin_total", topic="letters")
    assert scrape(f"{BTM}_messagesin_total") == 2
    assert scrape("kafka_controller_kafkacontroller_globaltopiccount") == 0


def test_many_partitions_are_told_of_in_turns(broker: Broker, client: RawClient) -> None:
    topic = CreatableTopic(name="many", num_partitions=500, replication_factor=1, assignments=[], configs=[])
    client.ask(CreateTopicsRequest(topics=[topic]), 4, CreateTopicsResponse)
    scrape = Scrape(broker)
    assert scrape("kafka_server_replicamanager_leadercount") == 500
    assert scrape("kafka_cluster_partition_replicascount", topic="many", partition="499") == 1
    # nothing was opened for it
    assert not scrape.has("kafka_log_log_size", topic="many", partition="499")
    assert scrape("barnabas_partitions_open") == 1


def test_a_broker_that_was_unregistered_is_still_measured(broker: Broker, client: RawClient) -> None:
    client.ask(metadata_request("letters"), 9, MetadataResponse)
    assert produce(client, "letters", [b"one"]) == 0
    assert client.ask(UnregisterBrokerRequest(broker_id=1), 0, UnregisterBrokerResponse).error_code == 0
    scrape = Scrape(broker)
    assert scrape("kafka_controller_kafkacontroller_activebrokercount") == 0
    assert scrape("kafka_controller_kafkacontroller_offlinepartitionscount") == 1
    assert scrape("kafka_server_replicamanager_partitioncount") == 1
    assert scrape("kafka_server_replicamanager_offlinereplicacount") == 0


def test_the_process_and_the_loop_are_told_of(broker: Broker) -> None:
    wait_until(lambda: Scrape(broker)("barnabas_loop_stall_seconds_count") >= 2, "the loop is watched")
    scrape = Scrape(broker)
    assert scrape("barnabas_loop_stall_seconds_bucket", le="+Inf") >= 2
    assert 0 <= scrape("kafka_network_socketserver_networkprocessoravgidle_percent") <= 1
    assert 0 < scrape("barnabas_loop_busy_seconds_total") <= scrape("process_cpu_seconds_total")
    assert 0 < scrape("barnabas_start_seconds") < 30
    assert scrape("kafka_server_kafkaserver_brokerstate") == 3
    if sys.platform == "linux":
        assert scrape("process_resident_memory_bytes") > 1 << 20
        assert 0 < scrape("process_open_fds") <= scrape("process_max_fds")
        assert scrape("process_start_time_seconds") > 1_600_000_000


def test_a_stall_of_the_loop_is_seen(broker: Broker) -> None:
    async def stall() -> None:
        time.sleep(0.4)  # noqa: ASYNC251 - this is what must not happen

    def late() -> float:
        scrape = Scrape(broker)
        buckets = "barnabas_loop_stall_seconds_bucket"
        return scrape(buckets, le="+Inf") - scrape(buckets, le="0.131072")

    before = late()
    broker.run(stall())
    wait_until(lambda: late() > before, "the stall is told")


def test_a_recovery_and_open_files_are_told_of(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", SETTINGS) as broker:
        with RawClient(broker.port) as client:
            client.ask(metadata_request("letters"), 9, MetadataResponse)
            produce(client, "letters", [b"one"])
        scrape = Scrape(broker)
        assert scrape("barnabas_open_files") > 0
        flushes = "kafka_log_logflushstats_logflushrateandtimems_count"
        assert scrape(flushes, logDirectory=str(tmp_path / "data")) > 0  # of the metadata
        broker.kill()
        broker.start()
        wait_until(lambda: Scrape(broker)("barnabas_log_recoveries_total") == 2, "both logs are recovered")
        assert Scrape(broker)("barnabas_log_recovery_seconds_total") > 0
        broker.restart()
        assert Scrape(broker)("barnabas_log_recoveries_total") == 0


def test_a_directory_that_cannot_be_used_is_told_of(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.write_text("no directory")
    with Broker(good, {**SETTINGS, "log.dirs": f"{good},{bad}"}) as broker:
        scrape = Scrape(broker)
    assert scrape("kafka_log_logmanager_offlinelogdirectorycount") == 1
    offline = "kafka_log_logmanager_logdirectoryoffline"
    assert scrape(offline, logDirectory=str(good)) == 0
    assert scrape(offline, logDirectory=str(bad)) == 1


def test_a_compaction_is_told_of() -> None:
    settings = {
        **SETTINGS,
        "log.cleaner.backoff.ms": "5",
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0.1",
    }
    with Broker(settings=settings) as broker, RawClient(broker.port) as client:
        client.ask(metadata_request("state"), 9, MetadataResponse)

        async def fill() -> None:
            replicas = broker.node.services.replicas
            log = (await replicas.leader(replicas.topic("state", b"", by_id=False), 0)).log
            for _ in range(4):
                await log.append_as_leader(batch(10), 0)
                await log.roll()
                log.advance_high_watermark(log.end_offset)

        broker.run(fill())
        kept = "barnabas_compaction_kept_records_total"
        wait_until(lambda: Scrape(broker)(kept) >= 10, "it is compacted")
        scrape = Scrape(broker)
        assert scrape.families >= LATER
        assert scrape("barnabas_compactions_total") >= 1
        assert scrape("barnabas_compaction_read_records_total") > scrape(kept)
        assert 0 < scrape("kafka_log_logcleaner_cleaner_recopy_percent") < 100
        assert scrape("kafka_log_logcleanermanager_time_since_last_run_ms") >= 0
        assert scrape("barnabas_compactions_failed_total") == 0


def test_everything_told_is_in_the_table(broker: Broker, client: RawClient) -> None:
    client.ask(metadata_request("letters"), 9, MetadataResponse)
    produce(client, "letters", [b"one"])
    assert Scrape(broker).families == set(FAMILIES) - LATER - OF_OTHERS


def test_the_dashboard_asks_for_what_is_told_and_for_all_of_it() -> None:
    text = (ROOT / "deploy" / "grafana" / "barnabas.json").read_text()
    queries = [target["expr"] for panel in json.loads(text)["panels"] for target in panel.get("targets", ())]
    asked = set(re.findall(r"\b(?:kafka|process|python|barnabas)_[a-z0-9_]+", " ".join(queries)))
    told = {re.sub(r"_(bucket|sum|count)$", "", name) if name not in FAMILIES else name for name in asked}
    assert told == set(FAMILIES)


def test_the_dashboard_is_what_its_tool_makes() -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "dashboard.py")], capture_output=True, text=True, check=True
    )
    assert made.stdout == (ROOT / "deploy" / "grafana" / "barnabas.json").read_text()


def test_every_metric_is_in_the_docs_and_no_other() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9_]+)(?:\{([\w,]*)\})?` \| (\w+) \| (.*) \|$", text, re.MULTILINE)
    assert {name: (kind, labels, told) for name, labels, kind, told in rows} == {
        family.name: (family.kind, ",".join(family.labels), family.help) for family in FAMILIES.values()
    }


class TestEndpoint:
    def test_there_is_none_unless_it_is_asked_for(self) -> None:
        with Broker() as broker:
            assert broker.node.metrics is None
            assert broker.node.services.traffic is None

    def test_kinds_and_paths(self, broker: Broker) -> None:
        assert get(broker, "/health")[0] == 200
        assert get(broker, "/ready")[0] == 200
        assert get(broker, "/metrics?a=b")[:2] == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert get(broker, "/")[0] == 404
        wanted = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1"
        _, kind, text = get(broker, Accept=wanted)
        assert kind.startswith("application/openmetrics-text")
        kinds = {"counter", "gauge", "histogram", "summary"}
        assert {each.type for each in parse_openmetrics(text)} == kinds

    @pytest.mark.parametrize(
        ("request_bytes", "status"),
        [
            (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
            (b"GET /metrics\r\n\r\n", 400),
            (b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n", 400),
            (b"PRI * HTTP/2.0\r\n\r\n", 505),
            (b"GET /metrics HTTP/1.1\r\nA: " + b"x" * 100_000, 431),
            (b"HEAD /ready HTTP/1.1\r\n\r\n", 200),
            (b"GET /ready HTTP/1.0\r\n\r\n", 200),
        ],
    )
    def test_wrong_requests_are_answered(self, broker: Broker, request_bytes: bytes, status: int) -> None:
        with socket.create_connection(address_of(broker), timeout=TIMEOUT_S) as connection:
            connection.sendall(request_bytes)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert (body == b"") == request_bytes.startswith(b"HEAD")
        assert get(broker, "/ready")[0] == 200

    def test_who_is_slow_is_let_go(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(endpoint_module, "REQUEST_SECONDS", 0.1)
        monkeypatch.setattr(endpoint_module, "ANSWER_SECONDS", 0.1)
        endpoint = broker.node.metrics
        assert endpoint is not None
        for sent in (b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"):
            with socket.create_connection(address_of(broker), timeout=TIMEOUT_S) as connection:
                connection.sendall(sent)
                with contextlib.suppress(ConnectionResetError):
                    connection.recv(1)  # the first byte of an answer, or the end
                wait_until(lambda: endpoint.connection_count == 0, "it was let go")
        assert get(broker, "/ready")[0] == 200

    def test_who_does_not_read_a_long_page_is_let_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(endpoint_module, "ANSWER_SECONDS", 0.1)

        async def long_page() -> Page:
            page = Page(FAMILIES)
            for number in range(100_000):
                page.add("kafka_log_log_size", number, "x" * 200, str(number))
            return page

        async def scenario() -> None:
            workers = InlineWorkers()
            endpoint = await MetricsEndpoint.open("127.0.0.1:0", OsNetwork(workers), SystemClock())
            endpoint.serve(long_page, what_is_missing=lambda: None, at_end=lambda: None)
            with socket.create_connection(endpoint.address, timeout=TIMEOUT_S) as connection:
                connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                for is_there in (True, False):
                    while bool(endpoint.connection_count) is not is_there:  # noqa: ASYNC110 - a poll
                        await asyncio.sleep(0.005)
            await endpoint.close()

        asyncio.run(asyncio.wait_for(scenario(), 60))

    def test_a_page_that_cannot_be_made_is_an_error_of_the_server(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(broker.node.services, "metadata", None)
        assert get(broker)[0] == 500
        assert "the metrics could not be gathered" in caplog.text
        assert get(broker, "/ready")[0] == 200

    def test_there_are_only_so_many_and_the_silent_make_room(self, broker: Broker) -> None:
        endpoint = broker.node.metrics
        assert endpoint is not None
        with contextlib.ExitStack() as held:
            silent = [
                held.enter_context(socket.create_connection(address_of(broker), timeout=TIMEOUT_S))
                for _ in range(3 * endpoint_module.MAX_CONNECTIONS)
            ]
            assert get(broker, "/ready")[0] == 200
            assert endpoint.connection_count <= endpoint_module.MAX_CONNECTIONS
            with contextlib.suppress(ConnectionResetError):
                assert silent[0].recv(1) == b""

    def test_who_is_being_answered_is_not_driven_out(self, broker: Broker) -> None:
        with contextlib.ExitStack() as held:
            for _ in range(endpoint_module.MAX_CONNECTIONS):
                one = held.enter_context(socket.create_connection(address_of(broker), timeout=TIMEOUT_S))
                one.sendall(b"GET /health HTTP/1.1\r\n\r\n")
                assert one.recv(1) == b"H"  # and it does not hang up
            with contextlib.suppress(ConnectionResetError):  # which connect itself may be told
                one_more = held.enter_context(socket.create_connection(address_of(broker), timeout=TIMEOUT_S))
                assert one_more.recv(1) == b""
        wait_until(lambda: is_answered(broker), "there is room again")

    def test_a_burst_that_is_cut_off_at_once_leaves_nothing_open(self) -> None:
        async def scenario() -> None:
            endpoint = await MetricsEndpoint.open("127.0.0.1:0", OsNetwork(InlineWorkers()), SystemClock())
            with contextlib.ExitStack() as held:
                crowd = [
                    held.enter_context(socket.create_connection(endpoint.address, timeout=TIMEOUT_S))
                    for _ in range(2 * endpoint_module.MAX_CONNECTIONS)
                ]
                while endpoint.connection_count < endpoint_module.MAX_CONNECTIONS:  # noqa: ASYNC110 - a poll
                    await asyncio.sleep(0)
                await endpoint.close()
                assert endpoint.connection_count == 0
                for one in crowd:
                    with contextlib.suppress(ConnectionResetError):
                        assert one.recv(1) == b""

        asyncio.run(asyncio.wait_for(scenario(), 60))

    def test_clients_are_served_whatever_happens_there(self, broker: Broker, client: RawClient) -> None:
        with socket.create_connection(address_of(broker), timeout=TIMEOUT_S) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
            client.ask(metadata_request("letters"), 9, MetadataResponse)
            assert produce(client, "letters", [b"one"]) == 0

    @pytest.mark.parametrize(("host", "is_warned"), [("127.0.0.1", False), ("", True), ("0.0.0.0", True)])
    def test_a_start_warns_where_others_can_ask(
        self, host: str, is_warned: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Broker(settings={"barnabas.metrics.listen": f"{host}:0"}) as broker:
            assert get(broker, "/ready")[0] == 200
        assert ("to whoever can reach it" in caplog.text) is is_warned

    @pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999"])
    def test_a_wrong_address_ends_the_start(self, address: str) -> None:
        with pytest.raises(InvalidSetting, match=r"barnabas\.metrics\.listen"):
            Broker(settings={"barnabas.metrics.listen": address}).start()


def is_answered(broker: Broker) -> bool:
    try:
        return get(broker, "/ready")[0] == 200
    except OSError:
        return False
