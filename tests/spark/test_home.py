"""Spark's Python processes import PySpark from where it is installed, compiled, and not from a zip."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.home import quick_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_home_has_everything_but_the_zip_and_may_be_made_twice(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    home = quick_home(environment)
    assert home is not None
    assert quick_home(environment) == home
    assert (Path(home) / "bin" / "spark-submit").exists()
    assert list((Path(home) / "jars").glob("spark-core_*.jar"))
    assert not (Path(home) / "python").exists()


def test_a_home_that_the_user_chose_is_left_alone(tmp_path: Path) -> None:
    assert quick_home({"SPARK_HOME": "/opt/spark", "XDG_CACHE_HOME": str(tmp_path)}) is None
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_kept_spark_starts_as_ever(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert quick_home({"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


def test_tasks_run_on_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    context = spark.sparkContext
    (file,) = context.parallelize([0], 1).map(lambda _: str(__import__("pyspark").__file__)).collect()
    assert Path(file).is_file()


def test_the_home_is_the_jvms_alone(spark: SparkSession) -> None:
    """Left in the environment it would be that of every process started from here, whatever its Spark."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert quick_home() == jvm.java.lang.System.getenv("SPARK_HOME")
