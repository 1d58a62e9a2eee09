"""Topics that change under a running query, and offsets that are not there: an error that says what, where
and how to go on, or the query goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException, StreamingQueryException

from barnabas.testing import Broker
from tests.support.raw_client import wait_until
from tests.support.spark_streams import TIMEOUT_S
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Batches = list[list[str]]


@pytest.fixture
def topics(spark: SparkSession, shared_broker: Broker) -> Topics:
    return Topics(spark, shared_broker.bootstrap)


def numbers(start: int, end: int) -> list[bytes | None]:
    return [b"%d" % n for n in range(start, end)]


class Query:
    """A stream of a topic that runs until it is told to stop; `change` happens in its first batch."""

    def __init__(
        self, topics: Topics, name: str, place: Path, change: Callable[[], None], **options: str
    ) -> None:
        self.seen: list[str] = []
        self._change: Callable[[], None] | None = change
        frame = topics.stream(name, mirrorOffsets="false", **options)
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(place))
        self.query = writer.start()

    def _take(self, frame: DataFrame, number: int) -> None:
        self.seen += sorted(row.value.decode() for row in frame.select("value").collect())
        if self._change is not None:
            change, self._change = self._change, None
            change()

    def until(self, seen: list[str]) -> None:
        """It goes on until it has seen this, and is stopped then."""
        wait_until(lambda: self.seen == seen or not self.query.isActive, f"{seen} is seen", TIMEOUT_S)
        self.query.stop()
        assert self.query.exception() is None
        assert self.seen == seen

    def error(self) -> str:
        with pytest.raises(StreamingQueryException) as caught:
            self.query.awaitTermination(TIMEOUT_S)
        return str(caught.value)


def test_a_topic_is_deleted_in_mid_query(topics: Topics, tmp_path: Path) -> None:
    name = topics.create("deleted")
    topics.send(name, numbers(0, 3))

    def delete() -> None:
        topics.admin(lambda admin: admin.delete_topics([name]))

    error = Query(topics, name, tmp_path / "strict", delete).error()
    assert "DataLost: deleted-0 is gone; it was read up to offset 3; set failOnDataLoss to false" in error

    def again() -> None:
        delete()
        topics.create(name, 2)
        topics.send(name, numbers(7, 9), 1)

    topics.create(name)
    topics.send(name, numbers(0, 3))
    lenient = Query(topics, name, tmp_path / "lenient", again, failOnDataLoss="false")
    lenient.until(["0", "1", "2", "7", "8"])


def test_a_topic_is_made_again_in_mid_query(topics: Topics, tmp_path: Path) -> None:
    """With more records than the old one had, so that its offsets alone would tell nothing."""
    name = topics.create("made-again")
    topics.send(name, numbers(0, 2))

    def again() -> None:
        topics.admin(lambda admin: admin.delete_topics([name]))
        topics.create(name)
        topics.send(name, numbers(10, 15))

    error = Query(topics, name, tmp_path / "strict", again).error()
    assert (
        "DataLost: topic made-again was deleted and made again; made-again-0 was read up to offset 2" in error
    )
    lenient = Query(topics, name, tmp_path / "lenient", again, failOnDataLoss="false")
    lenient.until(["10", "11", "12", "13", "14"] * 2)


def test_partitions_are_added_in_mid_query(topics: Topics, tmp_path: Path) -> None:
    name = topics.create("grows")
    topics.send(name, numbers(0, 2))

    def grow() -> None:
        topics.admin(lambda admin: admin.create_partitions({name: 3}))
        topics.send(name, numbers(5, 7), 2)

    Query(topics, name, tmp_path, grow).until(["0", "1", "5", "6"])


def test_a_topic_is_deleted_while_a_task_reads(topics: Topics) -> None:
    """The task that cannot go on says so; Spark's other tasks do not wait for ever."""
    name = topics.create("deleted-early", 2)
    topics.send(name, numbers(0, 5), 0)
    topics.send(name, numbers(0, 5), 1)

    def planned(**options: str) -> DataFrame:
        frame = topics.read(name, **options)
        assert frame.rdd.getNumPartitions() == 2  # so its ranges are fixed
        return frame

    quick = {"kafkaConsumer_pollTimeoutMs": "300"}
    strict, lenient = planned(**quick), planned(**quick, failOnDataLoss="false")
    topics.admin(lambda admin: admin.delete_topics([name]))
    with pytest.raises(
        PySparkException, match="topic deleted-early is gone, and offsets 0 to 5 of partition"
    ):
        strict.collect()
    assert lenient.collect() == []


def test_offsets_that_are_not_there(topics: Topics) -> None:
    name = topics.create("offsets")
    topics.send(name, numbers(0, 10))
    topics.admin(lambda admin: admin.delete_records({(name, 0): 4}))

    def options(start: int, end: int) -> dict[str, str]:
        named = {"startingOffsets": start, "endingOffsets": end}
        return {option: json.dumps({name: {"0": at}}) for option, at in named.items()}

    for start, end in ((2, 8), (6, 12), (20, 30)):
        said = f"DataLost: offsets-0 has offsets 4 to 10, and {start} to {end} were asked for; set failOn"
        with pytest.raises(PySparkException, match=said):
            topics.read(name, **options(start, end)).collect()
    for start, end, found in ((2, 8, range(4, 8)), (6, 12, range(6, 10)), (20, 30, range(0))):
        frame = topics.read(name, failOnDataLoss="false", **options(start, end))
        assert sorted(row.offset for row in frame.collect()) == list(found)
    with pytest.raises(PySparkException, match="from 8 to 6: it ends before it begins"):
        topics.read(name, **options(8, 6)).collect()
    with pytest.raises(PySparkException, match=r"offsets-1 are named and not read"):
        topics.read(name, startingOffsets='{"offsets": {"0": 5, "1": 5}}').collect()
    with pytest.raises(PySparkException, match=r'startingOffsets=.* write JSON such as \{"topic": \{"0": 23'):
        topics.read(name, startingOffsets='{"offsets": {"0": "5"}').collect()
    with pytest.raises(PySparkException, match="startingOffsets: 0 is named twice"):
        topics.read(name, startingOffsets='{"offsets": {"0": 5, "0": 6}}').collect()


def test_a_stream_that_begins_where_nothing_is(topics: Topics, tmp_path: Path) -> None:
    name = topics.create("begins")
    topics.send(name, numbers(0, 3))
    beyond = json.dumps({name: {"0": 7}})
    error = Query(topics, name, tmp_path / "strict", lambda: None, startingOffsets=beyond).error()
    assert (
        "DataLost: begins-0 has offsets 0 to 3, and startingOffsets has 7; set failOnDataLoss to false"
        in error
    )
