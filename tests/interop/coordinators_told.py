"""All that whoever serves a directory tells of its groups and transactions, and of what readers find.

Two of these are equal where nothing was lost, invented or changed in between; what the state of a modern
group is depends on who serves it, and is left out.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient

from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.records.reader import read_batches, read_records
from barnabas.records.record import Record
from tests.interop.moving import topic_told
from tests.support import raw_offsets as raw
from tests.support.raw_client import RawClient, fetch_request, wait_until
from tests.support.raw_transactions import COMMITTED, UNCOMMITTED, see

INTERNAL = ("__consumer_offsets", "__transaction_state")


def told(client: RawClient, bootstrap: str, *, topic: str, ending: tuple[str, ...]) -> dict[str, Any]:
    """Everything, but for transactions that are `ending` while they are looked at."""
    groups = sorted(listed(client), key=lambda one: one.group_id)
    classic = [one.group_id for one in groups if one.group_type == "classic"]
    with_offsets = [one.group_id for one in groups if one.group_type != "share"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    counts = admin.list_topics(timeout=20).topics
    return {
        "groups": {one.group_id: (one.group_type, one.protocol_type) for one in groups},
        "described": described(client, classic),
        "offsets": {name: offsets(client, name, stable=False) for name in with_offsets},
        "stable offsets": {name: offsets(client, name, stable=True) for name in with_offsets},
        "transactions": {
            name: one for name, one in transactions(client).items() if not name.endswith(ending)
        },
        "read committed": [see(client, topic, COMMITTED, partition=each) for each in (0, 1)],
        "read uncommitted": [see(client, topic, UNCOMMITTED, partition=each) for each in (0, 1)],
        "producers": [producers(client, topic, partition) for partition in (0, 1)],
        "topics": {name: topic_told(admin, name, len(counts[name].partitions)) for name in INTERNAL},
    }


def wait_for_all(client: RawClient, before: dict[str, Any]) -> None:
    """Wait until whoever serves coordinates all that was told before: Kafka loads it a little later."""
    for group, (kind, _) in before["groups"].items():
        if kind != "share":
            raw.find(client, group)
    for name in before["transactions"]:
        request = DescribeTransactionsRequest(transactional_ids=[name])

        def is_known(request: DescribeTransactionsRequest = request) -> bool:
            (one,) = client.ask(request, 0, DescribeTransactionsResponse).transaction_states
            return one.error_code == 0

        wait_until(is_known, f"the coordinator of {name}")


def listed(client: RawClient) -> list[ListedGroup]:
    found: list[ListGroupsResponse] = []

    def is_loaded() -> bool:
        found.append(client.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5, ListGroupsResponse))
        return found[-1].error_code == 0

    wait_until(is_loaded, "groups that are loaded")
    return list(found[-1].groups)


def described(client: RawClient, groups: list[str]) -> dict[str, Any]:
    request = DescribeGroupsRequest(groups=groups, include_authorized_operations=False)
    answer = client.ask(request, 6, DescribeGroupsResponse)
    return {
        one.group_id: (
            one.error_code,
            one.group_state,
            one.protocol_type,
            one.protocol_data,
            sorted(
                (
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    bytes(member.member_metadata),
                    bytes(member.member_assignment),
                )
                for member in one.members
            ),
        )
        for one in answer.groups
    }


def offsets(client: RawClient, group: str, *, stable: bool) -> dict[tuple[str, int], tuple[Any, ...]]:
    (answer,) = raw.fetch(client, 9, group, None, stable=stable).groups
    assert answer.error_code == 0
    return {
        (topic.name, one.partition_index): (
            one.committed_offset,
            one.committed_leader_epoch,
            one.metadata,
            one.error_code,
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def transactions(client: RawClient) -> dict[str, tuple[Any, ...]]:
    """Every transactional id: state, timeout, start, producer, epoch, partitions."""
    found: list[ListTransactionsResponse] = []

    def is_loaded() -> bool:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        found.append(client.ask(request, 2, ListTransactionsResponse))
        return found[-1].error_code == 0

    wait_until(is_loaded, "transactions that are loaded")
    names = sorted(one.transactional_id for one in found[-1].transaction_states)
    told_of = {name: transaction(client, name) for name in names}
    for one in found[-1].transaction_states:
        assert told_of[one.transactional_id][3] == one.producer_id
    return told_of


def transaction(client: RawClient, name: str) -> tuple[Any, ...]:
    request = DescribeTransactionsRequest(transactional_ids=[name])
    (one,) = client.ask(request, 0, DescribeTransactionsResponse).transaction_states
    assert one.error_code == 0, one
    return (
        one.transaction_state,
        one.transaction_timeout_ms,
        one.transaction_start_time_ms,
        one.producer_id,
        one.producer_epoch,
        sorted((topic.topic, sorted(topic.partitions)) for topic in one.topics),
    )


def records(client: RawClient, topic: str, partition: int) -> list[Record]:
    """All that a partition holds; one fetch gives no more than a segment."""
    found: list[Record] = []
    offset, end = 0, 1
    while offset < end:
        request = fetch_request(topic, partition=partition, offset=offset)
        (one,) = client.ask(request, 12, FetchResponse).responses[0].partitions
        assert one.error_code == 0
        data = one.records or b""
        assert isinstance(data, (bytes, memoryview))
        found += read_records(data)
        offset = max((header.last_offset + 1 for header, _ in read_batches(data)), default=one.high_watermark)
        end = one.high_watermark
    return found


def state(client: RawClient, name: str) -> str:
    """The state of a transactional id."""
    return str(transaction(client, name)[0])


def producers(client: RawClient, topic: str, partition: int) -> list[tuple[int, ...]]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    (found,) = client.ask(request, 0, DescribeProducersResponse).topics[0].partitions
    assert found.error_code == 0
    return sorted(
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in found.active_producers
    )
