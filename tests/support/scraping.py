"""A broker's metrics as a scraper sees them."""

from __future__ import annotations

import http.client

from prometheus_client.parser import text_string_to_metric_families

from barnabas.testing import Broker

TIMEOUT_S = 120.0
SETTINGS = {"barnabas.metrics.listen": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}


def address_of(broker: Broker) -> tuple[str, int]:
    endpoint = broker.node.metrics
    assert endpoint is not None
    return "127.0.0.1", endpoint.address.port


def get(broker: Broker, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    """Status, kind and text of an answer."""
    connection = http.client.HTTPConnection(*address_of(broker), timeout=TIMEOUT_S)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


class Scrape:
    """All samples of one answer, by name and labels."""

    def __init__(self, broker: Broker) -> None:
        status, _, text = get(broker)
        assert status == 200, text
        self.families = {
            each.name + "_total" if each.type == "counter" else each.name
            for each in text_string_to_metric_families(text)
        }
        self._samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples[name, tuple(sorted(labels.items()))]

    def has(self, name: str, **labels: str) -> bool:
        return (name, tuple(sorted(labels.items()))) in self._samples
