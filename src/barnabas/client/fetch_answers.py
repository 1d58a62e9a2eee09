"""How a consumer handles a broker's response to a fetch.

no error, no records            noted: if the log's end is known, nothing is left before it
no error                        kept until it is taken, if the position is still that of the request
OFFSET_OUT_OF_RANGE             the reset policy decides; without one the user gets the error
a diverging epoch               the log was truncated below the position: continue where it was
any other that is retriable     fetch metadata, and repeat the request after a pause
all others                      the user gets the error; repeat the request after a pause
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.client.assignment import Assignment, PartitionState
from barnabas.client.cluster import Cluster
from barnabas.client.errors import broker_error, wire_error_of
from barnabas.client.fetch_session import FetchSession, Want, Watermarks
from barnabas.client.fetched import Fetched
from barnabas.client.metadata import Leader, TopicPartition
from barnabas.core.disk import FileRange
from barnabas.core.errors import BarnabasError, WireError, wire_error
from barnabas.core.network import Address
from barnabas.protocol.messages.fetch import FetchResponse, PartitionData

logger = logging.getLogger("barnabas.client")

NO_RESET = 0


class Answers:
    """Applies responses to an assignment; errors for the user go to `failures`."""

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        reset: int,
        failures: list[BarnabasError],
        read_committed: bool,
    ) -> None:
        self._cluster = cluster
        self._assignment = assignment
        self._reset = reset
        self._failures = failures
        self._read_committed = read_committed

    def take(
        self,
        response: FetchResponse,
        session: FetchSession,
        wanted: Mapping[TopicPartition, Want],
        turns: Mapping[TopicPartition, int],
    ) -> None:
        """A response to a request for `wanted`, sent when the partitions' turns were `turns`."""
        if response.error_code:
            error = wire_error_of(response.error_code)
            session.failed(is_unknown=error.name == "FETCH_SESSION_ID_NOT_FOUND")
            if not error.retriable:
                self._failures.append(broker_error(error, "a fetch failed"))
            elif error.name == "FETCH_SESSION_TOPIC_ID_ERROR":
                self._cluster.refresh_soon()
            return
        session.answered(response)
        names = {want.topic_id: partition.topic for partition, want in wanted.items()}
        endpoints = {node.node_id: Address(node.host, node.port) for node in response.node_endpoints}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id)
            for answer in topic.partitions:
                partition = TopicPartition(name or "", answer.partition_index)
                watermarks = Watermarks(answer.high_watermark, answer.last_stable_offset)
                # with a preferred read replica the response is always empty
                is_told = not answer.error_code and answer.preferred_read_replica < 0
                session.tell(partition, watermarks if is_told else None)
                state = self._assignment.get(partition)
                want = wanted.get(partition)
                if state is None or want is None or state.turn != turns[partition]:
                    continue
                # while a leader moves, two brokers may be asked: do not use both responses
                if state.position == want.offset and state.fetched is None:
                    self._take_one(partition, state, want, answer, endpoints)
        for partition, want in wanted.items():
            state = self._assignment.get(partition)
            if state is not None and state.turn == turns[partition] and state.position == want.offset:
                state.nothing = session.told(partition) if state.fetched is None else None

    def _take_one(
        self,
        partition: TopicPartition,
        state: PartitionState,
        want: Want,
        answer: PartitionData,
        endpoints: Mapping[int, Address],
    ) -> None:
        if answer.error_code:
            self._refused(partition, state, want, wire_error_of(answer.error_code), answer, endpoints)
        elif answer.diverging_epoch is not None and answer.diverging_epoch.end_offset >= 0:
            end_offset = min(want.offset, answer.diverging_epoch.end_offset)
            if self._reset == NO_RESET:
                what = f"{partition} was cut at {end_offset}, below the position {want.offset}"
                self._failures.append(broker_error(wire_error("OFFSET_OUT_OF_RANGE"), what))
            state.go_to(end_offset)
        elif answer.records is not None and not isinstance(answer.records, FileRange) and answer.records:
            state.brought(
                Fetched(
                    partition,
                    answer.records,
                    want.offset,
                    aborted=answer.aborted_transactions if self._read_committed else None,
                    high_watermark=answer.high_watermark,
                    last_stable_offset=answer.last_stable_offset,
                )
            )

    def _refused(
        self,
        partition: TopicPartition,
        state: PartitionState,
        want: Want,
        error: WireError,
        answer: PartitionData,
        endpoints: Mapping[int, Address],
    ) -> None:
        if error.name == "OFFSET_OUT_OF_RANGE" and self._reset != NO_RESET:
            logger.warning(
                "%s has no offset %d any more, or not yet: its reset decides", partition, want.offset
            )
            state.look_up(self._reset)
            return
        if not error.retriable:
            self._failures.append(broker_error(error, f"cannot read {partition} at {want.offset}"))
        elif answer.current_leader is not None:
            leader = Leader(answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            endpoint = endpoints.get(leader.node_id)
            if self._cluster.metadata.learn_leader(*partition, leader, endpoint):
                return
        self._cluster.refresh_soon()
        state.not_before = self._cluster.clock.monotonic() + self._cluster.backoff.seconds(1)
