"""docs/protocol.md names places in the code: each is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "protocol.md").read_text()
PLACES = sorted(set(re.findall(r"`([a-z_/]+\.py):([\w.]+)`", TEXT)))
FILES = sorted(set(re.findall(r"`((?:src|tests|tools)/[\w/]+\.py|[a-z]+/[\w/]+\.py)[`:]", TEXT)))


def defined(file: Path) -> set[str]:
    """Functions, classes, methods and module-level names, methods as `Class.method`."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            methods = (ast.FunctionDef, ast.AsyncFunctionDef)
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, methods)}
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_a_place_in_the_code_exists(file: str, name: str) -> None:
    assert name in defined(ROOT / "src" / "barnabas" / file)


def test_the_files_exist() -> None:
    assert len(PLACES) > 20
    missing = [name for name in FILES if not (ROOT / name).exists()]
    assert [name for name in missing if not (ROOT / "src" / "barnabas" / name).exists()] == []


def test_methods_without_their_file_belong_to_a_class_that_was_named() -> None:
    known = {
        name for file in {file for file, _ in PLACES} for name in defined(ROOT / "src" / "barnabas" / file)
    }
    known |= defined(ROOT / "src" / "barnabas" / "protocol" / "wire.py")
    bare = set(re.findall(r"`([A-Z]\w+\.\w+)`", TEXT))
    assert bare
    assert bare <= known
