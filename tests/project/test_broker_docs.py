"""docs/broker.md says what the code says: the APIs and their versions, the flags, the settings that steer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.broker.handlers import SERVED
from barnabas.cli import serve
from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.own import OWN
from barnabas.core.settings.topic import SYNONYMS, TOPIC
from barnabas.log.config import known_settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "broker.md").read_text()
READ = re.compile(r"settings\.(?:integer|optional_integer|boolean|string|strings)\(\s*\"([a-z.]+)\"")


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def named_settings() -> set[str]:
    """What stands in the table of settings that steer something."""
    rows = "\n".join(line for line in section("Settings").splitlines() if line.startswith("|"))
    return set(re.findall(r"`([^`]+)`", rows))


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


def test_every_setting_that_the_broker_reads_is_told_of() -> None:
    sources = [path.read_text() for path in (ROOT / "src" / "barnabas" / "broker").rglob("*.py")]
    read = {name for text in sources for name in READ.findall(text)}
    assert {"max.connections", "auto.create.topics.enable"} <= read
    assert read <= named_settings()


def test_every_default_of_a_topic_that_logs_heed_is_told_of() -> None:
    heeded = known_settings() & set(TOPIC)
    assert {synonym for name in heeded for synonym, _ in SYNONYMS[name]} <= named_settings()


def test_settings_that_are_said_to_steer_something_exist_and_do_so() -> None:
    named = named_settings()
    assert named <= {*BROKER, *OWN}
    assert set(OWN) <= named
    assert [name for name in named if name in BROKER and not BROKER[name].has_effect] == []
