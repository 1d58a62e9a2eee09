"""Metadata written by Apache Kafka: kept as a fixture, and fresh where Java is at hand."""

from __future__ import annotations

import pytest

from tests.metadata.kafka_life import KafkaLife, fresh, read_fixture


@pytest.fixture(
    scope="session", params=["kept", pytest.param("fresh", marks=[pytest.mark.java, pytest.mark.long])]
)
def kafka_life(request: pytest.FixtureRequest) -> KafkaLife:
    return read_fixture() if request.param == "kept" else fresh()
