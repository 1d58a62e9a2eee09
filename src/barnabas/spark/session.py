"""A local Spark session, for examples and tests: quick to start, and quiet.

    spark = local_session("totals", log_file=Path("spark.log"))
    spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092") ...

On a cluster none of this is needed: the session is the cluster's, and only the format comes from here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from barnabas.spark.home import quick_home
from barnabas.spark.java import find_java
from barnabas.spark.several_streams import prepare_streams

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",  # the machine's own name may resolve to any address
    # most of a short job is the JVM's compiler: with C1 alone it starts in half the time
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def local_session(
    name: str = "barnabas",
    *,
    cores: int | None = None,
    log_file: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with that many cores (by default all); Spark's output goes to the file, or to stderr.

    NoJava if there is no Java runtime.
    """
    home = find_java().home
    if home is not None:
        os.environ["JAVA_HOME"] = home
    # tasks need this Python, which has Barnabas, not the first one on the PATH
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAppName(name).setMaster(f"local[{cores or '*'}]")
    conf.setAll([*_SETTINGS.items(), *(settings or {}).items()])
    with _at_home():
        if log_file is None:
            context = SparkContext.getOrCreate(conf)
        else:
            with log_file.open("ab") as log:
                context = SparkContext(conf=conf, gateway=_launch(conf, log, log_file))
    spark = SparkSession(context)
    # not in a Python without Barnabas, which cannot use it, nor in a Spark with changed internals
    with suppress(PySparkException, Py4JError):
        prepare_streams(spark)
    return spark


@contextmanager
def _at_home() -> Iterator[None]:
    """Only while the JVM is started: another process that is started later may have another Spark."""
    quick = quick_home()
    if quick is None:
        yield
        return
    os.environ["SPARK_HOME"] = quick
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _launch(conf: SparkConf, log: BinaryIO, log_file: Path) -> Any:
    """Start the JVM with its output in the file: neither Java's warnings nor Spark's are for a terminal."""
    launch: Any = launch_gateway
    try:
        return launch(conf, {"stdout": log, "stderr": log})
    except PySparkRuntimeError as error:
        error.add_note(log_file.read_text(errors="replace")[-2000:])
        raise
