"""Replicas and leaders of partitions: elections and reassignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from barnabas.client.admin.engine import Engine, check, error_of, raise_first
from barnabas.client.errors import BrokerError
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

P = TypeVar("P", bound=tuple[str, int])


class ElectionType(IntEnum):
    """The kind of election."""

    PREFERRED = 0  # elect the preferred replica, the first one
    UNCLEAN = 1  # without a leader, elect any replica; records may be lost


class Reassignment(NamedTuple):
    """A partition that is being moved to other brokers."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Replicas(Engine):
    """The part of an admin for replicas and leaders of partitions."""

    async def elect_leaders(
        self, kind: ElectionType, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elect leaders of partitions, of all if none are named; None for each that has a new one.

        A partition that has the right leader already is ELECTION_NOT_NEEDED; if none are named, such
        partitions are left out.
        """
        wanted = None
        if partitions is not None:
            wanted = [
                TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(partitions).items()
            ]
        request = ElectLeadersRequest(
            election_type=kind, topic_partitions=wanted, timeout_ms=self._timeout_ms
        )
        if kind is not ElectionType.PREFERRED:
            connection = await self.cluster.any_connection()
            if connection.versions.choose(ElectLeadersRequest) < 1:
                raise NotSpoken("the broker is too old for unclean elections (ElectLeaders 1)")
        response, is_repeated = await self._change(
            request, ElectLeadersResponse, lambda answer: [answer.error_code]
        )
        done = "ELECTION_NOT_NEEDED" if is_repeated else ""  # it leads, whichever attempt did it
        check(response.error_code, "cannot elect leaders")
        return {
            (at := TopicPartition(topic.topic, each.partition_id)): error_of(
                each.error_code, f"no new leader of {at}", each.error_message, done
            )
            for topic in response.replica_election_results
            for each in topic.partition_result
        }

    async def list_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments of these partitions, or of all."""
        wanted = None
        if partitions is not None:
            wanted = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
                for name, numbers in _by_topic(partitions).items()
            ]
        response = await self._ask_controller(
            ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=wanted),
            ListPartitionReassignmentsResponse,
            lambda answer: [answer.error_code],
            is_safe=True,
        )
        check(response.error_code, "cannot list reassignments", response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                list(each.replicas), list(each.adding_replicas), list(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }

    async def alter_reassignments(self, wanted: Mapping[P, Sequence[int] | None]) -> None:
        """Move partitions to these brokers, the preferred leader first; None cancels a reassignment."""
        topics: dict[str, ReassignableTopic] = {}
        for (name, partition), brokers in wanted.items():
            topic = topics.setdefault(name, ReassignableTopic(name=name, partitions=[]))
            topic.partitions.append(
                ReassignablePartition(
                    partition_index=partition, replicas=None if brokers is None else list(brokers)
                )
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms, topics=list(topics.values())
        )
        response, is_repeated = await self._change(
            request, AlterPartitionReassignmentsResponse, lambda answer: [answer.error_code]
        )
        done = "NO_REASSIGNMENT_IN_PROGRESS" if is_repeated else ""  # cancelled, whichever attempt succeeded
        check(response.error_code, "cannot reassign partitions", response.error_message)
        raise_first(
            error_of(
                each.error_code,
                f"cannot reassign {topic.name}-{each.partition_index}",
                each.error_message,
                done,
            )
            for topic in response.responses
            for each in topic.partitions
        )


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic
