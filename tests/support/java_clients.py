"""Kafka's Java clients, of several versions, running single source files against any broker.

The newest comes with Apache Kafka itself (apache_kafka.py); older ones are fetched by `clients-pom.xml`,
once, into the user's cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

from tests.support.apache_kafka import LEAN_JVM, VERSION, KafkaFailed, libs

HERE = Path(__file__).resolve().parent
VERSIONS = (VERSION, "3.9.1")


def jars(version: str) -> Path:
    """The folder of a client's jars."""
    if version == VERSION:
        return libs()
    pom = HERE / "clients-pom.xml"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"
    folder = cache / f"kafka-clients-{version}"
    complete = folder / ".complete"
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    with (cache / f"kafka-clients-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != wanted:
            _fetch(pom, version, folder)
            complete.write_text(wanted)
    return folder


def _fetch(pom: Path, version: str, folder: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(pom), f"-Dclients.version={version}"]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise KafkaFailed(f"Maven could not fetch the client {version}:\n{done.stdout}")


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
