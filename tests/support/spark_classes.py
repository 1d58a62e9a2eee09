"""A Java for Spark that has Spark's classes in an archive: each JVM starts, and runs its first query, in less
than half of the CPU time.

Tests start some dozens of them. `java_home()` is a folder whose `bin/java` is the machine's own with the
archive (class data sharing; java_classes.py does the same for Apache Kafka). It is made once for each
installation of PySpark, by a session that does a little of everything, and kept in the user's cache. A JVM
with another class path, or another version of Java, starts as it does without.

    python -m tests.support.spark_classes FILE      that session; the archive goes into the file
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from barnabas.spark.home import quick_home
from barnabas.spark.java import Java, find_java
from tests.support.fetched import FetchFailed, cache, made_once, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEADLINE_S = 600.0
_SCRIPT = """#!/bin/sh
exec {java} -XX:SharedArchiveFile={archive} -Xlog:disable "$@"
"""


def java_home() -> str | None:
    """What JAVA_HOME should be; None where no archive can be made."""
    import pyspark

    spark = quick_home()
    if spark is None:
        return None
    name = f"{Path(spark).name}-classes"
    if (home := os.environ.get("JAVA_HOME")) == str(cache() / name):
        return home  # of the process that started this one
    java = find_java()
    wanted = f"{java}, {pyspark.__version__}, {spark}, {Path(__file__).read_text()}"
    try:
        made = made_once(name, wanted, functools.partial(_make, java))
    except (FetchFailed, subprocess.TimeoutExpired):
        return None
    return str(made) if (made / "bin" / "java").exists() else None


def _make(java: Java, home: Path) -> None:
    archive = home / "archive"
    run([sys.executable, "-m", "tests.support.spark_classes", str(archive)])
    if archive.exists():
        script = home / "bin" / "java"
        script.parent.mkdir()
        # that of the wheel is started by a script of its own
        command = java.path if java.home is None else f"{java.home}/bin/java"
        script.write_text(_SCRIPT.format(java=shlex.quote(command), archive=shlex.quote(str(archive))))
        script.chmod(0o755)


def _record(archive: str) -> None:
    """A session whose JVM writes the archive as it ends."""
    from barnabas.spark.session import local_session
    from barnabas.testing import Broker

    options = f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    with TemporaryDirectory() as folder, Broker() as broker:
        settings = {"spark.driver.extraJavaOptions": options}
        spark = local_session("classes", cores=1, log_file=Path(folder) / "log", settings=settings)
        _use_a_little_of_everything(spark, broker.bootstrap, Path(folder))
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(DEADLINE_S)


def _use_a_little_of_everything(spark: SparkSession, bootstrap: str, folder: Path) -> None:
    from pyspark.sql import functions as f

    rows = spark.createDataFrame([(n, f"{n % 3}", n * 0.5) for n in range(20)], "n long, k string, x double")
    rows = rows.withColumn("at", f.timestamp_seconds(f.col("n") * 60))
    rows.join(rows.groupBy("k").agg(f.sum("x").alias("sum")), "k").orderBy("n").collect()
    rows.createOrReplaceTempView("rows")
    spark.sql("SELECT k, count(*) FROM rows WHERE n > 3 GROUP BY k ORDER BY k").collect()
    rows.write.parquet(str(folder / "parquet"))
    rows.select(f.to_json(f.struct("n", "k")).alias("value")).write.text(str(folder / "json"))
    rows.select(f.udf(str.upper, "string")("k")).collect()
    rows.select("k").rdd.map(lambda row: row.k).collect()
    at = {"kafka.bootstrap.servers": bootstrap}
    key, value = ("encode(k, 'utf-8') AS key", "encode(k, 'utf-8') AS value")
    records = rows.selectExpr("'letters' AS topic", key, value)
    records.write.format("barnabas").options(**at).mode("append").save()
    read = spark.read.format("barnabas").options(**at).load(subscribe="letters")
    read.selectExpr("string(value)").collect()
    source = spark.readStream.format("barnabas").options(**at, startingOffsets="earliest")
    stream = source.load(subscribe="letters")
    window = f.window("timestamp", "1 minute")
    counted = stream.withWatermark("timestamp", "1 minute").groupBy(window, "key").count()

    def take(frame: DataFrame, _: int) -> None:
        frame.collect()

    copied = stream.selectExpr("'copies' AS topic", "key", "value").writeStream.format("barnabas")
    writers = [counted.writeStream.outputMode("update").foreachBatch(take), copied.options(**at)]
    for number, writer in enumerate(writers):
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{number}"))
        writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)


if __name__ == "__main__":
    _record(sys.argv[1])
