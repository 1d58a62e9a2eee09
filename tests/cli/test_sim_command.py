"""`barnabas sim` as people run it: the same hash everywhere, and an exit status that tells."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from barnabas.cli import sim
from barnabas.cli.main import main
from barnabas.sim import many, world
from barnabas.sim.checkers.violation import Violation

SECONDS = "10"


def run(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas", "sim", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def hash_line(output: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith("trace hash: ")]
    return line


def test_a_seed_has_one_trace_in_any_process() -> None:
    lines = set()
    for hash_seed in ("0", "12345", "random"):
        ended = run("--seed", "7", "--seconds", SECONDS, hash_seed=hash_seed)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        lines.add(hash_line(ended.stdout))
    assert len(lines) == 1
    assert len(lines.pop().removeprefix("trace hash: ")) >= 32


def test_another_seed_has_another_trace(capsys: pytest.CaptureFixture[str]) -> None:
    hashes = set()
    for seed in ("1", "2"):
        assert main(["sim", "--seed", seed, "--seconds", SECONDS]) == 0
        hashes.add(hash_line(capsys.readouterr().out))
    assert len(hashes) == 2


def test_the_trace_tells_what_happens_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "3", "--seconds", SECONDS]) == 0
    quiet = capsys.readouterr().out
    assert main(["sim", "--seed", "3", "--seconds", SECONDS, "--trace"]) == 0
    loud = capsys.readouterr().out
    assert hash_line(quiet) == hash_line(loud)
    assert len(loud.splitlines()) > 1000


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation in which a promise is broken."""
    honest = world.simulate

    def simulate(seed: int, **options: object) -> world.Outcome:
        outcome = honest(seed, seconds=1.0)
        return outcome._replace(violations=[Violation("test", 1.5, "offset 5 of orders-0 is [gone]")])

    monkeypatch.setattr(many, "simulate", simulate)


@pytest.mark.usefixtures("broken")
def test_a_violation_is_said_with_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "5", "--seconds", "1"]) == 1
    output = capsys.readouterr().out
    assert "VIOLATION" in output
    assert "offset 5 of orders-0 is [gone]" in output
    assert "replay: barnabas sim --seed 5 --seconds 1 --trace" in output


@pytest.mark.usefixtures("broken")
def test_the_command_that_replays_a_kind_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "5", "--kind", "groups"]) == 1
    assert "replay: barnabas sim --seed 5 --kind groups --trace" in capsys.readouterr().out
    assert sim.replay_command(5, 2.0, "log") == "barnabas sim --seed 5 --kind log --seconds 2"


def test_quorum_seed_says_what_it_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "2", "--kind", "quorum", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["reached"]["elections"] > 0
    assert result["replay"] == "barnabas sim --seed 2 --kind quorum"
    assert main(["sim", "--seed", "2", "--kind", "quorum", "--trace"]) == 0
    loud = capsys.readouterr().out
    assert f"trace hash: {result['trace_hash']}" in loud
    assert "candidate -> leader" in loud
    assert "reached: " in loud


def test_many_seeds_of_quorum_add_up_what_they_reached() -> None:
    ended = run("--seeds", "4", "--kind", "quorum", "--jobs", "2", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout)
    assert (result["seeds"], result["violated"]) == (4, [])
    assert result["reached"]["elections"] >= 4
    table = run("--seeds", "2", "--kind", "quorum", "--jobs", "1")
    assert "reached: elections" in table.stdout


def test_many_seeds_on_all_cores() -> None:
    ended = run("--seeds", "4", "--first", "11", "--seconds", "2", "--jobs", "2", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout)
    assert (result["seeds"], result["violated"]) == (4, [])
    assert result["simulated_seconds"] > 8
    table = run("--seeds", "2", "--seconds", "2", "--jobs", "2")
    assert table.returncode == 0
    assert "simulated hours" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seed", "-3"], "'-3' is no number from 0 on"),
        (["--seed", "x"], "'x' is no number from 0 on"),
        (["--seeds", "0"], "at least 1"),
        (["--seeds", "2", "--jobs", "0"], "at least 1"),
        (["--seed", "1", "--seconds", "-1"], "'-1' is no time in seconds"),
        (["--seed", "1", "--seconds", "nan"], "'nan' is no time in seconds"),
        (["--seed", "1", "--seconds", "inf"], "'inf' is no time in seconds"),
        (["--seeds", "2", "--trace"], "--trace is for one seed"),
        (["--seed", "1", "--kind", "castle"], "invalid choice: 'castle'"),
    ],
)
def test_a_wrong_command_line_is_said(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sim", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("seconds", [None, 1.0, 0.1, 12.3456789, 1e-7])
def test_the_command_that_replays_has_the_very_same_seconds(seconds: float | None) -> None:
    _, command, *arguments = sim.replay_command(5, seconds).split()
    options = sim._parser().parse_args(arguments)
    assert (command, options.seed, options.seconds) == ("sim", 5, seconds)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGPIPE")
def test_who_has_seen_enough_of_a_trace_is_told_nothing_more() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", "sim", "--seed", "1", "--seconds", "5", "--trace"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == -signal.SIGPIPE


def test_a_seed_that_cannot_be_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(seed: int, **options: object) -> world.Outcome:
        raise ZeroDivisionError("in a checker")

    monkeypatch.setattr(many, "simulate", fail)
    summary = many.summarise(17)
    assert summary.seed == 17
    assert summary.violations == ("the simulation itself failed: ZeroDivisionError: in a checker",)
