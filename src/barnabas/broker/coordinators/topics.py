"""The coordinators' own topics, made when somebody first looks for a coordinator.

Settings are those of Kafka; there are at most three replicas, and no more than brokers, unless the broker's
settings say how many.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.host import CoordinatorNotAvailable
from barnabas.controller.decisions import NOT_COMMITTED
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


async def ensure_topic(name: str, services: Services) -> None:
    """Make the topic if it is not there; CoordinatorNotAvailable where that cannot be."""
    if services.image.topic(name) is None:
        alive = sum(not broker.fenced for broker in services.image.brokers.values())
        wanted = _wanted(name, services.settings, alive)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=False)
        try:
            (result,) = (await services.controller.send(request, CreateTopicsResponse)).topics
        except NOT_COMMITTED as error:
            raise CoordinatorNotAvailable(f"{name} cannot be made now: {error}") from error
        if result.error_code and services.image.topic(name) is None:
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
