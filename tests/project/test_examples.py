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


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


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
def test_the_demo_adds_up(tmp_path: Path) -> None:
    result = run("demo.py", "--dir", str(tmp_path / "data"), "--orders", "20000")
    assert result.returncode == 0, result.stdout + result.stderr
    # neither Spark nor Java has anything to say there
    assert [line for line in result.stderr.splitlines() if "record kernel: the pure" not in line] == []
    assert "20,000 orders read and added up" in result.stdout
    assert re.search(r"checked all \d+ totals by product and hour are those of what was sent", result.stdout)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
