"""What controllers are asked by raw requests: what the quorum is, and to register a broker."""

from __future__ import annotations

from uuid import uuid4

from barnabas.controller.bootstrap import REGISTERED_FEATURES
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from barnabas.protocol.messages.describe_quorum import (
    AskedPartition,
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
)
from tests.support.raw_client import RawClient

METADATA = "__cluster_metadata"


def describe_quorum(port: int) -> PartitionData | None:
    """What a node says of the quorum, None where it does not answer or knows no leader."""
    asked = AskedTopic(topic_name=METADATA, partitions=[AskedPartition(partition_index=0)])
    try:
        with RawClient(port) as client:
            answer = client.ask(DescribeQuorumRequest(topics=[asked]), 2, DescribeQuorumResponse)
    except (OSError, EOFError):
        return None
    if answer.error_code or not answer.topics:
        return None
    (partition,) = answer.topics[0].partitions
    return None if partition.error_code else partition


def register_broker(controller_port: int, cluster_id: str, broker_id: int) -> None:
    """Have the active controller register a broker that does not exist: it stays fenced."""
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=uuid4().bytes,
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in REGISTERED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[uuid4().bytes],
    )
    with RawClient(controller_port) as client:
        answer = client.ask(request, 4, BrokerRegistrationResponse)
    assert answer.error_code == 0, answer
