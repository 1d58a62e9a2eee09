"""Metrics of replication: followers as their leaders see them, and leaders as their followers do.

Both are grouped by broker, not by partition, so that a page grows with the brokers of the cluster and not
with the square of its partitions. `barnabas cluster partitions` shows single partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.broker.metrics.elections import ELR, KINDS, LAST_KNOWN, UNCLEAN, ElectionCounts
from barnabas.broker.metrics.partitions import breathe
from barnabas.broker.services import Services
from barnabas.core.metrics import Page

if TYPE_CHECKING:
    from barnabas.broker.replicas.fetcher import Fetcher

_TOPICS = "kafka_server_brokertopicmetrics"
_REPLICAS = "kafka_server_replicamanager"
_FETCHERS = "kafka_server_replicafetchermanager"
_ELECTIONS = "kafka_controller_controllerstats"
_CLIENT = "Replica"  # Kafka's name for fetchers of replicas, the only kind here


def add_traffic(page: Page, services: Services) -> None:
    """Bytes between replicas, and ISR changes."""
    replication = services.replicas.replication
    page.add(f"{_TOPICS}_replicationbytesin_total", replication.bytes_in)
    page.add(f"{_TOPICS}_replicationbytesout_total", replication.bytes_out)
    changes = services.replicas.context.isr_changes
    page.add(f"{_REPLICAS}_isrshrinks_total", changes.shrinks)
    page.add(f"{_REPLICAS}_isrexpands_total", changes.expands)
    page.add(f"{_REPLICAS}_failedisrupdates_total", changes.failed)


class _Behind:
    """One follower, over all partitions that this node leads."""

    def __init__(self) -> None:
        self.records = self.out_of_sync = 0
        self.seconds = 0.0


async def add_followers(page: Page, services: Services) -> None:
    """How far followers are behind in the partitions that this node leads."""
    followers: dict[int, _Behind] = {}
    for number, replica in enumerate(services.replicas.open):
        for lag in replica.follower_lags():
            behind = followers.setdefault(lag.node_id, _Behind())
            behind.records += lag.records
            behind.seconds = max(behind.seconds, lag.seconds)
            behind.out_of_sync += not lag.is_in_sync
        await breathe(number)
    for node_id, behind in sorted(followers.items()):
        page.add("barnabas_follower_lag_records", behind.records, str(node_id))
        page.add("barnabas_follower_lag_seconds", behind.seconds, str(node_id))
        page.add("barnabas_follower_out_of_sync_partitions", behind.out_of_sync, str(node_id))


async def add_fetchers(page: Page, fetchers: Sequence[Fetcher], now: float) -> None:
    """How far this node is behind its leaders, by their last responses."""
    max_lag = failed_count = number = 0
    for fetcher in fetchers:
        followed, leader = fetcher.followed, str(fetcher.leader)
        records, since = 0, now
        for one in followed:
            records += one.lag
            max_lag = max(max_lag, one.lag)
            failed_count += one.failures > 0
            if one.behind_since is not None:
                since = min(since, one.behind_since)
            await breathe(number := number + 1)
        page.add("barnabas_fetcher_partitions", len(followed), leader)
        page.add("barnabas_fetcher_lag_records", records, leader)
        page.add("barnabas_fetcher_lag_seconds", now - since, leader)
        page.add("barnabas_fetcher_requests_total", fetcher.requests, leader)
        page.add("barnabas_fetcher_bytes_total", fetcher.bytes_in, leader)
        page.add("barnabas_fetcher_failures_total", fetcher.failures, leader)
    page.add(f"{_FETCHERS}_maxlag", max_lag, _CLIENT)
    page.add(f"{_FETCHERS}_failedpartitionscount", failed_count, _CLIENT)


def add_elections(page: Page, elections: ElectionCounts) -> None:
    """Elections of partition leaders that this controller has seen."""
    by_kind = elections.by_kind
    page.add(f"{_ELECTIONS}_uncleanleaderelections_total", by_kind[UNCLEAN] + by_kind[LAST_KNOWN])
    page.add(f"{_ELECTIONS}_electionfromeligibleleaderreplicas_total", by_kind[ELR])
    for kind in KINDS:
        page.add("barnabas_leader_elections_total", by_kind[kind], kind)
