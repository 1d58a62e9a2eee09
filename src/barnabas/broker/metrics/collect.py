"""Fills a page of metrics from the parts of a running node: each function knows one part.

Nothing here changes anything, and nothing is opened to be measured: a partition that nobody has used yet has
no size to tell. What grows with the number of partitions lets others have their turn in between; meanwhile
topics may come and go, so what is walked through is a copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas import __version__
from barnabas.broker.connections.connections import Connections
from barnabas.broker.life import NodeLife, NodeState
from barnabas.broker.metrics.coordinators import add_groups, add_transactions
from barnabas.broker.metrics.loop_watch import LoopWatch
from barnabas.broker.metrics.requests import ApiTraffic, RequestTraffic
from barnabas.broker.metrics.table import FAMILIES
from barnabas.broker.services import Services
from barnabas.broker.settings.current_settings import TopicSettings
from barnabas.broker.traffic import TopicTraffic
from barnabas.core.errors import WIRE_ERRORS, BarnabasError
from barnabas.core.metrics import Page
from barnabas.core.process import (
    collections_by_generation,
    process_numbers,
    python_implementation,
    python_version,
)
from barnabas.log.directory import LogDirectory
from barnabas.metadata.directories import is_online
from barnabas.metadata.parts import PartitionImage, TopicImage
from barnabas.records import kernel

PARTITIONS_A_TURN = 100
# buckets of the histograms, as powers of two of a microsecond: half a millisecond to half a minute
STALL_OCTAVES = range(9, 26)
REQUEST_OCTAVES = range(6, 26, 2)

_TOPIC_COUNTERS = {
    "kafka_server_brokertopicmetrics_messagesin_total": "messages_in",
    "kafka_server_brokertopicmetrics_bytesin_total": "bytes_in",
    "kafka_server_brokertopicmetrics_bytesout_total": "bytes_out",
    "kafka_server_brokertopicmetrics_bytesrejected_total": "bytes_rejected",
    "kafka_server_brokertopicmetrics_totalproducerequests_total": "produces",
    "kafka_server_brokertopicmetrics_failedproducerequests_total": "failed_produces",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": "fetches",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": "failed_fetches",
}
# Kafka's numbers of a broker's states
_BROKER_STATES = {
    NodeState.STARTING: 1,
    NodeState.CONTROLLER_UP: 1,
    NodeState.FENCED: 2,
    NodeState.SERVING: 3,
    NodeState.CONTROLLED_SHUTDOWN: 6,
    NodeState.STOPPED: 7,
    NodeState.FAILED: 7,
}


class Parts(NamedTuple):
    """The parts of a node that are measured."""

    services: Services
    connections: Sequence[Connections]  # of the broker and of the controller
    life: NodeLife
    directories: Callable[[], Sequence[LogDirectory]]
    offline: Callable[[], Sequence[str]]  # log directories that cannot be used
    settings_of: Callable[[str], TopicSettings]
    traffic: RequestTraffic
    watch: LoopWatch
    start_seconds: float


async def collect(parts: Parts) -> Page:
    """All metrics as they are now."""
    page = Page(FAMILIES)
    _requests(page, parts.traffic, parts.services.clock.monotonic())
    for each in parts.connections:
        _connections(page, each)
    page.add("barnabas_queued_request_bytes", sum(each.queued_bytes for each in parts.connections))
    page.add("kafka_server_kafkaserver_brokerstate", _BROKER_STATES[parts.life.state])
    _loop(page, parts)
    _controller(page, parts.services)
    _process(page)
    _directories(page, parts)
    _compaction(page, parts)
    add_groups(page, parts.services.groups_in_use)
    add_transactions(page, parts.services.transactions_in_use)
    await _topics(page, parts.services)
    await _waits(page, parts.services)
    await _partitions(page, parts)
    await _logs(page, parts)
    return page


def _requests(page: Page, traffic: RequestTraffic, now: float) -> None:
    errors: dict[str, dict[str, int]] = {}
    for (name, version), api in traffic.apis.items():
        for shown in _names(name):
            page.add("kafka_network_requestmetrics_requests_total", api.count, shown, str(version))
        _add_errors(errors.setdefault(name, {}), api)
    for name, by_error in errors.items():
        for error, count in by_error.items():
            page.add("kafka_network_requestmetrics_errors_total", count, name, error)
    for name, histogram in traffic.times.items():
        page.add_histogram("barnabas_request_seconds", histogram, REQUEST_OCTAVES, name)
        for shown in _names(name):
            page.add_summary("kafka_network_requestmetrics_totaltimems", histogram, now, shown, scale=1000.0)


def _names(name: str) -> tuple[str, ...]:
    """Under which names Kafka counts a request: a fetch counts also as that of a consumer."""
    return (name, "FetchConsumer") if name == "Fetch" else (name,)


def _add_errors(counts: dict[str, int], api: ApiTraffic) -> None:
    counts["NONE"] = counts.get("NONE", 0) + api.count - api.with_errors
    for code, count in api.errors.items():
        error = WIRE_ERRORS[code].name
        counts[error] = counts.get(error, 0) + count


def _connections(page: Page, connections: Connections) -> None:
    for listener, traffic in connections.traffic.items():
        prefix = "kafka_server_socket_server_metrics"
        page.add(f"{prefix}_connection_count", traffic.created - traffic.closed, listener)
        page.add(f"{prefix}_connection_creation_total", traffic.created, listener)
        page.add(f"{prefix}_connection_close_total", traffic.closed, listener)
        page.add(f"{prefix}_expired_connections_killed_count", traffic.expired, listener)
        page.add("barnabas_connections_turned_away_total", traffic.turned_away, listener)


def _loop(page: Page, parts: Parts) -> None:
    idle = parts.watch.idle_ratio
    page.add("kafka_network_socketserver_networkprocessoravgidle_percent", idle)
    page.add("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle)
    page.add_histogram("barnabas_loop_stall_seconds", parts.watch.stalls, STALL_OCTAVES)
    page.add("barnabas_loop_busy_seconds_total", parts.watch.busy_seconds)
    page.add("barnabas_start_seconds", parts.start_seconds)
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    page.add("barnabas_build_info", 1, __version__, kernel.NAME, loop)


def _controller(page: Page, services: Services) -> None:
    quorum, brokers = services.quorum, services.image.brokers.values()
    is_active = quorum.leader_id == services.node_id
    fenced = sum(broker.fenced for broker in brokers)
    prefix = "kafka_controller_kafkacontroller"
    page.add(f"{prefix}_activecontrollercount", int(is_active))
    page.add(f"{prefix}_fencedbrokercount", fenced)
    page.add(f"{prefix}_activebrokercount", len(brokers) - fenced)
    page.add(f"{prefix}_lastappliedrecordoffset", quorum.high_watermark - 1)
    page.add(f"{prefix}_lastcommittedrecordoffset", quorum.high_watermark - 1)
    page.add("kafka_server_broker_metadata_metrics_last_applied_record_offset", quorum.high_watermark - 1)
    page.add("kafka_server_raft_metrics_current_leader", quorum.leader_id)
    page.add("kafka_server_raft_metrics_current_epoch", quorum.epoch)
    page.add("kafka_server_raft_metrics_high_watermark", quorum.high_watermark)
    page.add("kafka_server_raft_metrics_log_end_offset", quorum.end_offset)


def _process(page: Page) -> None:
    for name, number in process_numbers().items():
        page.add(name, number)
    page.add("python_info", 1, python_implementation(), python_version())
    for generation, stats in enumerate(collections_by_generation()):
        page.add("python_gc_collections_total", stats["collections"], str(generation))
        page.add("python_gc_objects_collected_total", stats["collected"], str(generation))
        page.add("python_gc_objects_uncollectable_total", stats["uncollectable"], str(generation))


def _directories(page: Page, parts: Parts) -> None:
    offline = parts.offline()
    page.add("kafka_log_logmanager_offlinelogdirectorycount", len(offline))
    for where in offline:
        page.add("kafka_log_logmanager_logdirectoryoffline", 1, where)
    directories, now = parts.directories(), parts.services.clock.monotonic()
    for directory in directories:
        page.add("kafka_log_logmanager_logdirectoryoffline", 0, directory.where)
        flushes = "kafka_log_logflushstats_logflushrateandtimems"
        page.add_summary(flushes, directory.totals.flushes, now, directory.where, scale=1000.0)
        page.add(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            directory.totals.uncleanable,
            directory.where,
        )
    totals = [directory.totals for directory in directories]
    page.add("barnabas_log_openings_total", sum(one.opened for one in totals))
    page.add("barnabas_log_opening_seconds_total", sum(one.opening_seconds for one in totals))
    page.add("barnabas_log_recoveries_total", sum(one.recovered for one in totals))
    page.add("barnabas_log_recovery_seconds_total", sum(one.recovery_seconds for one in totals))
    # only a disk of the operating system has descriptors
    page.add("barnabas_open_files", sum(getattr(one.disk, "descriptors", 0) for one in directories))


def _compaction(page: Page, parts: Parts) -> None:
    totals = [directory.totals for directory in parts.directories()]
    read_bytes = sum(one.compaction_bytes_read for one in totals)
    written_bytes = sum(one.compaction_bytes_written for one in totals)
    page.add("barnabas_compaction_rounds_total", sum(one.compaction_rounds for one in totals))
    page.add("barnabas_compactions_total", sum(one.compactions for one in totals))
    page.add("barnabas_compactions_failed_total", sum(one.compactions_failed for one in totals))
    page.add("barnabas_compaction_seconds_total", sum(one.compaction_seconds for one in totals))
    page.add("barnabas_compaction_read_bytes_total", read_bytes)
    page.add("barnabas_compaction_written_bytes_total", written_bytes)
    page.add("barnabas_compaction_read_records_total", sum(one.compaction_records_read for one in totals))
    page.add("barnabas_compaction_kept_records_total", sum(one.compaction_records_kept for one in totals))
    recopied = 100 * written_bytes / read_bytes if read_bytes else 0
    page.add("kafka_log_logcleaner_cleaner_recopy_percent", recopied)
    longest = max(one.last_compaction_seconds for one in totals)
    page.add("kafka_log_logcleaner_max_clean_time_secs", longest)
    dirtiest = max(one.dirtiest_ratio for one in totals)
    page.add("kafka_log_logcleanermanager_max_dirty_percent", 100 * dirtiest)
    looked_at = [one.last_round_at for one in totals if one.last_round_at is not None]
    if looked_at:  # there is nothing to tell before the first compacted topic
        since = parts.services.clock.monotonic() - min(looked_at)
        page.add("kafka_log_logcleanermanager_time_since_last_run_ms", 1000 * since)


async def _topics(page: Page, services: Services) -> None:
    replicas, image = services.replicas, services.image
    together = TopicTraffic()
    together.take(replicas.past_traffic)
    for number, (topic_id, traffic) in enumerate(list(replicas.traffic.items())):
        together.take(traffic)
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            for name, attribute in _TOPIC_COUNTERS.items():
                page.add(name, getattr(traffic, attribute), topic.name)
        await _breathe(number)
    for name, attribute in _TOPIC_COUNTERS.items():
        page.add(name, getattr(together, attribute))


async def _waits(page: Page, services: Services) -> None:
    producers, places = 0, 0
    polls: dict[object, None] = {}
    for number, replica in enumerate(services.replicas.open):
        producers += replica.marks.commit_count
        marks = replica.marks
        waiting = [*marks.polls, *marks.end_polls, *marks.stable_polls]
        places += len(waiting)
        polls.update(dict.fromkeys(waiting))
        await _breathe(number)
    prefix = "kafka_server_delayedoperationpurgatory"
    page.add(f"{prefix}_purgatorysize", producers, "Produce")
    page.add(f"{prefix}_purgatorysize", places, "Fetch")
    page.add(f"{prefix}_numdelayedoperations", producers, "Produce")
    page.add(f"{prefix}_numdelayedoperations", len(polls), "Fetch")
    prefix = "kafka_server_fetchsessioncache"
    page.add(f"{prefix}_numincrementalfetchsessions", len(services.sessions))
    page.add(f"{prefix}_numincrementalfetchpartitionscached", services.sessions.partition_count)


class _Counts:
    """Partitions, as the metadata has them."""

    def __init__(self) -> None:
        self.all = self.here = self.led = self.offline_here = 0
        self.nobody_leads = self.not_preferred = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = 0


async def _partitions(page: Page, parts: Parts) -> None:
    services, counts, number = parts.services, _Counts(), 0
    image, me = services.image, services.node_id
    topics = list(image.topics_by_name.values())
    for topic in topics:
        min_in_sync = _min_in_sync(parts, topic.name)
        for index, partition in enumerate(topic.partitions):
            counts.all += 1
            counts.nobody_leads += partition.leader < 0
            counts.not_preferred += partition.leader != partition.replicas[0]
            if me in partition.replicas:
                counts.here += 1
                broker = image.brokers.get(me)  # none, if it was unregistered
                counts.offline_here += broker is not None and not is_online(partition, broker)
            if partition.leader == me:
                _led(page, counts, topic, index, partition, min_in_sync)
            await _breathe(number := number + 1)
    _add_counts(page, counts, len(topics))
    for number, replica in enumerate(services.replicas.open):
        lag = replica.log.high_watermark - replica.log.last_stable_offset
        name, index_text = replica.name, str(replica.partition)
        page.add("kafka_cluster_partition_laststableoffsetlag", lag, name, index_text)
        await _breathe(number)


def _min_in_sync(parts: Parts, topic: str) -> int:
    try:
        return parts.settings_of(topic).min_in_sync
    except BarnabasError:  # settings that a log cannot have: whoever opens it will say so
        return 1


def _led(
    page: Page, counts: _Counts, topic: TopicImage, index: int, partition: PartitionImage, min_in_sync: int
) -> None:
    replica_count, in_sync_count = len(partition.replicas), len(partition.isr)
    needed = min(min_in_sync, replica_count)
    is_under_replicated, is_under_min = in_sync_count < replica_count, in_sync_count < needed
    counts.led += 1
    counts.under_replicated += is_under_replicated
    counts.under_min_isr += is_under_min
    counts.at_min_isr += in_sync_count == needed
    where = (topic.name, str(index))
    page.add("kafka_cluster_partition_replicascount", replica_count, *where)
    page.add("kafka_cluster_partition_insyncreplicascount", in_sync_count, *where)
    page.add("kafka_cluster_partition_underreplicated", int(is_under_replicated), *where)
    page.add("kafka_cluster_partition_underminisr", int(is_under_min), *where)


def _add_counts(page: Page, counts: _Counts, topic_count: int) -> None:
    prefix = "kafka_server_replicamanager"
    page.add(f"{prefix}_partitioncount", counts.here)
    page.add(f"{prefix}_leadercount", counts.led)
    page.add(f"{prefix}_offlinereplicacount", counts.offline_here)
    page.add(f"{prefix}_underreplicatedpartitions", counts.under_replicated)
    page.add(f"{prefix}_underminisrpartitioncount", counts.under_min_isr)
    page.add(f"{prefix}_atminisrpartitioncount", counts.at_min_isr)
    prefix = "kafka_controller_kafkacontroller"
    page.add(f"{prefix}_globaltopiccount", topic_count)
    page.add(f"{prefix}_globalpartitioncount", counts.all)
    page.add(f"{prefix}_offlinepartitionscount", counts.nobody_leads)
    page.add(f"{prefix}_preferredreplicaimbalancecount", counts.not_preferred)


async def _logs(page: Page, parts: Parts) -> None:
    open_count = 0
    for directory in parts.directories():
        for number, (topic, index) in enumerate(directory.partitions):
            log = directory.opened(topic, index)
            if log is not None and log.segments:
                open_count += 1
                where = (topic, str(index))
                page.add("kafka_log_log_size", log.size_bytes, *where)
                page.add("kafka_log_log_logstartoffset", log.start_offset, *where)
                page.add("kafka_log_log_logendoffset", log.end_offset, *where)
                page.add("kafka_log_log_numlogsegments", len(log.segments), *where)
            await _breathe(number)
    page.add("barnabas_partitions_open", open_count)


async def _breathe(number: int) -> None:
    """Let others have their turn now and then."""
    if number % PARTITIONS_A_TURN == PARTITIONS_A_TURN - 1:
        await asyncio.sleep(0)
