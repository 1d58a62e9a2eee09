"""Topics, made and removed by confluent-kafka's admin client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.systems import NOTHING, Running

DEADLINE_S = 300.0


def create_topic(running: Running, name: str, partitions: int, settings: Mapping[str, str] = NOTHING) -> None:
    create_topics(running, {name: partitions}, settings)


def create_topics(
    running: Running, partitions_by_name: Mapping[str, int], settings: Mapping[str, str] = NOTHING
) -> None:
    """All of them, one after another: each answered before the next is asked for."""
    admin = _admin(running)
    for name, partitions in partitions_by_name.items():
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=running.replicas, config=dict(settings)
        )
        (future,) = admin.create_topics([topic], operation_timeout=60, request_timeout=60).values()
        future.result(DEADLINE_S)


def _admin(running: Running) -> AdminClient:
    # it complains, at its end, of events nobody came for, and of brokers that have stopped
    return AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 2})


def delete_topics(running: Running, names: Iterable[str]) -> None:
    admin = _admin(running)
    for future in admin.delete_topics(list(names), operation_timeout=60, request_timeout=60).values():
        future.result(DEADLINE_S)
