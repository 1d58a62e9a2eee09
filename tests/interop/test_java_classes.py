"""What Java's programs start from (`java_classes`): made once, harmless where it cannot be made or used."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.java_classes import ARCHIVE, LIST, archive, using

# it dumps no archive where it finds a file named `unable` beside itself
JAVA = """#!/bin/sh
[ ! -e "$(dirname "$0")/unable" ] || exit 1
for each in "$@"; do
    case "$each" in -XX:SharedArchiveFile=*) echo classes > "${each#*=}" ;; esac
done
"""


class Recorded:
    """Puts two lists into a folder each time that it is called; fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.times = 0
        self._failures = failures

    def __call__(self, lists: Path) -> None:
        self.times += 1
        if self.times <= self._failures:
            raise RuntimeError("a node did not start")
        (lists / "1").write_text("# of one program\na/A id: 7\nb/B id: 8\n")
        (lists / "2").write_text("b/B\nc/C\n")


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    made = tmp_path / "jars"
    made.mkdir()
    return made


@pytest.fixture
def another_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Puts a Java of its own in front of the PATH; returns its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def install() -> Path:
        folder = tmp_path / f"java-{len(list(tmp_path.glob('java-*')))}"
        folder.mkdir()
        (folder / "java").write_text(JAVA)
        (folder / "java").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return folder

    install()
    return install


@pytest.mark.usefixtures("another_java")
def test_an_archive_is_made_once_of_each_class_once(jars: Path) -> None:
    record = Recorded()
    with ThreadPoolExecutor(4) as threads:
        found = {each.result() for each in [threads.submit(archive, jars, record) for _ in range(4)]}
    (made,) = found
    assert made is not None
    assert made.name == ARCHIVE
    assert sorted(made.with_name(LIST).read_text().split()) == ["a/A", "b/B", "c/C"]
    assert record.times == 1


def test_each_java_has_an_archive(jars: Path, another_java: Callable[[], Path]) -> None:
    first = archive(jars, Recorded())
    another_java()
    second = archive(jars, Recorded())
    assert first is not None
    assert second is not None
    assert first != second
    assert first.exists()


def test_a_java_that_makes_no_archive_is_asked_once(jars: Path, another_java: Callable[[], Path]) -> None:
    record = Recorded()
    (another_java() / "unable").touch()
    assert archive(jars, record) is None
    assert archive(jars, record) is None
    assert record.times == 1
    assert using(None) == []


@pytest.mark.usefixtures("another_java")
def test_programs_that_failed_are_run_again(jars: Path) -> None:
    record = Recorded(failures=1)
    with pytest.raises(RuntimeError):
        archive(jars, record)
    assert archive(jars, record) is not None
    assert record.times == 2


@pytest.mark.java
def test_an_archive_that_cannot_be_used_changes_no_output(tmp_path: Path) -> None:
    damaged = tmp_path / ARCHIVE
    damaged.write_bytes(b"no archive" * 1000)
    run = ["java", "-Xshare:auto", *using(damaged), "-version"]
    told = subprocess.run(run, capture_output=True, text=True, check=True)
    without = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    assert told.stdout == without.stdout == ""
    assert told.stderr.splitlines()[:2] == without.stderr.splitlines()[:2]
