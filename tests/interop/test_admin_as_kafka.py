"""The same administrators' requests to Apache Kafka and to Barnabas: the same answers, messages included."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.schema import Struct
from barnabas.testing import Broker
from tests.interop.admin_steps import Step, steps
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient


def comparable(value: Any) -> Any:
    """A response as plain values: ids are known or not, and lists of structures have no order."""
    if isinstance(value, Struct):
        return {field.name: comparable(getattr(value, field.name)) for field in value.__fields__}
    if isinstance(value, (list, tuple)):
        return sorted(map(comparable, value), key=repr)
    return any(value) if isinstance(value, bytes) else value


def answer(client: RawClient, step: Step) -> Any:
    return comparable(client.ask(step.request, step.version, step.response))


@pytest.mark.java
def test_administrators_are_answered_as_kafka_does(tmp_path: Any) -> None:
    with (
        ApacheKafka(tmp_path) as kafka,
        Broker() as broker,
        RawClient(kafka.port) as theirs,
        RawClient(broker.port) as ours,
    ):
        differences = []
        for step in steps():
            expected, got = answer(theirs, step), answer(ours, step)
            if got != expected:
                differences.append(f"{step.request} v{step.version}\n  Kafka: {expected}\n  here:  {got}")
        assert not differences, "\n".join(differences)
