"""Spark's own Kafka connector (spark-sql-kafka-0-10), for comparing ours with it in one and the same session.

Its newest version is 4.2.0. It runs on the PySpark that is installed, if that is newer, and on its own,
4.2.0, which is also the oldest that ours runs on: that one is installed beside, into the user's cache, and
comes before the other on the path of whatever is started with `environment`. The jars come from Maven
Central by `connector-pom.xml`. Both are fetched once. Needs Java 17 or later and Maven.

    connector = official_connector()
    subprocess.run([connector.python, script], env={**os.environ, **connector.environment})
    # and in the script: local_session(..., settings=json.loads(os.environ[SETTINGS]))
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.fetched import jars_of, made_once, run

HERE = Path(__file__).resolve().parent
VERSION = "4.2.0"
SETTINGS = "BARNABAS_TESTS_SPARK_SETTINGS"


class Connector(NamedTuple):
    """What a program needs that uses the connector; its session takes `settings`."""

    python: str
    environment: dict[str, str]
    settings: dict[str, str]


def official_connector(spark_version: str | None = VERSION) -> Connector:
    """The connector on a PySpark of that version (None: on the one that is installed)."""
    settings = {"spark.jars": ",".join(map(str, jars()))}
    environment = {SETTINGS: json.dumps(settings)}
    if spark_version is not None:
        given = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(pyspark(spark_version)), given)))
    return Connector(sys.executable, environment, settings)


def jars() -> list[Path]:
    """The connector's jars."""
    return sorted(jars_of(f"spark-kafka-{VERSION}", HERE / "connector-pom.xml").glob("*.jar"))


def pyspark(version: str) -> Path:
    """A folder with that PySpark alone: what else it needs is found where it is installed already."""

    def fetch(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--target", str(folder), f"pyspark=={version}"])

    return made_once(f"pyspark-{version}", version, fetch)
