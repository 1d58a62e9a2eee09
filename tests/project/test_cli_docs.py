"""docs/cli.md shows what commands print: every line that begins with `$` is run, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from barnabas.cli.main import COMMANDS
from barnabas.testing import Broker

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
# what is another with every run
VARYING = (
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "TIME"),
    (r"(?<![\w-])[\w-]{22}(?![\w-])", "ID"),
    (r"/\S*/barnabas-data", "DIRECTORY"),
    (r"\d[\d.]* (?:B|KiB|MiB|GiB|TiB)\b", "SIZE"),
    (r"\b\d{2,}\b", "NUMBER"),
    (r"[ ]{2,}", "  "),
)


def shown() -> list[tuple[str, str]]:
    """The commands of the page and what it says they print."""
    found = [re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in BLOCKS]
    return [
        (command, output) for steps in found for command, output in (each.split("\n", 1) for each in steps)
    ]


def comparable(text: str) -> str:
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return text


def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    steps = shown()
    assert len(steps) > 20
    with Broker(tmp_path / "barnabas-data") as broker:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "BARNABAS_BOOTSTRAP": broker.bootstrap,
            "TZ": "UTC",
        }
        for command, expected in steps:
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            assert comparable(done.stdout) == comparable(expected), f"$ {command}\n{done.stdout}"


def test_every_command_is_told_of() -> None:
    assert [name for name in COMMANDS if f"`barnabas {name}`" not in TEXT] == []
