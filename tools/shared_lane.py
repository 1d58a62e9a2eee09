"""A plugin of pytest: several processes that were given the same tests run each file's tests in one of them.

`pytest -p tools.shared_lane --share=FOLDER`: before a process runs the tests of the next file it takes that
file, by creating an entry in FOLDER, and passes over files that another one has taken. So no process waits
while there are files left, and fixtures of a module are set up once. All processes collect the same tests in
the same order. Fixtures of the session are set up in each process that needs them.

Files with tests marked `slow` are taken first, those with most of them before the others: a long file that
is taken last would be waited for. A module whose `TAKEN_APART` is true shares nothing that costs much between
its tests: each of them is taken alone. Modules that have the same text as `TAKEN_TOGETHER`, and stand one
behind another, are taken as one: they share expensive fixtures of the session.

Tests that are left to other lanes, for their marks, have to be in files that these lanes are given, which
FOLDER/elsewhere names after the marks, if it is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise
from pathlib import Path

import pytest

ELSEWHERE = "elsewhere"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=Path, help="a folder in which processes note the files they take")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    config = items[0].config
    folder: Path | None = config.getoption("--share")
    listed = None if folder is None else folder / ELSEWHERE
    if listed is None or not listed.exists():
        return
    marks, *files = listed.read_text().splitlines()
    marked = [each for each in items if any(map(each.get_closest_marker, marks.split()))]
    known = {config.rootpath / each for each in files}
    lost = sorted({str(each.path) for each in marked if each.path not in known})
    if lost:
        raise pytest.UsageError(f"no lane runs the marked tests of {', '.join(lost)}: see tools/lanes.py")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    folder: Path | None = session.config.getoption("--share")
    if folder is None or session.testsfailed or session.config.option.collectonly:
        return None  # as ever
    # a test's fixtures are torn down by what the next test needs: the next file is taken before that
    for item, following in pairwise(chain(_taken(session.items, folder), [None])):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True


def _taken(items: Sequence[pytest.Item], folder: Path) -> Iterator[pytest.Item | None]:
    """The tests of the files that this process could take. Parametrized fixtures of the session may have put
    a file's tests into several places: each is taken apart."""
    units = [list(tests) for _, tests in groupby(items, _unit)]
    for number, tests in sorted(enumerate(units), key=lambda unit: -_slow_tests(unit[1])):
        try:
            (folder / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        yield from tests


def _unit(item: pytest.Item) -> str:
    """What is the same for tests that are taken together."""
    module = getattr(item, "module", None)
    if getattr(module, "TAKEN_APART", False):
        return item.nodeid
    return getattr(module, "TAKEN_TOGETHER", str(item.path))


def _slow_tests(tests: Sequence[pytest.Item]) -> int:
    return sum(item.get_closest_marker("slow") is not None for item in tests)
