"""Idempotent producers whose acknowledgements are lost, over and over: nothing twice, nothing missing.

A proxy swallows responses to Produce after the broker has appended, and cuts the connection with all that is
in flight on it. Producers then send again what the broker already has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.clients import CLIENTS, Client, create_topic, values
from tests.support.proxy import PRODUCE, Proxy, every
from tests.support.targets import Target

# small batches, several in flight, and no patience before the next attempt
SETTINGS: dict[str, dict[str, Any]] = {
    "confluent": {
        "batch.num.messages": 10,
        "linger.ms": 0,
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 10,
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 10,
    },
    "aiokafka": {"max_batch_size": 400, "retry_backoff_ms": 5},
    "kafka-python": {
        "batch_size": 400,
        "retry_backoff_ms": 5,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 10,
    },
}
COUNT = 600


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_lost_acks(client: Client, new_target: Callable[[Mapping[str, str]], Target], topic: str) -> None:
    with Proxy(every(3)) as proxy:
        target = new_target({"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"})
        proxy.leads_to(target.port)
        create_topic(proxy.bootstrap, topic)
        offsets = client.produce(
            proxy.bootstrap, topic, values(COUNT), idempotent=True, **SETTINGS[client.name]
        )
        sent = proxy.requests[PRODUCE]
        found = CLIENTS[0].consume(proxy.bootstrap, topic, COUNT)
        end = CLIENTS[0].offsets(proxy.bootstrap, topic).end
    assert proxy.lost >= 15, f"only {proxy.lost} of {sent} acknowledgements were lost"
    assert [one.value for one in found] == [one.value for one in values(COUNT)]
    assert end == COUNT
    assert offsets == list(range(COUNT))


def test_without_idempotence_lost_acks_are_duplicates(
    new_target: Callable[[Mapping[str, str]], Target], topic: str
) -> None:
    """What the test above would find if the broker did not know what it already has."""
    _, client, _ = CLIENTS
    with Proxy(every(3)) as proxy:
        target = new_target({"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"})
        proxy.leads_to(target.port)
        create_topic(proxy.bootstrap, topic)
        client.produce(proxy.bootstrap, topic, values(COUNT), **SETTINGS[client.name])
        assert client.offsets(proxy.bootstrap, topic).end > COUNT
