"""Run the tests in several processes at a time, in one of two ways.

`python -m tools.lanes --each 2 "java or node or go" spark`: lanes by marks. The first lane has the tests with
none of these marks; every further one has those with its marks, and with none of a later lane's. They run
other people's programs and spend much of their time waiting for them; the first runs meanwhile. Each lane is
so many processes, which share its files (shared_lane.py). A lane with marks is given the files that may have
them, since every process imports all files that it is given. The first lane, which imports all files, fails
if a test outside these has one of the marks: no lane would run it.

`python -m tools.lanes --parts 2 "slow or java or node or go or spark"`: the tests with none of these marks,
in so many lanes of about the same size, by files.

The first process prints as it goes. The output of the others comes when all are done, so that no lane's lines
get lost among another's. Ends with 0 only if all do.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tools.shared_lane import ELSEWHERE

PYTEST = [sys.executable, "-m", "pytest"]
# names a folder that all processes of a run may use (tests/support/fetched.py)
RUN_FOLDER = "BARNABAS_TEST_RUN"


class Lane(NamedTuple):
    name: str
    arguments: list[str]  # of pytest
    stands_back: bool = False


def by_marks(marks: Sequence[str], each: int, root: Path) -> list[Lane]:
    """The tests without any of the marks, and then those of each; so many processes share them.

    Those that wait for other programs have time, and stand back; the first, which measure milliseconds, not.
    """
    chosen = [_without(marks), *(_without(marks[n + 1 :], f"({mark})") for n, mark in enumerate(marks))]
    lanes = []
    given = [files_with(mark) for mark in marks]
    for number, mark in enumerate(chosen):
        folder = root / str(number)
        folder.mkdir()
        files = given[number - 1] if number else []
        if not number:
            words = " ".join(word for each in marks for word in words_of(each))
            (folder / ELSEWHERE).write_text("\n".join([words, *{each for some in given for each in some}]))
        arguments = ["--durations=25", "-m", mark, *sharing(folder), *files]
        lanes += [Lane(f"those marked {mark}, {n + 1} of {each}", arguments, number > 0) for n in range(each)]
    return lanes


def files_with(mark: str, root: Path = Path()) -> list[str]:
    """The files whose tests may have one of these marks: named in the file itself, in a conftest.py beside or
    above it, or in a module of the tests that one of these imports."""
    words = "|".join(words_of(mark))
    named = re.compile(rf"\bmark\.({words})\b")

    @functools.cache
    def has(file: Path) -> bool:
        text = file.read_text() if file.exists() else ""
        if named.search(text):
            return True
        imported = re.findall(r"^from (tests[\w.]*) import", text, re.MULTILINE)
        return any(has(root / f"{each.replace('.', '/')}.py") for each in imported)

    def may_have(file: Path) -> bool:
        above = [each / "conftest.py" for each in file.parents if each.is_relative_to(root / "tests")]
        return any(map(has, [file, *above]))

    return sorted(str(each) for each in (root / "tests").rglob("test_*.py") if may_have(each))


def words_of(mark: str) -> list[str]:
    """The marks that an expression names."""
    return re.findall(r"(?!(?:and|or|not)\b)\b\w+", mark)


def by_files(
    parts: int,
    marks: Sequence[str],
    root: Path,
    folders: Sequence[str] = ("tests",),
    left_out: Sequence[str] = (),
) -> list[Lane]:
    """The tests without any of the marks: neighbours in a folder go to different lanes."""
    found = (each.relative_to(root) for folder in folders for each in (root / folder).rglob("test_*.py"))
    files = sorted(str(each) for each in found if not any(map(each.is_relative_to, left_out)))
    chosen = ["--quiet", "-m", _without(marks)]
    return [Lane(f"part {n + 1} of {parts}", [*chosen, *files[n::parts]]) for n in range(parts)]


def sharing(folder: Path) -> list[str]:
    """The arguments with which a process shares its files with others. The folder is part of a word: pytest
    takes a path that stands alone for that of a test, and looks for its settings around it."""
    return ["-p", "tools.shared_lane", f"--share={folder}"]


def run(lanes: Sequence[Lane]) -> int:
    """The exit code of a lane that failed, or 0."""
    first, *others = lanes
    with ExitStack() as stack:
        of_this_run = stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-tests-"))
        environment = {**os.environ, RUN_FOLDER: of_this_run}
        running = []
        for each in others:
            printed = stack.enter_context(tempfile.TemporaryFile())
            lane = subprocess.Popen(
                [*PYTEST, *each.arguments],
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=_stand_back if each.stands_back else None,
            )
            stack.callback(lane.wait)
            stack.callback(lane.kill)  # harmless once it has ended
            running.append((each.name, lane, printed))
        ran = subprocess.run([*PYTEST, *first.arguments], env=environment, check=False)
        codes = [ran.returncode]
        for name, lane, printed in running:
            codes.append(lane.wait())
            printed.seek(0)
            sys.stdout.write(f"\n== and {name}:\n\n")
            sys.stdout.write(printed.read().decode(errors="replace"))
    return next((code for code in codes if code), 0)


def _without(marks: Sequence[str], *chosen: str) -> str:
    return " and ".join([*chosen, *(f"not ({each})" for each in marks)])


def _stand_back() -> None:
    os.nice(5)  # a third of the weight: simulations of the first lane would leave them nothing with less


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.lanes")
    parser.add_argument("--each", type=int, default=1, help="processes of each lane, without --parts")
    parser.add_argument("--parts", type=int, help="run the tests with none of the marks, in so many lanes")
    parser.add_argument("marks", nargs="+", help="marks of pytest, or an expression of several")
    parser.add_argument("--within", action="append", help="a folder, with --parts; all tests by default")
    parser.add_argument("--leave-out", action="append", default=[], help="a folder, with --parts")
    given = parser.parse_args()
    if given.parts is None:
        with tempfile.TemporaryDirectory() as root:
            return run(by_marks(given.marks, given.each, Path(root)))
    folders = given.within or ["tests"]
    return run(by_files(given.parts, given.marks, Path.cwd(), folders, given.leave_out))


if __name__ == "__main__":
    sys.exit(main())
