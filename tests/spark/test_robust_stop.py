"""A query that is stopped in mid-batch: nothing of it is left, and the next run has every row once."""

from __future__ import annotations

import os
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


def open_transactions(topics: Topics) -> set[str]:
    found = topics.admin(
        lambda admin: admin.list_transactions(states=["Ongoing", "PrepareCommit", "PrepareAbort"])
    )
    return {each.transactional_id for each in found}


def clients_of(port: int) -> set[int]:
    """The other processes that are connected to that port of this machine."""
    connections = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {fields[9] for fields in connections if int(fields[2].split(":")[1], 16) == port}
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
        except OSError:  # it is closed meanwhile
            continue
        if target.removeprefix("socket:[").rstrip("]") in inodes:
            found.add(int(link.parts[2]))
    return found - {os.getpid()}


def test_stop_in_mid_batch(
    spark: SparkSession, shared_broker: Broker, spark_log_file: Path, tmp_path: Path
) -> None:
    topics, gate = Topics(spark, shared_broker.bootstrap), Gate(tmp_path)
    source, target = topics.create("stopped-in"), topics.create("stopped-out")
    sent = [b"%-500d" % n for n in range(ROWS)]  # enough to leave the buffers between processes
    topics.send(source, sent)
    before, open_before = clients_of(shared_broker.port), open_transactions(topics)
    log_start = spark_log_file.stat().st_size
    checkpoint = tmp_path / "checkpoint"
    frame = gate.in_front_of(topics.stream(source, mirrorOffsets="false").select("value"))
    query = topics.sink(frame, target).option("checkpointLocation", str(checkpoint)).start()
    gate.wait()
    wait_until(lambda: bool(open_transactions(topics) - open_before), "rows are in a transaction")
    assert clients_of(shared_broker.port) - before
    query.stop()
    gate.open()  # whoever waits there is not told of the stop
    assert query.exception() is None
    wait_until(lambda: clients_of(shared_broker.port) <= before, "its workers have ended, or let go")
    topics.pipe(source, target, checkpoint)
    assert topics.values(target) == sorted(sent)
    wait_until(lambda: open_transactions(topics) <= open_before, "no transaction is open")
    log = spark_log_file.read_bytes()[log_start:].decode(errors="replace")
    assert [line for line in log.splitlines() if any(each in line for each in COMPLAINTS)] == []
