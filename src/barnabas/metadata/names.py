"""Internal topics."""

from __future__ import annotations

CLUSTER_METADATA = "__cluster_metadata"
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


def is_internal(name: str) -> bool:
    """Whether the topic is internal: marked as such for clients, which may not write to it."""
    return name in INTERNAL_TOPICS
