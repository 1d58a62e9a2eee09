"""Coordinators of groups and transactions move between brokers of Apache Kafka 4.3.0 and of Barnabas, as real
processes: by an election and by a kill, from each kind to the other and back. `mixed_coordinators` says what
goes on meanwhile, and what is true in the end; the long form is `mixed_replication_run coordinators`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.mixed_coordinators import SETTINGS, Coordinated
from tests.interop.mixed_replication_acts import ReplicationActs
from tests.support.group_members import NEW_JAVA
from tests.support.mixed_cluster import MixedCluster
from tests.support.mixed_node import BARNABAS, KAFKA

pytestmark = [pytest.mark.java, pytest.mark.slow]  # coordinators move four times, under load

BROKERS = (11, 12, 13)
# only a broker that has ended is fenced
PATIENT = {"broker.session.timeout.ms": "60000"}


@pytest.mark.parametrize(
    ("kinds", "readers", "java"),
    [
        pytest.param((KAFKA, KAFKA, BARNABAS), ("confluent", NEW_JAVA), False, id="one of Barnabas"),
        pytest.param((BARNABAS, BARNABAS, KAFKA), ("confluent", "confluent"), True, id="one of Kafka"),
    ],
)
def test_groups_and_transactions_go_on_at_coordinators_of_the_other_kind(
    tmp_path: Path, kinds: tuple[str, ...], readers: tuple[str, str], java: bool
) -> None:
    alone, other = BROKERS[2], BROKERS[0]
    with MixedCluster(tmp_path, {1: BARNABAS}, None, settings=SETTINGS | PATIENT) as cluster:
        for node_id, kind in zip(BROKERS, kinds, strict=True):
            cluster.add_broker(node_id, kind)
        cluster.start()
        acts = ReplicationActs(cluster)
        acts.wait_for_brokers()
        with Coordinated(acts, readers, java=java) as coordinated:
            coordinated.move_to(alone)
            coordinated.kill(alone)  # one of the others takes over
            coordinated.move_to(alone)
            coordinated.move_to(other)
            coordinated.finish()
        acts.stop_and_compare()
