"""The way in: what a newcomer types, and what continuous integration runs, are the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.lanes import by_files, by_marks, files_with, sharing
from tools.shared_lane import ELSEWHERE

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def make(*arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    """Run make as from a bare shell: no flags inherited from the make that may run these tests."""
    command = [str(shutil.which("make")), *arguments]
    return subprocess.run(command, cwd=ROOT, env={"PATH": path}, capture_output=True, text=True, timeout=60)


def test_continuous_integration_runs_the_command_that_the_readme_names() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec make test"
    assert re.search(r"^make test\b", (ROOT / "README.md").read_text(), re.MULTILINE)


@needs_make
def test_help_lists_every_target() -> None:
    listed = re.findall(r"^  make (\w+)", make("help").stdout, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert sorted(listed) == sorted(phony[1].split())


@needs_make
def test_every_make_command_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^(\w+):.*##", MAKEFILE, re.MULTILINE))
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named = set(re.findall(r"(?:^|`)make (\w+)", document.read_text(), re.MULTILINE))
        assert named, document
        assert named <= targets, document


@needs_make
def test_all_the_checks_are_part_of_make_test() -> None:
    plan = make("--dry-run", "test").stdout
    for check in (
        "ruff check",
        "ruff format --check",
        "mypy",
        "lint-imports",
        '-m tools.lanes --each 3 "java or node or go" spark',
        "BARNABAS_KERNEL=pure",
    ):
        assert check in plan


@needs_make
def test_the_demo_and_the_tests_bring_spark_and_its_java(tmp_path: Path) -> None:
    for target, command in {"demo": "examples/demo.py", "unit": "-m tools.lanes"}.items():
        plan = make("--dry-run", target, f"VENV={tmp_path}").stdout
        steps = ['["optional-dependencies"]["spark"]', "-m barnabas.spark.java", command]
        assert sorted(steps, key=plan.index) == steps


@needs_make
def test_quick_tests_need_no_spark_and_no_java(tmp_path: Path) -> None:
    plan = make("--dry-run", "quick", f"VENV={tmp_path}").stdout
    lanes = re.search(r'-m tools\.lanes --parts 3 ((?:--leave-out \S+ )*)"(.*?)"', plan)
    assert lanes is not None
    assert lanes[1].split()[1::2] == ["tests/interop", "tests/spark", "tests/project"]
    assert lanes[2].split(" or ") == ["slow", "java", "node", "go", "spark"]
    assert '["optional-dependencies"]["spark"]' not in plan
    assert "barnabas.spark.java" not in plan


def test_lanes_by_files_have_every_test_file_once() -> None:
    lanes = by_files(2, ["slow", "java"], ROOT, left_out=["tests/spark"])
    assert [each.name for each in lanes] == ["part 1 of 2", "part 2 of 2"]
    chosen = ["--quiet", "-m", "not (slow) and not (java)"]
    assert all(each.arguments[:3] == chosen for each in lanes)
    files = [each for lane in lanes for each in lane.arguments[3:]]
    there = {str(each.relative_to(ROOT)) for each in (ROOT / "tests").rglob("test_*.py")}
    assert len(files) == len(set(files))
    assert set(files) == {each for each in there if not each.startswith("tests/spark/")}
    assert abs(len(lanes[0].arguments) - len(lanes[1].arguments)) <= 1


def test_lanes_by_files_of_some_folders() -> None:
    one, other = by_files(2, ["slow"], ROOT, ["tests/records", "tests/log"])
    files = {each for each in [*one.arguments, *other.arguments] if each.endswith(".py")}
    assert {Path(each).parts[1] for each in files} == {"log", "records"}
    assert "tests/log/compaction/test_crashes.py" in files


def test_lanes_by_marks_have_every_test_once(tmp_path: Path) -> None:
    lanes = by_marks(["java or go", "spark"], 2, tmp_path)
    chosen = [
        "not (java or go) and not (spark)",
        "(java or go) and not (spark)",
        "(spark)",
    ]
    assert [each.arguments[each.arguments.index("-m") + 1] for each in lanes[::2]] == chosen
    assert [each.arguments for each in lanes[::2]] == [each.arguments for each in lanes[1::2]]
    shared = [next(word for word in each.arguments if word.startswith("--share=")) for each in lanes]
    assert len(set(shared)) == 3  # the folders in which files are taken
    assert [each.stands_back for each in lanes] == [False] * 2 + [True] * 4


def test_lanes_are_given_the_files_that_may_have_their_marks(tmp_path: Path) -> None:
    written = {
        "test_none.py": "from tests.other import nothing",
        "test_named.py": "@pytest.mark.java",
        "test_by_import.py": "from tests.support.marked import clients",
        "support/marked.py": "pytest.param(1, marks=pytest.mark.go)",
        "other.py": "",
        "by_conftest/conftest.py": "pytest.mark.java",
        "by_conftest/test_it.py": "",
        "test_other_mark.py": "pytest.mark.javascript",
    }
    for name, text in written.items():
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = files_with("java or go", tmp_path)
    assert [Path(each).name for each in found] == ["test_it.py", "test_by_import.py", "test_named.py"]


TESTS_OF_A_FILE = """
import time
from pathlib import Path
import pytest

