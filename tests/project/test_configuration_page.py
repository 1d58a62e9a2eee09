"""docs/configuration.md is what the code makes of it, and says something of every setting."""

from __future__ import annotations

import re

import pytest

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.client_metrics import CLIENT_METRICS
from barnabas.core.settings.group import GROUP
from barnabas.core.settings.own import OWN
from barnabas.core.settings.table import Table
from barnabas.core.settings.topic import TOPIC
from tools import configuration


@pytest.fixture(scope="module")
def page() -> str:
    """The page as the code makes it."""
    return configuration.page()


def named(page: str, title: str) -> list[str]:
    """The settings in the tables of some sections."""
    sections = re.findall(rf"^## {title}.*?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert sections
    return [name for text in sections for name in re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)]


def test_the_page_is_up_to_date(page: str) -> None:
    assert configuration.PAGE.read_text() == page, "make it anew: python -m tools.configuration --write"


@pytest.mark.parametrize(
    ("title", "table"),
    [
        ("Topics", TOPIC),
        ("Brokers", BROKER),
        ("Groups", GROUP),
        ("Clients' metrics", CLIENT_METRICS),
        ("Of this project's own", OWN),
    ],
)
def test_every_setting_stands_there_once(page: str, title: str, table: Table) -> None:
    assert sorted(named(page, title)) == sorted(name for name in table if not table[name].is_internal)


def test_settings_stand_where_they_belong(page: str) -> None:
    heeded, refused, idle = (
        set(named(page, f"Brokers: {which}")) for which in ("heeded", "refused", "without effect")
    )
    assert {"max.connections", "log.retention.ms", "message.max.bytes", "num.partitions"} <= heeded
    assert {"ssl.keystore.location", "authorizer.class.name", "sasl.jaas.config"} <= refused
    assert {"num.io.threads", "offsets.load.buffer.size", "metric.reporters"} <= idle
    assert [name for name in heeded if not BROKER[name].has_effect] == []


def test_whatever_has_no_effect_says_why(page: str) -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \|.*\| (.*) \|$", page.partition("## Brokers: without")[2], re.MULTILINE
    )
    assert [name for name, told in rows if name in BROKER and "*" not in told] == []


def test_notes_and_prefixes_are_of_settings_that_exist() -> None:
    known = {*BROKER, *TOPIC}
    assert [name for name in configuration.NOTES if name not in known] == []
    assert [
        prefix for prefix, _ in configuration.NOT_YET if not any(name.startswith(prefix) for name in known)
    ] == []
