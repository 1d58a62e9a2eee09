"""docs/broker.md says what the code says: the APIs and their versions, and the flags."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.broker.handlers import SERVED
from barnabas.cli import serve

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "broker.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_table_of_apis_is_what_is_served() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+)-(\d+) \|", section("What is served"), re.MULTILINE)
    assert [(int(key), name, int(first), int(last)) for name, key, first, last in rows] == [
        (key, api.name, api.first, api.last) for key, api in SERVED.items()
    ]


def test_every_flag_is_told_of_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve.main(["--help"])
    flags = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert set(re.findall(r"^\| `(--[a-z-]+)", section("Starting"), re.MULTILINE)) == flags
