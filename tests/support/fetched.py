"""Folders of the user's cache that are made once: jars by Maven, packages by pip.

Whoever comes first makes a folder, and others wait for it. Maven itself runs once at a time: two that fetch
into one repository get into each other's way.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 900.0


class FetchFailed(Exception):
    """Something that tests need from elsewhere could not be fetched."""


def made_once(name: str, wanted: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made anew where it is not the one that is wanted."""
    folder = cache() / name
    complete = folder / ".complete"
    with _alone(name):
        if not complete.exists() or complete.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            complete.write_text(wanted)
    return folder


def jars_of(name: str, pom: Path, **properties: str) -> Path:
    """The folder of the jars that a pom.xml names, fetched again when it has changed since."""
    defined = [f"-D{key.replace('_', '.')}={value}" for key, value in properties.items()]

    def fetch(folder: Path) -> None:
        command = ["mvn", "-q", "-B", "-f", str(pom), *defined, "dependency:copy-dependencies"]
        with _alone("maven"):
            run([*command, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"])

    return made_once(name, hashlib.sha256(pom.read_bytes()).hexdigest(), fetch)


def run(command: list[str]) -> None:
    """FetchFailed, with all that it said, where a command fails."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        raise FetchFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")


def cache() -> Path:
    """Where all of it lies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"


@contextmanager
def _alone(name: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
