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

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
VERSION = "4.2.0"
SETTINGS = "BARNABAS_TESTS_SPARK_SETTINGS"
FETCH_DEADLINE_S = 900.0


class ConnectorFailed(Exception):
    """The connector, or the PySpark for it, could not be fetched."""


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
    """The connector's jars, fetched when they are not there yet."""
    pom = HERE / "connector-pom.xml"
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()

    def fetch(folder: Path) -> None:
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        _run([*command, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"])

    return sorted(_made(f"spark-kafka-{VERSION}", wanted, fetch).glob("*.jar"))


def pyspark(version: str) -> Path:
    """A folder with that PySpark alone: what else it needs is found where it is installed already."""

    def fetch(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--target", str(folder), f"pyspark=={version}"])

    return _made(f"pyspark-{version}", version, fetch)


def _made(name: str, wanted: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made anew where it is not the one that is wanted."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"
    folder, complete = cache / name, cache / name / ".complete"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            complete.write_text(wanted)
    return folder


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FETCH_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        raise ConnectorFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
