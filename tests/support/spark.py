"""Spark, where it is there."""

from __future__ import annotations

import importlib.util
from functools import cache

from barnabas.spark.java import NoJava, find_java


@cache
def missing_spark() -> str | None:
    """What is lacking for tests with Spark, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (the extra spark)"
    try:
        find_java()
    except NoJava as error:
        return str(error)
    return None


@cache
def quick_java() -> str | None:
    """A JAVA_HOME from which Spark starts quickly, None where there is none."""
    from tests.support.spark_classes import java_home  # which needs PySpark

    return java_home()
