"""Folders that are made once: in the user's cache, jars by Maven and packages by pip; for one run of the
tests, what several of its processes need (tools/lanes.py names the folder of the run in RUN_FOLDER).

The first process makes a folder, and others wait for it. Maven itself runs once at a time: two that fetch
into one repository get into each other's way.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.lanes import RUN_FOLDER

DEADLINE_S = 900.0


class FetchFailed(Exception):
    """Something that tests need from elsewhere could not be fetched."""


def made_once(name: str, wanted: str, make: Callable[[Path], None], within: Path | None = None) -> Path:
    """A folder of the cache, or within another one, made anew where it is not the one that is wanted."""
    folder = (within or cache()) / name
    complete = folder / ".complete"
    with _alone(name, folder.parent):
        if not complete.exists() or complete.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            complete.write_text(wanted)
    return folder


def made_for_this_run(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that all processes of this run of the tests share; not to be written to."""
    return made_once(name, "", make, _of_this_run())


@functools.cache
def _of_this_run() -> Path:
    named = os.environ.get(RUN_FOLDER)
    if named is not None:
        return Path(named)
    alone = TemporaryDirectory(prefix="barnabas-tests-")
    atexit.register(alone.cleanup)
    return Path(alone.name)


def jars_of(name: str, pom: Path, **properties: str) -> Path:
    """The folder of the jars that a pom.xml names, fetched again when it has changed since."""
    defined = [f"-D{key.replace('_', '.')}={value}" for key, value in properties.items()]

    def fetch(folder: Path) -> None:
        command = ["mvn", "-q", "-B", "-f", str(pom), *defined, "dependency:copy-dependencies"]
        with _alone("maven", cache()):
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
def _alone(name: str, root: Path) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
