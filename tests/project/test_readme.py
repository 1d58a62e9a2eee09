"""What the documents promise: code that runs and says what they show, and links that lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def block(language: str) -> str:
    """The one fenced block of that language in the README."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return str(found)


def run_example(folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", block("python")]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=60).stdout


def test_the_python_in_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    assert run_example(tmp_path) == block("text")
    assert (tmp_path / "barnabas-data" / "letters-0" / "00000000000000000000.log").stat().st_size > 0


def test_a_second_run_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    run_example(tmp_path)
    offsets = [int(line.split()[0]) for line in run_example(tmp_path).splitlines()]
    assert offsets == [2, 3]


PASTED = [
    pytest.param(script, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    for number, script in enumerate(
        re.findall(r"^```sh\n(python - <<.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    )
]


@pytest.mark.parametrize("script", PASTED)
def test_python_that_a_document_tells_to_paste_runs(script: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=tmp_path,
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_the_layers_marked_as_existing_are_those_that_exist() -> None:
    lines = [line for line in README.splitlines() if line.endswith("<- here")]
    marked = {name for line in lines for name in re.split(r"\s{3,}", line)[:1]}
    packages = {path.parent.name for path in (ROOT / "src" / "barnabas").glob("*/__init__.py")}
    assert marked == packages
