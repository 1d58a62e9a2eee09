"""`barnabas config`, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.cli.running import DEADLINE_S, Commands

SETTING = "log.cleaner.backoff.ms"  # of brokers: altered while they run, and of no other test's concern


def document(run: Commands, *arguments: object) -> Any:
    return json.loads(run.ok(*arguments, "--json"))


def settings(run: Commands, *arguments: object) -> dict[str, tuple[str, str]]:
    """The settings that `describe` shows: values and sources."""
    entries = document(run, "config", "describe", *arguments)
    return {entry["name"]: (entry["value"], entry["source"]) for entry in entries}


def error(run: Commands, *arguments: object) -> str:
    done = run(*arguments)
    assert (done.status, done.out) == (1, b"")
    return done.err


def test_settings_of_a_topic(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "c-topic", "--partitions", 1)
    here = ("--topic", "c-topic")
    assert "cleanup.policy" not in settings(anywhere, *here)
    assert settings(anywhere, *here, "--all")["cleanup.policy"] == ("delete", "default")
    said = anywhere.ok("config", "set", *here, "retention.ms=60000", "cleanup.policy+=compact")
    assert said == b"topic c-topic: retention.ms=60000, cleanup.policy+=compact\n"
    changed = settings(anywhere, *here)
    assert changed["retention.ms"] == ("60000", "topic")
    assert changed["cleanup.policy"] == ("delete,compact", "topic")
    table = anywhere.ok("config", "describe", *here).decode().splitlines()
    assert table[0].split() == ["SETTING", "VALUE", "SOURCE"]
    assert "retention.ms" in [line.split()[0] for line in table]
    anywhere.ok("config", "set", *here, "cleanup.policy-=delete")
    anywhere.ok("config", "unset", *here, "retention.ms")
    left = settings(anywhere, *here)
    assert left["cleanup.policy"] == ("compact", "topic")
    assert "retention.ms" not in left


def test_a_dry_run_does_nothing(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "c-dry", "--partitions", 1)
    fact = document(anywhere, "config", "set", "--topic", "c-dry", "retention.ms=60000", "--dry-run")
    assert fact == {"target": "topic c-dry", "altered": False, "changes": ["retention.ms=60000"]}
    assert "retention.ms" not in settings(anywhere, "--topic", "c-dry")
    assert "INVALID_CONFIG" in error(
        anywhere, "config", "set", "--topic", "c-dry", "retention.ms=x", "--dry-run"
    )


def test_documentation_and_sources(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "c-docs", "--partitions", 1, "--set", "max.message.bytes=2000000")
    text = anywhere.ok("config", "describe", "--topic", "c-docs", "max.message.bytes", "--docs").decode()
    head, *rest = text.splitlines()
    assert head == "max.message.bytes = 2000000  (int, from topic)"
    assert any(line.startswith("    ") and len(line.split()) > 3 for line in rest)
    (entry,) = document(anywhere, "config", "describe", "--broker", "1", SETTING, "--docs")
    assert (entry["type"], entry["read_only"], entry["sensitive"]) == ("long", False, False)
    assert entry["synonyms"] == [{"name": SETTING, "value": "15000", "source": "default"}]
    assert entry["documentation"]


def test_settings_of_brokers(anywhere: Commands) -> None:
    assert settings(anywhere, "--broker", 1)["node.id"] == ("1", "static")
    anywhere.ok("config", "set", "--all-brokers", f"{SETTING}=15001")
    assert settings(anywhere, "--all-brokers")[SETTING] == ("15001", "all brokers")
    anywhere.ok("config", "set", "--broker", 1, f"{SETTING}=15002")
    assert settings(anywhere, "--broker", 1)[SETTING] == ("15002", "broker")
    anywhere.ok("config", "unset", "--broker", 1, SETTING)
    anywhere.ok("config", "unset", "--all-brokers", SETTING)
    assert SETTING not in settings(anywhere, "--broker", 1)
    assert "these are there: 1" in error(anywhere, "config", "describe", "--broker", 7)


def test_loggers(anywhere: Commands) -> None:
    loggers = settings(anywhere, "--loggers", 1)
    name, (level, source) = min(loggers.items())
    assert source == "broker logger"
    anywhere.ok("config", "set", "--loggers", 1, f"{name}=ERROR")
    assert settings(anywhere, "--loggers", 1, name)[name][0] == "ERROR"
    anywhere.ok("config", "set", "--loggers", 1, f"{name}={level}")


def test_settings_of_groups_are_listed_with_all_others(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "c-listed", "--partitions", 1)
    anywhere.ok("config", "set", "--group", "c-group", "consumer.session.timeout.ms=50000")
    assert settings(anywhere, "--group", "c-group") == {"consumer.session.timeout.ms": ("50000", "group")}
    listed = [(each["kind"], each["name"]) for each in document(anywhere, "config", "list")]
    for expected in (("topic", "c-listed"), ("broker", "1"), ("loggers", "1"), ("group", "c-group")):
        assert expected in listed


def test_a_setting_that_is_nearly_right_is_named(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "c-near", "--partitions", 1)
    for action in (("describe", "retention.mss"), ("set", "retention.mss=1"), ("unset", "retention.mss")):
        said = error(anywhere, "config", action[0], "--topic", "c-near", action[1])
        assert "there is no setting 'retention.mss'" in said
        assert "did you mean retention.ms" in said
    said = error(anywhere, "config", "set", "--all-brokers", "log.cleaner.backof.ms=1")
    assert f"did you mean {SETTING}" in said
    assert "log.cleaner.backof.ms" not in settings(anywhere, "--all-brokers")


@pytest.mark.parametrize("whose", [("--broker", 1), ("--all-brokers",)], ids=["one", "all"])
def test_secrets_are_not_printed(anywhere: Commands, whose: tuple[object, ...]) -> None:
    """A broker does not show the value of a name that it does not know, so neither does the command."""
    secret = ("config", "set", *whose, "c.password=geheim", f"{SETTING}=15003", "--force")
    assert document(anywhere, *secret, "--dry-run")["changes"] == ["c.password=(hidden)", f"{SETTING}=15003"]
    assert f"c.password=(hidden), {SETTING}=15003".encode() in anywhere.ok(*secret)
    assert settings(anywhere, *whose)["c.password"][0] is None
    anywhere.ok("config", "unset", *whose, "c.password", SETTING)
    assert "c.password" not in settings(anywhere, *whose)


def test_what_a_broker_writes_otherwise_is_seen_at_once(
    anywhere: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.cli.connecting._SETTLE_S", 10 * DEADLINE_S)
    anywhere.ok("topic", "create", "c-other", "--partitions", 1)
    began = time.monotonic()
    for change in ("min.cleanable.dirty.ratio=1", "retention.ms=0500", "cleanup.policy=compact,compact"):
        anywhere.ok("config", "set", "--topic", "c-other", change)
    assert time.monotonic() - began < DEADLINE_S
