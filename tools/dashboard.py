"""Makes deploy/grafana/barnabas.json: `python tools/dashboard.py > deploy/grafana/barnabas.json`.

Rows of panels, each with its queries; positions, numbers and the rest of Grafana's form come from here, so
that a panel is one line to add. A test holds the file to this, and every query to what a broker exports.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

SELECTED = '{job=~"$job",instance=~"$instance"}'
OF_TOPIC = '{job=~"$job",instance=~"$instance",topic=~"$topic"}'
ALL_TOPICS = '{job=~"$job",instance=~"$instance",topic=""}'
OF_DATA = '{job=~"$job",instance=~"$instance",request=~"Produce|Fetch"}'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """A title, a unit of Grafana's, and queries with what their lines are called."""

    title: str
    unit: str
    queries: dict[str, str]
    width: int = 8
    kind: str = "timeseries"
    told: str = ""


def rate(metric: str, selector: str = SELECTED, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}{selector}[$__rate_interval]))"


def now(metric: str, selector: str = SELECTED, by: str = "instance") -> str:
    return f"sum by ({by}) ({metric}{selector})"


def most(metric: str, by: str) -> str:
    return f"max by ({by}) ({metric}{SELECTED})"


def age(metric: str) -> str:
    return f"time() * 1000 - {metric}{SELECTED}"


def quantile(q: str, metric: str, by: str) -> str:
    inner = f"sum by (le, {by}) (rate({metric}_bucket{SELECTED}[$__rate_interval]))"
    return f"histogram_quantile({q}, {inner})"


def number(title: str, expression: str, unit: str = "short", told: str = "") -> Panel:
    return Panel(title, unit, {"{{instance}}": expression}, 3, "stat", told)


BTM = "kafka_server_brokertopicmetrics"
NET = "kafka_network_requestmetrics"
SOCKETS = "kafka_server_socket_server_metrics"
REPLICAS = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
GROUPS = "kafka_coordinator_group_groupmetadatamanager"
PURGATORY = "kafka_server_delayedoperationpurgatory"
SESSIONS = "kafka_server_fetchsessioncache"
RAFT = "kafka_server_raft_metrics"
LOADER = "kafka_server_metadataloader"
APPLIED = "kafka_server_broker_metadata_metrics"
PARTITION = "kafka_cluster_partition"
CLEANER = "kafka_log_logcleaner"
MANAGER = "kafka_log_logcleanermanager"
FETCHERS = "kafka_server_replicafetchermanager"
ELECTIONS = "kafka_controller_controllerstats"
IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
IDLE_TOO = "kafka_network_socketserver_networkprocessoravgidle_percent"

