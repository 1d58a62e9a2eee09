"""Metrics of topics, partitions and logs.

Loops over partitions yield to other tasks; since topics may come and go meanwhile, they run over copies. A
partition that was not used yet has no size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from barnabas.broker.services import ControllerServices, Services
from barnabas.broker.settings.current_settings import TopicSettings
from barnabas.broker.traffic import TopicTraffic
from barnabas.core.errors import BarnabasError
from barnabas.core.metrics import Page
from barnabas.log.directory import LogDirectory
from barnabas.metadata.directories import is_online
from barnabas.metadata.parts import PartitionImage, TopicImage

PARTITIONS_A_TURN = 100

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


async def add_topics(page: Page, services: Services) -> None:
    """Traffic of topics."""
    replicas, image = services.replicas, services.image
    together = TopicTraffic()
    together.take(replicas.past_traffic)
    for number, (topic_id, traffic) in enumerate(list(replicas.traffic.items())):
        together.take(traffic)
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            for name, attribute in _TOPIC_COUNTERS.items():
                page.add(name, getattr(traffic, attribute), topic.name)
        await breathe(number)
    for name, attribute in _TOPIC_COUNTERS.items():
        page.add(name, getattr(together, attribute))


async def add_waits(page: Page, services: Services) -> None:
    """Waiting requests, and fetch sessions."""
    producers, places = 0, 0
    polls: dict[object, None] = {}
    for number, replica in enumerate(services.replicas.open):
        producers += replica.marks.commit_count
        marks = replica.marks
        waiting = [*marks.polls, *marks.end_polls, *marks.stable_polls]
        places += len(waiting)
        polls.update(dict.fromkeys(waiting))
        await breathe(number)
    prefix = "kafka_server_delayedoperationpurgatory"
    page.add(f"{prefix}_purgatorysize", producers, "Produce")
    page.add(f"{prefix}_purgatorysize", places, "Fetch")
    page.add(f"{prefix}_numdelayedoperations", producers, "Produce")
    page.add(f"{prefix}_numdelayedoperations", len(polls), "Fetch")
    prefix = "kafka_server_fetchsessioncache"
    page.add(f"{prefix}_numincrementalfetchsessions", len(services.sessions))
    page.add(f"{prefix}_numincrementalfetchpartitionscached", services.sessions.partition_count)


class _Counts:
    """Numbers of partitions, by the metadata."""

    def __init__(self) -> None:
        self.all = self.here = self.led = self.offline_here = 0
        self.nobody_leads = self.not_preferred = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = self.moving = 0


async def add_partitions(
    page: Page,
    services: ControllerServices,
    settings_of: Callable[[str], TopicSettings],
    *,
    is_controller: bool,
    is_broker: bool,
) -> None:
    """Partitions by the metadata: all of them on a controller, those with a replica here on a broker."""
    counts, number = _Counts(), 0
    image, me = services.image, services.node_id
    topics = list(image.topics_by_name.values())
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            counts.all += 1
            counts.nobody_leads += partition.leader < 0
            counts.not_preferred += partition.leader != partition.replicas[0]
            if is_broker and me in partition.replicas:
                counts.here += 1
                broker = image.brokers.get(me)  # None if it was unregistered
                counts.offline_here += broker is not None and not is_online(partition, broker)
                if partition.leader == me:
                    _led(page, counts, topic, index, partition, _min_in_sync(settings_of, topic.name))
            await breathe(number := number + 1)
    if is_broker:
        _add_counts_of_broker(page, counts)
    if is_controller:
        _add_counts_of_all(page, counts, len(topics))


async def add_stable_offsets(page: Page, services: Services) -> None:
    """The lag of the last stable offsets behind the high watermarks."""
    for number, replica in enumerate(services.replicas.open):
        lag = replica.log.high_watermark - replica.log.last_stable_offset
        page.add("kafka_cluster_partition_laststableoffsetlag", lag, replica.name, str(replica.partition))
        await breathe(number)


def _min_in_sync(settings_of: Callable[[str], TopicSettings], topic: str) -> int:
    try:
        return settings_of(topic).min_in_sync
    except BarnabasError:  # invalid for a log: reported when the log is opened
        return 1


def _led(
    page: Page, counts: _Counts, topic: TopicImage, index: int, partition: PartitionImage, min_in_sync: int
) -> None:
    # as in Kafka, replicas that are still being added do not count
    replica_count = len(partition.replicas) - len(partition.adding_replicas)
    in_sync_count, needed = len(partition.isr), min(min_in_sync, len(partition.replicas))
    is_under_replicated, is_under_min = in_sync_count < replica_count, in_sync_count < needed
    is_at_min = in_sync_count == needed
    counts.led += 1
    counts.under_replicated += is_under_replicated
    counts.under_min_isr += is_under_min
    counts.at_min_isr += is_at_min
    counts.moving += bool(partition.adding_replicas or partition.removing_replicas)
    where = (topic.name, str(index))
    page.add("kafka_cluster_partition_replicascount", replica_count, *where)
    page.add("kafka_cluster_partition_insyncreplicascount", in_sync_count, *where)
    page.add("kafka_cluster_partition_underreplicated", int(is_under_replicated), *where)
    page.add("kafka_cluster_partition_underminisr", int(is_under_min), *where)
    page.add("kafka_cluster_partition_atminisr", int(is_at_min), *where)


def _add_counts_of_broker(page: Page, counts: _Counts) -> None:
    prefix = "kafka_server_replicamanager"
    page.add(f"{prefix}_partitioncount", counts.here)
    page.add(f"{prefix}_leadercount", counts.led)
    page.add(f"{prefix}_offlinereplicacount", counts.offline_here)
    page.add(f"{prefix}_underreplicatedpartitions", counts.under_replicated)
    page.add(f"{prefix}_underminisrpartitioncount", counts.under_min_isr)
    page.add(f"{prefix}_atminisrpartitioncount", counts.at_min_isr)
    page.add(f"{prefix}_reassigningpartitions", counts.moving)


def _add_counts_of_all(page: Page, counts: _Counts, topic_count: int) -> None:
    prefix = "kafka_controller_kafkacontroller"
    page.add(f"{prefix}_globaltopiccount", topic_count)
    page.add(f"{prefix}_globalpartitioncount", counts.all)
    page.add(f"{prefix}_offlinepartitionscount", counts.nobody_leads)
    page.add(f"{prefix}_preferredreplicaimbalancecount", counts.not_preferred)


async def add_logs(page: Page, directories: Sequence[LogDirectory]) -> None:
    """Open logs, the metadata log included."""
    open_count = 0
    for directory in directories:
        size_bytes = 0
        for number, (topic, index) in enumerate(directory.partitions):
            log = directory.opened(topic, index)
            if log is not None and log.segments:
                open_count += 1
                size_bytes += log.size_bytes
                where = (topic, str(index))
                page.add("kafka_log_log_size", log.size_bytes, *where)
                page.add("kafka_log_log_logstartoffset", log.start_offset, *where)
                page.add("kafka_log_log_logendoffset", log.end_offset, *where)
                page.add("kafka_log_log_numlogsegments", len(log.segments), *where)
            await breathe(number)
        page.add("barnabas_log_bytes", size_bytes, directory.where)
    page.add("barnabas_partitions_open", open_count)


async def breathe(number: int) -> None:
    """Yield to other tasks now and then."""
    if number % PARTITIONS_A_TURN == PARTITIONS_A_TURN - 1:
        await asyncio.sleep(0)
