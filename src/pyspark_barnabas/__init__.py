"""The name by which Spark finds the data source: it looks for `DefaultSource` in every module `pyspark_*`."""

from barnabas.spark.source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
