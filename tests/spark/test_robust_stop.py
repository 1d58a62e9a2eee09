"""A query that is stopped in mid-batch: nothing of it is left, and the next run has every row once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from barnabas.testing import Broker
from tests.support.raw_client import wait_until
from tests.support.spark_gate import Gate
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 30_000
COMPLAINTS = ("Task was destroyed", "never awaited", "never retrieved", "Exception ignored", "loop is closed")


def open_transactions(topics: Topics) -> list[str]:
    found = topics.admin(lambda admin: admin.list_transactions())
    return [each.transactional_id for each in found if each.state not in ("CompleteCommit", "CompleteAbort")]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_stop_in_mid_batch(
    spark: SparkSession, shared_broker: Broker, spark_log_file: Path, tmp_path: Path
) -> None:
    topics, gate = Topics(spark, shared_broker.bootstrap), Gate(tmp_path)
    source, target = topics.create("stopped-in"), topics.create("stopped-out")
    sent = [b"%-500d" % n for n in range(ROWS)]  # enough to leave the buffers between processes
    topics.send(source, sent)
    log_start = spark_log_file.stat().st_size
    checkpoint = tmp_path / "checkpoint"
    frame = gate.in_front_of(topics.stream(source, mirrorOffsets="false").select("value"))
    query = topics.sink(frame, target).option("checkpointLocation", str(checkpoint)).start()
    gate.wait()
    wait_until(lambda: open_transactions(topics) != [], "rows are in a transaction")
    query.stop()
    assert query.exception() is None
    wait_until(lambda: not is_alive(gate.pid), "its worker has ended")
    topics.pipe(source, target, checkpoint)
    assert topics.values(target) == sorted(sent)
    wait_until(lambda: open_transactions(topics) == [], "no transaction is open")
    log = spark_log_file.read_bytes()[log_start:].decode(errors="replace")
    assert [line for line in log.splitlines() if any(each in line for each in COMPLAINTS)] == []
