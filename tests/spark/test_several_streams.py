"""Streams that start at the same time share a map of Spark's: nothing may be added to it as they do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from barnabas.spark.several_streams import prepare_streams, source_variables
from barnabas.testing import Broker
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_what_is_there_before_a_stream_is_there_after_it(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path
) -> None:
    variables = source_variables(spark)
    for name in list(variables.keySet()):
        if name.startswith("SPARK_"):  # of streams before
            variables.remove(name)
    prepare_streams(spark)
    before = set(variables.keySet())
    topics = Topics(spark, shared_broker.bootstrap)
    source, target = topics.create("several-in"), topics.create("several-out")
    topics.send(source, [b"1", b"2"])
    topics.pipe(source, target, tmp_path)
    topics.write(topics.read(source).select("value"), target)
    assert topics.values(target) == [b"1", b"1", b"2", b"2"]
    assert set(variables.keySet()) == before
    assert "" not in variables.values()
