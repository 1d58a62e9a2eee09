"""What the documents promise: code that runs and says what they show, and links that lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing import Broker

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def block(language: str, start: str = "") -> str:
    """The first fenced block of that language in the README that begins like this."""
    found = re.search(rf"^```{language}\n({start}.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_python_in_the_readme_prints_what_it_shows(broker: Broker, tmp_path: Path) -> None:
    script = block("python", "from confluent_kafka ")
    assert "127.0.0.1:9092" in script
    command = [sys.executable, "-W", "error", "-c", script.replace("127.0.0.1:9092", broker.bootstrap)]
    shown = subprocess.run(
        command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert shown == block("text")


PASTED = [
    pytest.param(
        script,
        id=f"{document.name}-{number}",
        marks=[pytest.mark.spark] if "barnabas.spark" in script else [],
    )
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
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


def anchors(document: Path) -> set[str]:
    """The headings of a document as links name them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_headings_lead_to_one(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", document.read_text())
    missing = [
        (target, anchor)
        for target, anchor in links
        if anchor not in anchors(document.parent / target if target else document)
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_of_the_project_that_a_document_names_are_there(document: Path) -> None:
    named = re.findall(r"`((?:bench|deploy|docs|src|tests|tools)/[\w./-]+)`", document.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []
