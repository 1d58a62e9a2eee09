"""A bootstrap address where no Kafka is: the error names it, says why, and does not take for ever."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from barnabas.testing import Broker
from tests.support.spark_streams import run as run_stream
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LIMIT_MS = "500"
AT_MOST_S = 25.0  # Spark's own work on a busy machine; what is not bounded waits for 30 s, or 60
HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """The address of something that answers everybody with these bytes and hangs up, or with nothing."""
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            held.append(client)
            if answer is not None:
                client.recv(1024)
                client.sendall(answer)
                client.close()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    for client in held:
        client.close()


@pytest.fixture
def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"127.0.0.1:{port}"


def said(fails: Callable[[], object]) -> str:
    begun = time.monotonic()
    with pytest.raises(PySparkException) as caught:
        fails()
    assert time.monotonic() - begun < AT_MOST_S
    return str(caught.value)


def read(spark: SparkSession, address: str) -> None:
    Topics(spark, address).read("any", kafka_default_api_timeout_ms=LIMIT_MS).collect()


def test_nobody_listens(spark: SparkSession, nobody: str, tmp_path: Path) -> None:
    reason = f"no broker can be reached ({nobody}: cannot connect to {nobody}: Connection refused)"
    topics = Topics(spark, nobody)
    assert reason in said(lambda: read(spark, nobody))
    stream = topics.stream("any", kafka_default_api_timeout_ms=LIMIT_MS)
    assert reason in said(lambda: run_stream(stream.writeStream.format("noop"), tmp_path))
    rows = spark.range(1).selectExpr("'' AS value")
    for guarantee in ("exactly-once", "at-least-once"):
        options = {"kafka_max_block_ms": LIMIT_MS, "deliveryGuarantee": guarantee}
        assert reason in said(lambda options=options: topics.write(rows, "any", **options))  # type: ignore[misc]


def test_a_name_that_nobody_knows(spark: SparkSession) -> None:
    assert "no broker can be reached (nowhere.invalid:9092: cannot connect to nowhere.invalid:9092" in said(
        lambda: read(spark, "nowhere.invalid:9092")
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HTTP, "an HTTP response: what listens there is no Kafka"),
        (TLS_ALERT, "an alert of TLS: that port wants TLS"),
        (b"", "closed the connection"),
        (None, "did not answer ApiVersions in time"),
    ],
    ids=["http", "tls", "hangs up", "silent"],
)
def test_something_else_listens(spark: SparkSession, answer: bytes | None, reason: str) -> None:
    with listening(answer) as address:
        error = said(lambda: read(spark, address))
    assert f"no broker can be reached ({address}: " in error
    assert reason in error


def test_a_write_to_one_who_says_nothing(spark: SparkSession) -> None:
    with listening(None) as address:
        rows = spark.range(1).selectExpr("'' AS value")
        error = said(lambda: Topics(spark, address).write(rows, "any", kafka_max_block_ms=LIMIT_MS))
    assert f"within 0.5 s by {address}" in error


def test_one_good_address_is_enough(spark: SparkSession, shared_broker: Broker, nobody: str) -> None:
    bootstrap = shared_broker.bootstrap
    Topics(spark, bootstrap).create("one-good-address")
    assert Topics(spark, f"{nobody},nowhere.invalid:1,{bootstrap}").read("one-good-address").count() == 0
