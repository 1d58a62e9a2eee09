"""The transaction coordinator: `__transaction_state`, its shards, and their markers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.coordinator import Coordinator
from barnabas.broker.coordinators.markers import MarkerSender
from barnabas.broker.coordinators.settings_cache import SettingsCache
from barnabas.broker.coordinators.topics import ensure_topic
from barnabas.controller.bootstrap import TRANSACTION_VERSION
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.metadata.names import TRANSACTION_STATE
from barnabas.transactions.records import KINDS
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.shard import TransactionShard

if TYPE_CHECKING:
    from barnabas.broker.services import Services


def coordinate_transactions(services: Services) -> Coordinator[TransactionShard]:
    """The transaction coordinator of this node."""
    settings = SettingsCache(
        services, _settings, feature_level=lambda: services.image.features.get(TRANSACTION_VERSION, 0)
    )
    return Coordinator(
        TRANSACTION_STATE,
        KINDS,
        partial(TransactionShard, settings),
        metadata=services.metadata,
        replicas=services.replicas,
        clock=services.clock,
        # Kafka waits for the transaction's own timeout: clients have given up by then
        commit_timeout=lambda: services.settings.integer("request.timeout.ms") / 1000,
        send_markers=MarkerSender(services).send,
        ensure_topic=partial(ensure_topic, TRANSACTION_STATE, services),
        stop=services.stop,
    )


def _settings(settings: BrokerSettings, transaction_version: int) -> TransactionSettings:
    cleanup = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    removal = "transaction.remove.expired.transaction.cleanup.interval.ms"
    return TransactionSettings(
        max_timeout_ms=settings.integer("transaction.max.timeout.ms"),
        id_expiration_ms=settings.integer("transactional.id.expiration.ms"),
        timeout_check_interval_ms=settings.integer(cleanup),
        expiration_check_interval_ms=settings.integer(removal),
        transaction_version=transaction_version,
    )
