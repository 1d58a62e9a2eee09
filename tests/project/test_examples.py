"""Each example runs, and does what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.records.reader import read_records

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)


def test_the_commit_log_survives_its_crash(tmp_path: Path) -> None:
    data = tmp_path / "data"
    result = run("commit_log.py", "--dir", str(data))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert "cutting" in result.stdout
    reported = re.search(r"reported offset\s+(\d+)", result.stdout)
    assert reported is not None
    stored = [
        record for file in sorted(data.glob("orders-0/*.log")) for record in read_records(file.read_bytes())
    ]
    assert [record.offset for record in stored] == list(range(len(stored)))
    assert len(stored) > int(reported[1]) >= 10_000
    assert (data / ".kafka_cleanshutdown").exists()


def test_it_leaves_a_directory_that_was_there_alone(tmp_path: Path) -> None:
    result = run("commit_log.py", "--dir", str(tmp_path))
    assert result.returncode != 0
    assert "exists already" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_broker_survives_its_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    result = run("broker.py", "--dir", str(data), "--records", "20000")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("consumed, each once and in order") == 2
    assert "24,000" in result.stdout  # those of the first half, and those sent through the kill
    assert (data / ".kafka_cleanshutdown").exists()


@pytest.mark.slow  # a storm needs its time: ten seconds, with and without a remedy side by side
def test_the_storm_needs_its_cause() -> None:
    def play(remedy: str) -> dict[str, float]:
        result = run("rebalance_storm.py", "--remedy", remedy, "--seconds", "9", "--json")
        assert result.returncode == 0, result.stdout + result.stderr
        (outcome,) = json.loads(result.stdout)
        assert outcome["remedy"] == remedy
        assert f"slow, remedy: {remedy}" in result.stderr
        return outcome  # type: ignore[no-any-return]

    with ThreadPoolExecutor() as pool:
        storm, calm = pool.map(play, ["none", "small-batches"])
    assert storm["gone"] > calm["gone"]
    assert storm["rebalances"] > calm["rebalances"]
    assert storm["paused_s"] > calm["paused_s"]
    assert storm["lag"] > calm["lag"]
    assert calm["processed"] > 1000


@pytest.mark.spark
@pytest.mark.slow  # Spark is started twice, since it is killed once
def test_the_demo_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = "--dir", str(data), "--orders", "2000", "--pictures", str(tmp_path)
    result = run("demo.py", *arguments, timeout_s=840)
    assert result.returncode == 0, result.stdout + result.stderr
    # neither Spark nor Java has anything to say there
    assert [line for line in result.stderr.splitlines() if "record kernel: the pure" not in line] == []
    assert result.stdout.count("kill -9") == 2
    assert result.stdout.count(" exact") == 4
    assert "nothing lost, nothing twice, nothing left to read" in result.stdout
    assert (data / "broker" / ".kafka_cleanshutdown").exists()
    for name in ("demo", "demo-tables"):
        picture = (tmp_path / f"{name}.svg").read_text()
        assert str(tmp_path) not in picture
        assert re.findall(r"https?://(?!www\.w3\.org|www\.textualize\.io)", picture) == []


@pytest.mark.spark
def test_the_demo_sees_what_is_lost_and_what_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from audit import compare  # type: ignore[import-not-found]

    assert compare("orders", "abc", "cba").is_exact
    assert compare("orders", "abcd", "bbex") == ("orders", 4, 4, 3, 1, 2)
    assert not compare("orders", "ab", "a").is_exact
    assert not compare("orders", "ab", "abb").is_exact


def test_a_day_of_the_shop_is_always_the_same_and_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from shop import ORDERS, POISON, open_shop  # type: ignore[import-not-found]

    shop = open_shop(5000)
    assert shop == open_shop(5000)
    booked = sum(line.orders for line in shop.revenue.values())
    refused = sum(topic == ORDERS for topic, _ in shop.poison)
    assert booked + refused == shop.sent_to(ORDERS) == 5000
    assert {*shop.poison.values()} == {*POISON}
    assert 0 < len(shop.paid) < booked
