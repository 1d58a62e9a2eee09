"""The pipeline on the README's first screen does what is said there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_pipeline_in_the_readme_parts_good_from_bad(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    (script,) = re.findall(r"^```python\n(from barnabas\.spark .*?)^```", README, re.MULTILINE | re.DOTALL)
    script = script.replace("127.0.0.1:9092", broker.bootstrap).replace('"checkpoints/', f'"{tmp_path}/')
    values = [b'{"order_id": 1, "cents": 450}', b'{"order_id": 2, "ce', b'{"order_id": 3, "cents": -1}']
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(30) == 0
    names: dict[str, Any] = {"spark": spark}
    exec(script, names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert read(broker, "good-orders", 1) == [(values[0], None)]
    assert read(broker, "orders.dlq", 2) == [
        (values[1], b'not JSON: {"order_id": 2, "ce'),
        (values[2], b"a price below zero"),
    ]


def read(broker: Broker, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Values, and why they are dead letters."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "readme", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe([topic])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [(message.value(), dict(message.headers() or []).get("error")) for message in messages]