ROWS: dict[str, list[Panel]] = {
    "Overview": [
        number("Brokers that serve", f"sum(kafka_server_kafkaserver_brokerstate{SELECTED} == bool 3)"),
        number(
            "Active controllers", f"sum({CONTROLLER}_activecontrollercount{SELECTED})", told="One, always."
        ),
        number(
            "Offline partitions", f"max({CONTROLLER}_offlinepartitionscount{SELECTED})", told="None, always."
        ),
        number("Under min ISR", f"sum({REPLICAS}_underminisrpartitioncount{SELECTED})", told="None, always."),
        number("Offline directories", f"sum(kafka_log_logmanager_offlinelogdirectorycount{SELECTED})"),
        number("Topics", f"max({CONTROLLER}_globaltopiccount{SELECTED})"),
        number("Partitions", f"max({CONTROLLER}_globalpartitioncount{SELECTED})"),
        number("Up since", f"process_start_time_seconds{SELECTED} * 1000", "dateTimeFromNow"),
    ],
    "Traffic": [
        Panel("Records in", "cps", {"{{instance}}": rate(f"{BTM}_messagesin_total", ALL_TOPICS)}),
        Panel("Bytes in", "Bps", {"{{instance}}": rate(f"{BTM}_bytesin_total", ALL_TOPICS)}),
        Panel("Bytes out", "Bps", {"{{instance}}": rate(f"{BTM}_bytesout_total", ALL_TOPICS)}),
        Panel(
            "Records in, by topic", "cps", {"{{topic}}": rate(f"{BTM}_messagesin_total", OF_TOPIC, "topic")}
        ),
        Panel("Bytes in, by topic", "Bps", {"{{topic}}": rate(f"{BTM}_bytesin_total", OF_TOPIC, "topic")}),
        Panel("Bytes out, by topic", "Bps", {"{{topic}}": rate(f"{BTM}_bytesout_total", OF_TOPIC, "topic")}),
        Panel(
            "Partitions asked to append, or for records",
            "ops",
            {
                "append {{topic}}": rate(f"{BTM}_totalproducerequests_total", OF_TOPIC, "topic"),
                "read {{topic}}": rate(f"{BTM}_totalfetchrequests_total", OF_TOPIC, "topic"),
            },
            12,
        ),
        Panel(
            "Unusual failures, and batches too large",
            "ops",
            {
                "append {{topic}}": rate(f"{BTM}_failedproducerequests_total", OF_TOPIC, "topic"),
                "read {{topic}}": rate(f"{BTM}_failedfetchrequests_total", OF_TOPIC, "topic"),
                "too large, B/s {{topic}}": rate(f"{BTM}_bytesrejected_total", OF_TOPIC, "topic"),
            },
            12,
        ),
    ],
    "Requests": [
        Panel("Requests", "reqps", {"{{request}}": rate(f"{NET}_requests_total", by="request")}),
        Panel(
            "Requests, by version",
            "reqps",
            {"{{request}} v{{version}}": rate(f"{NET}_requests_total", by="request, version")},
        ),
        Panel(
            "Errors told",
            "ops",
            {
                "{{request}} {{error}}": rate(
                    f"{NET}_errors_total", SELECTED.replace("}", ',error!="NONE"}'), "request, error"
                )
            },
        ),
        Panel(
            "Time to answer, p99",
            "s",
            {"{{request}}": quantile("0.99", "barnabas_request_seconds", "request")},
            told="A fetch that waits for data takes as long as it was told to wait.",
        ),
        Panel(
            "Produce and Fetch, quantiles by broker",
            "ms",
            {
                "{{request}} p{{quantile}} {{instance}}": f"{NET}_totaltimems"
                + OF_DATA.replace("}", ',quantile=~"0.50|0.99"}')
            },
        ),
        Panel(
            "Waiting: acks=all, and for data",
            "short",
            {
                "{{delayedOperation}} requests": now(
                    f"{PURGATORY}_numdelayedoperations", by="delayedOperation"
                ),
                "{{delayedOperation}} places": now(f"{PURGATORY}_purgatorysize", by="delayedOperation"),
            },
        ),
    ],
    "Connections": [
        Panel(
            "Connections",
            "short",
            {"{{listener}} {{instance}}": now(f"{SOCKETS}_connection_count", by="listener, instance")},
        ),
        Panel(
            "Coming and going",
            "cps",
            {
                "accepted {{instance}}": rate(f"{SOCKETS}_connection_creation_total"),
                "ended {{instance}}": rate(f"{SOCKETS}_connection_close_total"),
                "turned away {{instance}}": rate("barnabas_connections_turned_away_total"),
                "idle for too long {{instance}}": "sum by (instance) (delta("
                f"{SOCKETS}_expired_connections_killed_count{SELECTED}[$__rate_interval]))",
            },
        ),
        Panel(
            "Fetch sessions, and memory of requests",
            "short",
            {
                "sessions {{instance}}": now(f"{SESSIONS}_numincrementalfetchsessions"),
                "partitions in sessions {{instance}}": now(f"{SESSIONS}_numincrementalfetchpartitionscached"),
                "bytes of requests {{instance}}": now("barnabas_queued_request_bytes"),
            },
        ),
    ],
    "Event loop and process": [
        Panel(
            "Stalls of the loop",
            "s",
            {
                "p99 {{instance}}": quantile("0.99", "barnabas_loop_stall_seconds", "instance"),
                "max {{instance}}": quantile("1", "barnabas_loop_stall_seconds", "instance"),
            },
            told="How late a timer was, ten times a second: everybody waited for so long.",
        ),
        Panel(
            "How busy the loop is",
            "percentunit",
            {
                "{{instance}}": rate("barnabas_loop_busy_seconds_total"),
                "not idle, last minute {{instance}}": f"1 - {IDLE}{SELECTED}",
                "the same, as of the network {{instance}}": f"1 - {IDLE_TOO}{SELECTED}",
            },
            told="One broker has one core: near 100 % it is time for another broker.",
        ),
        Panel("Processor", "percentunit", {"{{instance}}": rate("process_cpu_seconds_total")}),
        Panel(
            "Memory",
            "bytes",
            {
                "resident {{instance}}": now("process_resident_memory_bytes"),
                "mapped {{instance}}": now("process_virtual_memory_bytes"),
            },
        ),
        Panel(
            "File descriptors",
            "short",
            {
                "in use {{instance}}": now("process_open_fds"),
                "of logs {{instance}}": now("barnabas_open_files"),
                "limit {{instance}}": now("process_max_fds"),
            },
        ),
        Panel(
            "Garbage",
            "ops",
            {
                "collections {{generation}}": rate("python_gc_collections_total", by="generation"),
                "objects {{generation}}": rate("python_gc_objects_collected_total", by="generation"),
                "lost {{generation}}": rate("python_gc_objects_uncollectable_total", by="generation"),
            },
        ),
    ],
    "Partitions and replication": [
        Panel(
            "Partitions here",
            "short",
            {
                "with a replica {{instance}}": now(f"{REPLICAS}_partitioncount"),
                "led {{instance}}": now(f"{REPLICAS}_leadercount"),
                "open {{instance}}": now("barnabas_partitions_open"),
            },
        ),
        Panel(
            "Not as they should be",
            "short",
            {
                "under-replicated {{instance}}": now(f"{REPLICAS}_underreplicatedpartitions"),
                "at min ISR {{instance}}": now(f"{REPLICAS}_atminisrpartitioncount"),
                "offline replicas {{instance}}": now(f"{REPLICAS}_offlinereplicacount"),
                "moving {{instance}}": now(f"{REPLICAS}_reassigningpartitions"),
                "not led by the preferred one": f"max({CONTROLLER}_preferredreplicaimbalancecount{SELECTED})",
            },
        ),
        Panel(
            "Which they are",
            "short",
            {
                "under-replicated {{topic}}-{{partition}}": f"{PARTITION}_underreplicated{OF_TOPIC} > 0",
                "under min ISR {{topic}}-{{partition}}": f"{PARTITION}_underminisr{OF_TOPIC} > 0",
                "at min ISR {{topic}}-{{partition}}": f"{PARTITION}_atminisr{OF_TOPIC}"
                f" == 1 and {PARTITION}_underreplicated{OF_TOPIC} == 1",
            },
        ),
        Panel(
            "Replicas, by topic",
            "short",
            {
                "all {{topic}}": now(f"{PARTITION}_replicascount", OF_TOPIC, "topic"),
                "in sync {{topic}}": now(f"{PARTITION}_insyncreplicascount", OF_TOPIC, "topic"),
            },
        ),
        Panel(
            "Held back by open transactions",
            "short",
            {"{{topic}}": f"max by (topic) ({PARTITION}_laststableoffsetlag{OF_TOPIC})"},
        ),
        Panel(
            "Brokers",
            "short",
            {
                "active": f"max({CONTROLLER}_activebrokercount{SELECTED})",
                "fenced": f"max({CONTROLLER}_fencedbrokercount{SELECTED})",
            },
        ),
    ],
    "Replication": [
        Panel(
            "Bytes between replicas",
            "Bps",
            {
                "fetched by {{instance}}": rate(f"{BTM}_replicationbytesin_total"),
                "sent by {{instance}}": rate(f"{BTM}_replicationbytesout_total"),
            },
        ),
        Panel(
            "Changes of ISRs",
            "ops",
            {
                "shrinks {{instance}}": rate(f"{REPLICAS}_isrshrinks_total"),
                "expands {{instance}}": rate(f"{REPLICAS}_isrexpands_total"),
                "not taken {{instance}}": rate(f"{REPLICAS}_failedisrupdates_total"),
            },
            told="A follower that leaves and joins again and again is too slow.",
        ),
        Panel(
            "Elections, by kind",
            "short",
            {
                "{{kind}}": "max by (kind) ("
                f"increase(barnabas_leader_elections_total{SELECTED}[$__rate_interval]))",
                "from the ELR": f"max(increase({ELECTIONS}_electionfromeligibleleaderreplicas_total{SELECTED}"
                "[$__rate_interval]))",
                "unclean, the last known leader's among them": "max(increase("
                f"{ELECTIONS}_uncleanleaderelections_total{SELECTED}[$__rate_interval]))",
            },
            told="Unclean ones may have lost records.",
        ),
        Panel(
            "Records that followers are behind, by leaders",
            "short",
            {"broker {{follower}}": now("barnabas_follower_lag_records", by="follower")},
        ),
        Panel(
            "Time that followers are behind, by leaders",
            "s",
            {
                "broker {{follower}}": most("barnabas_follower_lag_seconds", by="follower"),
            },
            told="One that is not caught up for replica.lag.time.max.ms leaves the ISR.",
        ),
        Panel(
            "Partitions in which followers are not in sync",
            "short",
            {"broker {{follower}}": now("barnabas_follower_out_of_sync_partitions", by="follower")},
        ),
        Panel(
            "Lag of fetchers, in records",
            "short",
            {
                "{{instance}} of broker {{leader}}": now(
                    "barnabas_fetcher_lag_records", by="instance, leader"
                ),
                "one partition, at most {{instance}}": now(f"{FETCHERS}_maxlag"),
            },
        ),
        Panel(
            "Lag of fetchers, in time",
            "s",
            {"{{instance}} of broker {{leader}}": now("barnabas_fetcher_lag_seconds", by="instance, leader")},
        ),
        Panel(
            "What fetchers get",
            "Bps",
            {
                "{{instance}} of broker {{leader}}": rate(
                    "barnabas_fetcher_bytes_total", by="instance, leader"
                )
            },
        ),
        Panel(
            "Fetches, and partitions that fail",
            "ops",
            {
                "fetches {{instance}} of broker {{leader}}": rate(
                    "barnabas_fetcher_requests_total", by="instance, leader"
                ),
                "failures {{instance}} of broker {{leader}}": rate(
                    "barnabas_fetcher_failures_total", by="instance, leader"
                ),
                "partitions that fail {{instance}}": now(f"{FETCHERS}_failedpartitionscount"),
            },
        ),
        Panel(
            "Partitions, by leader and follower",
            "short",
            {"{{instance}} of broker {{leader}}": now("barnabas_fetcher_partitions", by="instance, leader")},
        ),
        Panel(
            "Logs that were cut, or begun anew",
            "short",
            {
                "cut {{instance}}": "sum by (instance) ("
                f"increase(barnabas_log_truncations_total{SELECTED}[$__rate_interval]))",
                "offsets cut off {{instance}}": "sum by (instance) ("
                f"increase(barnabas_log_truncated_records_total{SELECTED}[$__rate_interval]))",
                "begun anew {{instance}}": "sum by (instance) ("
                f"increase(barnabas_log_restarts_total{SELECTED}[$__rate_interval]))",
            },
        ),
    ],
    "Groups and transactions": [
        Panel(
            "Groups, by state",
            "short",
            {
                "all": now(f"{GROUPS}_numgroups"),
                **{
                    f"{state} {{{{instance}}}}": now(f"{GROUPS}_numgroups{state}")
                    for state in ("preparingrebalance", "completingrebalance", "stable", "dead", "empty")
                },
            },
        ),
        Panel("Rebalances", "ops", {"{{instance}}": rate("barnabas_group_rebalances_total")}),
        Panel("Committed offsets", "short", {"{{instance}}": now(f"{GROUPS}_numoffsets")}),
        Panel(
            "Transactional ids, by state",
            "short",
            {"{{state}}": now("barnabas_transactional_ids", by="state")},
        ),
    ],
    "Logs": [
        Panel("Bytes, by topic", "bytes", {"{{topic}}": now("kafka_log_log_size", OF_TOPIC, "topic")}),
        Panel(
            "Bytes, by directory",
            "bytes",
            {"{{instance}} {{logDirectory}}": now("barnabas_log_bytes", by="instance, logDirectory")},
        ),
        Panel(
            "Offsets kept, by topic",
            "short",
            {
                "{{topic}}": "sum by (topic) ("
                f"kafka_log_log_logendoffset{OF_TOPIC} - kafka_log_log_logstartoffset{OF_TOPIC})"
            },
        ),
        Panel(
            "Segments, by topic",
            "short",
            {"{{topic}}": now("kafka_log_log_numlogsegments", OF_TOPIC, "topic")},
        ),
        Panel(
            "Logs opened, and recovered",
            "ops",
            {
                "opened {{instance}}": rate("barnabas_log_openings_total"),
                "recovered {{instance}}": rate("barnabas_log_recoveries_total"),
            },
        ),
        Panel(
            "Time that took",
            "percentunit",
            {
                "opening {{instance}}": rate("barnabas_log_opening_seconds_total"),
                "recovery {{instance}}": rate("barnabas_log_recovery_seconds_total"),
            },
        ),
        Panel(
            "Flushes to the disk",
            "ms",
            {
                "p{{quantile}} {{instance}} {{logDirectory}}": "kafka_log_logflushstats_logflushrateandtimems"
                + SELECTED.replace("}", ',quantile=~"0.50|0.99"}')
            },
            12,
        ),
        Panel(
            "Directories that cannot be used",
            "short",
            {"{{instance}} {{logDirectory}}": f"kafka_log_logmanager_logdirectoryoffline{SELECTED} > 0"},
            12,
        ),
    ],
    "Compaction": [
        Panel(
            "Compactions, and looks for work",
            "ops",
            {
                "compactions {{instance}}": rate("barnabas_compactions_total"),
                "failed {{instance}}": rate("barnabas_compactions_failed_total"),
                "looks {{instance}}": rate("barnabas_compaction_rounds_total"),
            },
        ),
        Panel(
            "Bytes and records",
            "short",
            {
                "bytes read {{instance}}": rate("barnabas_compaction_read_bytes_total"),
                "bytes written {{instance}}": rate("barnabas_compaction_written_bytes_total"),
                "records read {{instance}}": rate("barnabas_compaction_read_records_total"),
                "records kept {{instance}}": rate("barnabas_compaction_kept_records_total"),
            },
        ),
        Panel(
            "Time",
            "s",
            {
                "a second {{instance}}": rate("barnabas_compaction_seconds_total"),
                "the last one {{instance}}": now(f"{CLEANER}_max_clean_time_secs"),
                "since the last look {{instance}}": f"{MANAGER}_time_since_last_run_ms{SELECTED} / 1000",
            },
        ),
        Panel(
            "How dirty, how much is copied",
            "percent",
            {
                "dirtiest {{instance}}": now(f"{MANAGER}_max_dirty_percent"),
                "copied again {{instance}}": now(f"{CLEANER}_cleaner_recopy_percent"),
            },
            12,
        ),
        Panel(
            "Logs that cannot be compacted",
            "short",
            {
                "{{instance}} {{logDirectory}}": now(
                    f"{MANAGER}_uncleanable_partitions_count", by="instance, logDirectory"
                )
            },
            12,
        ),
    ],
    "Metadata quorum": [
        Panel(
            "Offsets",
            "short",
            {
                "end {{instance}}": now(f"{RAFT}_log_end_offset"),
                "committed {{instance}}": now(f"{RAFT}_high_watermark"),
                "committed, last record {{instance}}": now(f"{CONTROLLER}_lastcommittedrecordoffset"),
                "applied by the controller {{instance}}": now(f"{CONTROLLER}_lastappliedrecordoffset"),
                "applied by the broker {{instance}}": now(f"{APPLIED}_last_applied_record_offset"),
            },
        ),
        Panel(
            "How far nodes are behind",
            "ms",
            {
                "broker {{instance}}": now(f"{APPLIED}_last_applied_record_lag_ms"),
                "controller {{instance}}": now(f"{CONTROLLER}_lastappliedrecordlagms"),
            },
            told="Below half a second while a node hears from the active controller.",
        ),
        Panel(
            "Age of the last change",
            "ms",
            {
                "broker {{instance}}": age(f"{APPLIED}_last_applied_record_timestamp"),
                "controller {{instance}}": age(f"{CONTROLLER}_lastappliedrecordtimestamp"),
            },
        ),
        Panel(
            "Elections and commits",
            "ms",
            {
                "election, average {{instance}}": now(f"{RAFT}_election_latency_avg"),
                "election, longest {{instance}}": now(f"{RAFT}_election_latency_max"),
                "commit, average {{instance}}": now(f"{RAFT}_commit_latency_avg"),
                "commit, longest {{instance}}": now(f"{RAFT}_commit_latency_max"),
            },
        ),
        Panel(
            "Leader and epoch",
            "none",
            {
                "leader, as {{instance}} sees it": now(f"{RAFT}_current_leader"),
                "leader, as {{instance}} loads it": now(f"{LOADER}_currentcontrollerid"),
                "vote of {{instance}}": now(f"{RAFT}_current_vote"),
                "epoch, as {{instance}} sees it": now(f"{RAFT}_current_epoch"),
                "epoch of the last record {{instance}}": now(f"{RAFT}_log_end_epoch"),
                "leaders seen by {{instance}}": now(f"{CONTROLLER}_newactivecontrollerscount"),
            },
        ),
        Panel(
            "Voters and observers",
            "short",
            {
                "voters, as {{instance}} sees them": now(f"{RAFT}_number_of_voters"),
                "observers of {{instance}}": now(f"{RAFT}_number_of_observers"),
                "change of voters under way {{instance}}": now(f"{RAFT}_uncommitted_voter_change"),
                "{{instance}} is {{state}}": now(f"{RAFT}_current_state_info", by="instance, state"),
                "voters of the settings not heeded {{instance}}": now(f"{CONTROLLER}_ignoredstaticvoters"),
                "the same, of a broker {{instance}}": now(f"{APPLIED}_ignored_static_voters"),
            },
        ),
        Panel(
            "Brokers, by their registration",
            "short",
            {
                "broker {{broker}}": most(f"{CONTROLLER}_brokerregistrationstate", by="broker"),
                "stopping, or stopped": f"max({CONTROLLER}_controlledshutdownbrokercount{SELECTED})",
            },
            told="10 is fenced, 20 in controlled shutdown, 30 active.",
        ),
        Panel(
            "Since the last heartbeat",
            "ms",
            {"broker {{broker}}": most(f"{CONTROLLER}_timesincelastheartbeatreceivedms", by="broker")},
        ),
        Panel(
            "Brokers fenced, and why",
            "short",
            {
                "{{reason}} {{instance}}": "sum by (instance, reason) ("
                f"increase(barnabas_brokers_fenced_total{SELECTED}[$__rate_interval]))"
            },
        ),
        Panel(
            "Errors of metadata",
            "short",
            {
                "not loaded {{instance}}": now(f"{APPLIED}_metadata_load_error_count"),
                "not applied {{instance}}": now(f"{APPLIED}_metadata_apply_error_count"),
                "of a controller {{instance}}": now(f"{CONTROLLER}_metadataerrorcount"),
            },
            told="None, always.",
        ),
        Panel(
            "Levels of features, and snapshots",
            "none",
            {
                "{{featureName}} {{instance}}": now(f"{LOADER}_finalizedlevel", by="instance, featureName"),
                "metadata.version {{instance}}": now(f"{LOADER}_currentmetadataversion"),
                "snapshots loaded {{instance}}": now(f"{LOADER}_handleloadsnapshotcount"),
            },
        ),
        Panel(
            "What runs",
            "none",
            {
                "{{instance}}: {{version}}, kernel {{kernel}}, {{loop}}": f"barnabas_build_info{SELECTED}",
                "{{instance}}: {{implementation}} {{version}}": f"python_info{SELECTED}",
                "{{instance}}: start, seconds": f"barnabas_start_seconds{SELECTED}",
                "{{instance}}: scrape, seconds": f"barnabas_scrape_seconds{SELECTED}",
                "{{instance}}: scrapes a second": rate("barnabas_scrapes_total"),
            },
        ),
    ],
}


