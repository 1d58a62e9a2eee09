"""Kafka's Java clients, of several versions, running single source files against any broker.

The newest comes with Apache Kafka itself (apache_kafka.py); older ones, and Kafka Streams, are fetched by
`clients-pom.xml`, once, into the user's cache. A program that is started often is compiled once.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.apache_kafka import LEAN_JVM, VERSION, KafkaFailed, libs
from tests.support.fetched import cache, jars_of

HERE = Path(__file__).resolve().parent
VERSIONS = (VERSION, "3.9.1")


def jars(version: str) -> Path:
    """The folder of a client's jars."""
    return libs() if version == VERSION else _fetched("kafka-clients", version)


def streams_jars() -> Path:
    """The folder of Kafka Streams, of the newest version."""
    return _fetched("kafka-streams", VERSION)


def _fetched(artifact: str, version: str) -> Path:
    pom = HERE / "clients-pom.xml"
    return jars_of(f"{artifact}-{version}", pom, clients_version=version, clients_artifact=artifact)


@functools.cache
def compiled(source: Path, against: Path) -> Path:
    """A folder with the classes of a single source file, compiled once for these jars."""
    text = hashlib.sha256(source.read_bytes() + against.name.encode()).hexdigest()[:16]
    folder = cache() / "java-classes" / f"{source.stem}-{text}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        command = ["javac", "-d", str(made), "-cp", f"{against}/*", str(source)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            shutil.rmtree(made)
            raise KafkaFailed(f"{source.name} does not compile:\n{done.stdout}")
        try:
            made.rename(folder)
        except OSError:  # somebody else was as quick
            shutil.rmtree(made)
    return folder


def run_java(version: str, source: Path, *arguments: str, timeout_s: float = 120.0) -> list[str]:
    """The lines that a single source file prints; KafkaFailed, with all of them, where it fails."""
    logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
    command = ["java", *LEAN_JVM, logging, "-cp", f"{jars(version)}/*", str(source), *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False
    )
    if done.returncode != 0:
        raise KafkaFailed(f"{source.name} with client {version} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout.splitlines()
