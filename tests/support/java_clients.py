"""Kafka's Java clients, of several versions, running single source files against any broker.

The newest comes with Apache Kafka itself (apache_kafka.py); older ones, and Kafka Streams, are fetched by
`clients-pom.xml`, once, into the user's cache.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from functools import partial
from pathlib import Path

from tests.support.apache_kafka import (
    LEAN_JVM,
    LOGGING,
    VERSION,
    KafkaFailed,
    java,
    libs,
    shared_classes,
)
from tests.support.fetched import jars_of
from tests.support.java_classes import LIST, archive, compiled, using

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "interop" / "java"
NEW, OLD = VERSION, "3.9.1"


def jars(version: str) -> Path:
    """The folder of a client's jars."""
    return libs() if version == VERSION else _fetched("kafka-clients", version)


def streams_jars() -> Path:
    """The folder of Kafka Streams, of the newest version."""
    return _fetched("kafka-streams", VERSION)


def _fetched(artifact: str, version: str) -> Path:
    pom = HERE / "clients-pom.xml"
    return jars_of(f"{artifact}-{version}", pom, clients_version=version, clients_artifact=artifact)


def java_client(version: str, source: Path) -> list[str]:
    """The command that runs a single source file with a client."""
    return java(source) if version == VERSION else with_jars(jars(version), source)


@functools.cache
def with_jars(folder: Path, source: Path) -> list[str]:
    """The command that runs a single source file with these jars."""
    recorded = shared_classes()
    shared = None if recorded is None else archive(folder, partial(_as_before, recorded))
    class_path = f"{folder}/*:{compiled(source, folder)}"
    return ["java", *LEAN_JVM, *using(shared), LOGGING, "-cp", class_path, source.stem]


def _as_before(recorded: Path, lists: Path) -> None:
    """The classes of Apache Kafka's archive: those that are not among other jars do no harm."""
    shutil.copy(recorded.with_name(LIST), lists)


def run_java(version: str, source: Path, *arguments: str, timeout_s: float = 120.0) -> list[str]:
    """The lines that a single source file prints; KafkaFailed, with all of them, where it fails."""
    command = [*java_client(version, source), *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False
    )
    if done.returncode != 0:
        raise KafkaFailed(f"{source.name} with client {version} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout.splitlines()
