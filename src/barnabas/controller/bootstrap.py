"""The first records of an active controller.

Into an empty log it writes the levels of the served features, in one transaction, as Kafka does. With
eligible leader replicas the cluster's min.insync.replicas is among them: from then on it is part of the
metadata, whatever the servers' files say. (A metadata.version without transactions gets the records without
one.) A transaction that an earlier controller left open is aborted. Otherwise it writes nothing: levels that
Kafka finalised, and that are not served here, are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.controller.elections import ELR_FEATURE, MIN_INSYNC_REPLICAS
from barnabas.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    METADATA_VERSION,
    ClusterImage,
)
from barnabas.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from barnabas.metadata.versions import (
    LATEST_METADATA_VERSION,
    OLDEST_METADATA_VERSION,
    TRANSACTIONS_SINCE,
)
from barnabas.protocol.schema import Message

TRANSACTION_VERSION = "transaction.version"
KRAFT_FEATURE = "kraft.version"

# the levels of a fresh cluster
FEATURE_LEVELS = {METADATA_VERSION: LATEST_METADATA_VERSION, ELR_FEATURE: 1, TRANSACTION_VERSION: 2}
# the features that are served here: listed in ApiVersions, and changed by UpdateFeatures
SUPPORTED_FEATURES = {
    METADATA_VERSION: (OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION),
    ELR_FEATURE: (0, 1),
    KRAFT_FEATURE: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
# The ranges with which brokers and controllers register. A cluster of Kafka 4.3 has finalised the last three,
# and refuses a node without them: their levels are kept here, but the features are not served.
REGISTERED_FEATURES = {
    **SUPPORTED_FEATURES,
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}


def bootstrap_records(levels: Mapping[str, int] = FEATURE_LEVELS) -> list[Message]:
    """The contents of `bootstrap.checkpoint`: the levels of features, metadata.version first."""
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in names]


def activation_records(
    image: ClusterImage,
    *,
    in_transaction: bool = False,
    levels: Mapping[str, int] = FEATURE_LEVELS,
    min_insync_replicas: int = 1,
    others: Iterable[Message] = (),
) -> list[Message]:
    """The records that a controller writes when it becomes active; `others` are for a new cluster."""
    records: list[Message] = []
    if in_transaction:
        records.append(AbortTransactionRecord(reason="the controller that began it is gone"))
    if METADATA_VERSION in image.features:
        return records
    framed = levels.get(METADATA_VERSION, LATEST_METADATA_VERSION) >= TRANSACTIONS_SINCE
    if framed:
        records.append(BeginTransactionRecord(name="Bootstrap records"))
    records += bootstrap_records(levels)
    if levels.get(ELR_FEATURE, 0) > 0:
        records.append(
            ConfigRecord(
                resource_type=BROKER_RESOURCE,
                resource_name=CLUSTER_DEFAULT,
                name=MIN_INSYNC_REPLICAS,
                value=str(min_insync_replicas),
            )
        )
    records += others
    if framed:
        records.append(EndTransactionRecord())
    return records
