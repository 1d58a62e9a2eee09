"""The internal topics of the coordinators, created with the first request for a coordinator.

Their settings are Kafka's. If the broker's settings do not set the number of replicas, there are three, or as
many as there are registered brokers: a broker counts even if it is down at the moment, since the topic will
outlive that. `barnabas cluster grow-internal` adds replicas when brokers have joined.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.cluster.forwarding import ON_THE_WAY_TIMEOUT_S
from barnabas.broker.coordinators.errors import CoordinatorNotAvailable
from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.errors import wire_error
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.services import Services

logger = logging.getLogger("barnabas.coordinators")

_PREFIXES = {CONSUMER_OFFSETS: "offsets.topic", TRANSACTION_STATE: "transaction.state.log"}
_TIMEOUT_MS = 30_000
_EXISTS = wire_error("TOPIC_ALREADY_EXISTS").code


async def ensure_topic(name: str, services: Services) -> None:
    """Create the topic if it does not exist; CoordinatorNotAvailable if that fails."""
    if services.image.topic(name) is None:
        wanted = _wanted(name, services.settings, len(services.image.brokers))
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=False)
        try:
            response = await services.controller.send(
                request, CreateTopicsResponse, timeout_s=ON_THE_WAY_TIMEOUT_S
            )
        except NOT_COMMITTED as error:
            raise CoordinatorNotAvailable(f"{name} cannot be made now: {error}") from error
        (result,) = response.topics
        if services.image.topic(name) is not None:
            return
        if result.error_code in (0, _EXISTS):  # another broker was faster, or this image is behind
            raise CoordinatorNotAvailable(f"{name} was made just now, and is not known here yet")
        logger.error("%s cannot be made: %s", name, result.error_message)
        raise CoordinatorNotAvailable(f"{name} cannot be made: {result.error_message}")


def _wanted(name: str, settings: BrokerSettings, brokers: int) -> CreatableTopic:
    prefix = _PREFIXES[name]
    replicas = _at_most(settings, f"{prefix}.replication.factor", brokers)
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings.integer(f"{prefix}.segment.bytes")),
    }
    if name == TRANSACTION_STATE:
        configs |= {
            "compression.type": "uncompressed",
            "min.insync.replicas": str(_at_most(settings, f"{prefix}.min.isr", replicas)),
            "unclean.leader.election.enable": "false",
        }
    return CreatableTopic(
        name=name,
        num_partitions=settings.integer(f"{prefix}.num.partitions"),
        replication_factor=replicas,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=configs[key]) for key in sorted(configs)],
    )


def _at_most(settings: BrokerSettings, name: str, limit: int) -> int:
    value = settings.integer(name)
    return value if settings.is_set(name) else max(1, min(value, limit))
