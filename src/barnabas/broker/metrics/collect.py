"""Fills a page of metrics from the parts of a running node: each function reads one part.

Collecting changes nothing, and opens nothing. Every node has metrics of requests, the process, log
directories and its part in the quorum; controllers and brokers have further ones, as in Kafka. A broker that
waits for the quorum has metrics of the metadata before it has any of its clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas import __version__
from barnabas.broker.connections.connections import Connections
from barnabas.broker.life import NodeLife, NodeState
from barnabas.broker.metrics.coordinators import add_groups, add_transactions
from barnabas.broker.metrics.elections import ElectionCounts
from barnabas.broker.metrics.loop_watch import LoopWatch
from barnabas.broker.metrics.partitions import (
    add_logs,
    add_partitions,
    add_stable_offsets,
    add_topics,
    add_waits,
)
from barnabas.broker.metrics.quorum import add_broker, add_controller, add_quorum
from barnabas.broker.metrics.replication import add_elections, add_fetchers, add_followers, add_traffic
from barnabas.broker.metrics.requests import ApiTraffic, RequestTraffic
from barnabas.broker.metrics.table import FAMILIES
from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.services import ControllerServices, Services
from barnabas.broker.settings.current_settings import TopicSettings
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.metrics import Page
from barnabas.core.process import (
    collections_by_generation,
    process_numbers,
    python_implementation,
    python_version,
)
from barnabas.log.directory import LogDirectory
from barnabas.records import kernel

if TYPE_CHECKING:
    from barnabas.broker.cluster.broker_watch import BrokerWatch
    from barnabas.broker.replicas.fetcher import Fetcher

# bounds of histogram buckets, as powers of two of a microsecond: half a millisecond to half a minute
STALL_OCTAVES = range(9, 26)
REQUEST_OCTAVES = range(6, 26, 2)

# broker states in Kafka's numbers
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
    """The parts of a node that are measured; `broker` is None until it serves clients."""

    services: ControllerServices
    quorum: MetadataQuorum
    watch: Callable[[], BrokerWatch | None]  # over brokers, on the active controller
    connections: Sequence[Connections]
    life: NodeLife
    directories: Callable[[], Sequence[LogDirectory]]
    offline: Callable[[], Sequence[str]]  # log directories that cannot be used
    settings_of: Callable[[str], TopicSettings]
    traffic: RequestTraffic
    loop: LoopWatch
    elections: ElectionCounts
    fetchers: Callable[[], Sequence[Fetcher]]
    is_controller: bool
    is_broker: bool
    broker: Services | None = None
    start_seconds: float | None = None


async def collect(parts: Parts) -> Page:
    """All metrics with their current values."""
    page = Page(FAMILIES)
    _requests(page, parts.traffic, parts.services.clock.monotonic())
    for each in parts.connections:
        _connections(page, each)
    page.add("barnabas_queued_request_bytes", sum(each.queued_bytes for each in parts.connections))
    _loop(page, parts)
    _process(page)
    _directories(page, parts)
    _compaction(page, parts)
    add_quorum(page, parts.services, parts.quorum)
    if parts.is_controller:
        add_controller(page, parts.services, parts.quorum)
        _fenced(page, parts.watch())
        add_elections(page, parts.elections)
    if parts.is_broker:
        page.add("kafka_server_kafkaserver_brokerstate", _BROKER_STATES[parts.life.state])
        add_broker(page, parts.services, parts.quorum)
    if parts.broker is not None:
        add_groups(page, parts.broker.groups_in_use)
        add_transactions(page, parts.broker.transactions_in_use)
        await add_topics(page, parts.broker)
        add_traffic(page, parts.broker)
        await add_followers(page, parts.broker)
        await add_fetchers(page, parts.fetchers(), parts.services.clock.monotonic())
        await add_waits(page, parts.broker)
        await add_stable_offsets(page, parts.broker)
    await add_partitions(
        page,
        parts.services,
        parts.settings_of,
        is_controller=parts.is_controller,
        is_broker=parts.broker is not None,
    )
    await add_logs(page, parts.directories())
    return page


def _requests(page: Page, traffic: RequestTraffic, now: float) -> None:
    errors: dict[str, dict[str, int]] = {}
    counts = {each: api.count for each, api in traffic.apis.items()} | traffic.fetches
    for (name, version), count in counts.items():
        page.add("kafka_network_requestmetrics_requests_total", count, name, str(version))
    for (name, _), api in traffic.apis.items():
        _add_errors(errors.setdefault(name, {}), api)
    for name, by_error in errors.items():
        for error, count in by_error.items():
            page.add("kafka_network_requestmetrics_errors_total", count, name, error)
    for name, histogram in traffic.times.items():
        page.add_histogram("barnabas_request_seconds", histogram, REQUEST_OCTAVES, name)
        page.add_summary("kafka_network_requestmetrics_totaltimems", histogram, now, name, scale=1000.0)


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
    idle = parts.loop.idle_ratio
    page.add("kafka_network_socketserver_networkprocessoravgidle_percent", idle)
    page.add("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle)
    page.add_histogram("barnabas_loop_stall_seconds", parts.loop.stalls, STALL_OCTAVES)
    page.add("barnabas_loop_busy_seconds_total", parts.loop.busy_seconds)
    if parts.start_seconds is not None:
        page.add("barnabas_start_seconds", parts.start_seconds)
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    page.add("barnabas_build_info", 1, __version__, kernel.NAME, loop)


def _fenced(page: Page, watch: BrokerWatch | None) -> None:
    by_session, by_socket = (0, 0) if watch is None else (watch.fenced_by_session, watch.fenced_by_socket)
    page.add("barnabas_brokers_fenced_total", by_session, "session")
    page.add("barnabas_brokers_fenced_total", by_socket, "socket")


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
    page.add("barnabas_log_truncations_total", sum(one.truncations for one in totals))
    page.add("barnabas_log_truncated_records_total", sum(one.truncated_records for one in totals))
    page.add("barnabas_log_restarts_total", sum(one.restarts for one in totals))
    # only the operating system's disk has descriptors
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
    if looked_at:  # no value before the first compacted topic
        since = parts.services.clock.monotonic() - min(looked_at)
        page.add("kafka_log_logcleanermanager_time_since_last_run_ms", 1000 * since)
