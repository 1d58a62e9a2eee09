"""The tables as a whole: how much they hold, that everything is documented, and what they cost to import."""

from __future__ import annotations

import subprocess
import sys

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.definition import Kind, Update
from barnabas.core.settings.documentation import sentence
from barnabas.core.settings.topic import SYNONYMS, TOPIC


def test_all_of_kafkas_settings_are_there() -> None:
    assert sum(not BROKER[name].is_internal for name in BROKER) == 340
    assert sum(not TOPIC[name].is_internal for name in TOPIC) == 33


def test_rows_are_read() -> None:
    segment_bytes = BROKER["log.segment.bytes"]
    assert segment_bytes.kind is Kind.INT
    assert segment_bytes.default_value() == 1 << 30
    assert segment_bytes.update is Update.CLUSTER_WIDE
    assert BROKER["node.id"].is_required
    assert BROKER["ssl.key.password"].is_sensitive
    assert BROKER["listeners"].update is Update.PER_BROKER
    assert not BROKER["num.io.threads"].has_effect
    assert BROKER.get("no.such.name") is None


def test_every_setting_has_a_sentence() -> None:
    for name in (*BROKER, *TOPIC):
        text = sentence(name)
        assert text is not None, name
        assert text.endswith("."), name
    assert sentence("no.such.name") is None
    assert "without effect" in (sentence("num.network.threads") or "")
    assert "In hours" in (sentence("log.retention.hours") or "")


def test_synonyms_are_settings_of_the_same_kind() -> None:
    for name, synonyms in SYNONYMS.items():
        for synonym, unit in synonyms:
            assert name in TOPIC
            if unit == 1:
                assert BROKER[synonym].kind is TOPIC[name].kind, synonym
                # the scheduler's interval is a range of its own; a retention may be any negative number
                assert BROKER[synonym].check in (TOPIC[name].check, "-"), synonym


def test_what_only_some_need_is_not_imported() -> None:
    """A start without a typing error needs neither difflib nor decimal nor the sentences."""
    program = (
        "import sys; from barnabas.core.settings.sources import resolve; "
        "from barnabas.core.settings.listeners import read_listeners; "
        "import barnabas.core.settings.security, barnabas.core.settings.topic; "
        "read_listeners(resolve(file={'log.segment.bytes': '2000000'})); "
        "unwanted = {'difflib', 'decimal', 'dataclasses', 'barnabas.core.settings.documentation'}; "
        "print(*unwanted & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
