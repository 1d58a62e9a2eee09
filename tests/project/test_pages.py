"""The pages that show a terminal: what stands behind `$` is run, and prints what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.records import kernel
from tests.support.console import Session, comparable, steps

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["install.md", "operate.md", "groups.md", "transactions.md"])
def test_commands_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    if kernel.NAME != "c":
        pytest.skip("the pages show the compiled kernel")
    shown = steps((DOCS / page).read_text())
    assert shown
    with Session(tmp_path) as session:
        for command, expected in shown:
            assert comparable(session.run(command)) == comparable(expected), command
