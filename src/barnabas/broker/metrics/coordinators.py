"""Metrics of groups and transactions: their numbers by state, in the loaded shards.

Names are Kafka's if it has them. Nothing is loaded for counting.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.core.metrics import Page

if TYPE_CHECKING:
    from barnabas.broker.coordinators.coordinator import Coordinator
    from barnabas.groups.shard import GroupShard
    from barnabas.transactions.shard import TransactionShard

_GROUPS = "kafka_coordinator_group_groupmetadatamanager"
_GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")


def add_groups(page: Page, groups: Coordinator[GroupShard] | None) -> None:
    """Groups by state, and their committed offsets."""
    states: Counter[str] = Counter()
    offsets = rebalances = 0
    for host in [] if groups is None else groups.loaded():
        shard = host.shard
        states.update(group.state for group in shard.groups.values())
        offsets += sum(
            len(topic.by_partition)
            for group in shard.offsets.by_group.values()
            for topic in group.by_topic.values()
        )
        rebalances += shard.rebalances
    page.add(f"{_GROUPS}_numgroups", states.total())
    page.add(f"{_GROUPS}_numoffsets", offsets)
    for state in _GROUP_STATES:
        page.add(f"{_GROUPS}_numgroups{state.lower()}", states[state])
    page.add("barnabas_group_rebalances_total", rebalances)


def add_transactions(page: Page, transactions: Coordinator[TransactionShard] | None) -> None:
    """Transactional ids by the state of their last transaction."""
    from barnabas.transactions.states import COMPLETE_ABORT, NAMES

    states: Counter[int] = Counter()
    for host in [] if transactions is None else transactions.loaded():
        states.update(one.state for one in host.shard.transactions.values())
    for state in range(COMPLETE_ABORT + 1):
        page.add("barnabas_transactional_ids", states[state], NAMES[state])