def made(panel: Panel, number_of_it: int, x: int, y: int) -> dict[str, Any]:
    """A panel in Grafana's form."""
    is_stat = panel.kind == "stat"
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi"},
    }
    if is_stat:
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    return {
        "id": number_of_it,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.told,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": 4 if is_stat else 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": None if is_stat else 0}, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for at, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def panels() -> list[dict[str, Any]]:
    """All rows and panels, laid out from the left to the right and down."""
    laid: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        laid.append(
            {
                "id": len(laid) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
                "panels": [],
            }
        )
        x, y = 0, y + 1
        for panel in row:
            if x + panel.width > 24:
                x, y = 0, y + 8
            laid.append(made(panel, len(laid) + 1, x, y))
            x += panel.width
        y += 4 if row[0].kind == "stat" else 8
    return laid


def variable(name: str, label: str, query: str, every: str = ".*") -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": every,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """The whole of it."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    variables = [
        source,
        variable("job", "Job", "label_values(barnabas_build_info, job)"),
        variable("instance", "Broker", 'label_values(barnabas_build_info{job=~"$job"}, instance)'),
        variable("topic", "Topic", f"label_values({PARTITION}_replicascount{SELECTED}, topic)", ".+"),
    ]
    return {
        "uid": "barnabas",
        "title": "Barnabas",
        "tags": ["barnabas", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels(),
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    sys.stdout.write("\n")