RAN = Path(__file__).with_name("ran")

@pytest.fixture(scope="module")
def ready():
    print("set up")
    yield
    print("torn down")

@pytest.mark.parametrize("number", range(3))
def test_number(ready, number):
    print("ran", __name__)
    RAN.open("a").write(__name__ + " ")
    deadline = time.monotonic() + 60
    while len(set(RAN.read_text().split())) < 2:  # until the other process has begun
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (__name__, number) != ("test_2", 1)
"""


def test_processes_of_a_lane_share_its_files(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    for number in range(5):
        (tmp_path / f"test_{number}.py").write_text(TESTS_OF_A_FILE)
    command = [sys.executable, "-m", "pytest", "-s", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    command += ["-p", "no:cacheprovider", *sharing(tmp_path / "taken"), str(tmp_path)]
    lanes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [lane.communicate(timeout=120)[0] for lane in lanes]
    assert sorted(lane.returncode for lane in lanes) == [0, 1]
    one, other = (re.findall(r"ran (test_\d)", each) for each in printed)
    assert sorted([*one, *other]) == [f"test_{number}" for number in range(5) for _ in range(3)]
    assert one
    assert other
    assert not set(one) & set(other)
    for ran, each in zip((one, other), printed, strict=True):
        assert each.count("set up") == each.count("torn down") == len(set(ran))


FILES_BY_PACE = {
    "test_0": "def test_a(): pass",
    "test_1": "import pytest\npytestmark = pytest.mark.slow\ndef test_b(): pass\ndef test_b2(): pass",
    "test_2": "TAKEN_APART = True\ndef test_c(): pass\ndef test_d(): pass",
    "test_3": "import pytest\nTAKEN_TOGETHER = 'x'\n@pytest.mark.slow\ndef test_e(): pass",
    "test_4": "TAKEN_TOGETHER = 'x'\ndef test_f(): pass",
}


def test_slow_files_are_taken_first_and_some_apart_or_together(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    for name, text in FILES_BY_PACE.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-v", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    command += ["-p", "no:cacheprovider", *sharing(tmp_path / "taken"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert re.findall(r"::test_(\w)", done.stdout) == ["b", "b", "e", "f", "a", "c", "d"]
    assert len(list((tmp_path / "taken").iterdir())) == 1 + 1 + 1 + 2


def test_a_marked_test_that_no_lane_is_given_is_refused(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (tmp_path / "test_0.py").write_text(
        "import pytest\n@pytest.mark.slow\ndef test_a(): pass\ndef test_b(): pass"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
        "-m",
        "not slow",
    ]
    command += ["-p", "no:cacheprovider", *sharing(taken), str(tmp_path)]

    def run(*files: str) -> subprocess.CompletedProcess[str]:
        (taken / ELSEWHERE).write_text("\n".join(["slow", *files]))
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert run("test_0.py").returncode == 0
    refused = run("test_1.py")
    assert refused.returncode == 4
    assert "no lane runs the marked tests of" in refused.stderr


def test_processes_of_a_lane_have_the_settings_of_the_project(tmp_path: Path) -> None:
    (lane, *_) = by_marks(["java"], 1, tmp_path)
    command = [sys.executable, "-m", "pytest", *lane.arguments, "--collect-only", "-k", "test_process"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert f"rootdir: {ROOT}\nconfigfile: pyproject.toml\n" in printed.stdout


@needs_make
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "needs Python 3.11 or newer"),
        ('case "$2" in *ensurepip*) exit 1 ;; esac', "python3 has no venv module"),
    ],
    ids=["too old", "no venv"],
)
def test_a_python_that_will_not_do_is_named(tmp_path: Path, script: str, said: str) -> None:
    pretender = tmp_path / "python3"
    pretender.write_text(f"#!/bin/sh\n{script}\n")
    pretender.chmod(0o755)
    result = make("types", f"VENV={tmp_path / 'venv'}", path=str(tmp_path))
    assert result.returncode != 0
    assert said in result.stderr
    assert not (tmp_path / "venv").exists()


@needs_make
def test_a_failing_step_is_named_and_stops_the_rest(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool, script in {
        "python": "exit 0",
        "ruff": "exit 0",
        "mypy": "exit 1",
        "lint-imports": "exit 0",
    }.items():
        (tools / tool).write_text(f"#!/bin/sh\n{script}\n")
        (tools / tool).chmod(0o755)
    # stamps of tomorrow: the environment counts as installed
    for stamp in (".installed", ".kernel", ".spark"):
        (tmp_path / stamp).touch()
        os.utime(tmp_path / stamp, (2**32, 2**32))
    result = make("test", f"VENV={tmp_path}")
    assert result.returncode != 0
    assert "== lint" in result.stdout
    assert "== FAILED: types" in result.stderr
    assert "== layers" not in result.stdout
