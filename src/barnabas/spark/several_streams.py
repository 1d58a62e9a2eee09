"""A workaround for streams that start at the same time in one session.

Spark keeps one map of environment variables for all streams with a Python source, and every stream puts the
same few names into it as it starts, in its own thread and without a lock. Two that do so at once may break
the map for good: every query of the session then fails with `Task not serializable ... Illegal size 5 of
collection, expected 6` (Spark 4.2 and 4.3). With the names in it beforehand nothing is ever added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORMAT = "barnabas"
# the names that Spark adds; each stream sets the right values before its process is started
_NAMES = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_LOCAL_DIRS", "SPARK_PYTHON_RUNTIME")


def prepare_streams(spark: SparkSession) -> None:
    """Allow several streams of a session to start at once; call it before the first of them."""
    variables = source_variables(spark)
    for name in _NAMES:
        variables.putIfAbsent(name, "")


def source_variables(spark: SparkSession) -> Any:
    """The map, which has no public access."""
    session: Any = spark
    sources = session._jsparkSession.sessionState().dataSourceManager()
    return sources.lookupDataSource(_FORMAT).dataSourceCls().envVars()
