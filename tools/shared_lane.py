"""A plugin of pytest: several processes that were given the same tests run each file's tests in one of them.

`pytest -p tools.shared_lane --share=FOLDER`: before a process runs the tests of the next file it takes that
file, by creating an entry in FOLDER, and passes over files that another one has taken. So no process waits
while there are files left, and fixtures of a module are set up once. All processes collect the same tests in
the same order. Fixtures of the session are set up in each process that needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=Path, help="a folder in which processes note the files they take")


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
    for number, (_, tests) in enumerate(groupby(items, lambda item: item.path)):
        try:
            (folder / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        yield from tests
