"""docs/cli.md shows what commands print: every line that begins with `$` is run, in the order of the page."""

from __future__ import annotations

from pathlib import Path

from barnabas.cli.main import COMMANDS
from barnabas.testing import Broker
from tests.support.console import Session, comparable, steps

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    shown = steps(TEXT)
    assert len(shown) > 20
    with (
        Broker(tmp_path / "barnabas-data") as broker,
        Session(tmp_path, BARNABAS_BOOTSTRAP=broker.bootstrap) as session,
    ):
        for command, expected in shown:
            assert comparable(session.run(command)) == comparable(expected), command


def test_every_command_is_told_of() -> None:
    assert [name for name in COMMANDS if f"`barnabas {name}`" not in TEXT] == []
