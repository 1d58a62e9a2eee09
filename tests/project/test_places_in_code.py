"""Places in the code that pages name are there; the pictures are those that the code makes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools import architecture

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "barnabas"
PAGES = {name: (ROOT / "docs" / name).read_text() for name in ("architecture.md", "protocol.md")}
ARCHITECTURE = PAGES["architecture.md"]
PLACE = re.compile(r"`([\w/]+\.py):([\w.]+)`")
FILE = re.compile(r"`([\w-]+/[\w/-]+\.py)[`:]")
PLACES = sorted({(page, *place) for page, text in PAGES.items() for place in PLACE.findall(text)})


def find(name: str) -> Path:
    """A file as pages name it: below the package, or below the root."""
    return next((path for path in (SOURCE / name, ROOT / name) if path.is_file()), SOURCE / name)


@cache
def defined(file: Path) -> frozenset[str]:
    """Functions, classes and module-level names, and what classes have, as `Class.name`."""
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        names |= set(_named(node))
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for part in node.body for name in _named(part)}
            names |= {f"{node.name}.{name}" for name in _set_on_self(node)}
    return frozenset(names)


def _named(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    for target in targets:
        elements = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (each.id for each in elements if isinstance(each, ast.Name))


def _set_on_self(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if not isinstance(each, ast.Attribute) or not isinstance(each.ctx, ast.Store):
            continue
        if isinstance(each.value, ast.Name) and each.value.id == "self":
            yield each.attr


@pytest.mark.parametrize(("page", "file", "name"), PLACES)
def test_place_in_the_code_exists(page: str, file: str, name: str) -> None:
    assert find(file).is_file()
    assert name in defined(find(file))


@pytest.mark.parametrize("page", PAGES)
def test_files_exist(page: str) -> None:
    named = set(FILE.findall(PAGES[page]))
    assert len(named) > 5
    assert sorted(name for name in named if not find(name).is_file()) == []


@pytest.mark.parametrize("page", PAGES)
def test_methods_without_their_file_belong_to_a_class_that_was_named(page: str) -> None:
    known = {name for where, file, _ in PLACES if where == page for name in defined(find(file))}
    bare = set(re.findall(r"`([A-Z]\w+\.\w+)`", PAGES[page]))
    assert bare - known == set()


def ways() -> list[tuple[str, list[str]]]:
    """The sections of the architecture that have numbered steps, and these."""
    sections = re.split(r"^## (.+)\n", ARCHITECTURE, flags=re.MULTILINE)[1:]
    found = []
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        steps = re.findall(r"^\d+\. .*?(?=^\d+\. |^\S(?<!\d)|\Z)", text, re.MULTILINE | re.DOTALL)
        if steps:
            found.append((title, steps))
    return found


def test_every_step_of_a_way_names_a_place() -> None:
    titles = {title for title, _ in ways()}
    assert {
        "A produce",
        "A fetch",
        "A follower's fetch",
        "An offset commit",
        "A topic's creation",
        "An election",
        "A Spark batch",
        "A simulator's seed",
    } <= titles
    without = [
        (title, step)
        for title, steps in ways()
        if not title.startswith("Where to add")
        for step in steps
        if not PLACE.search(step) and "](#" not in step
    ]
    assert without == []


def test_steps_are_numbered_from_one_without_gaps() -> None:
    for title, steps in ways():
        last = 0
        for step in steps:
            number = int(step.split(".")[0])
            assert number in (last + 1, 1), (title, step)
            last = number


@pytest.mark.parametrize("name", architecture.PICTURES)
def test_picture_is_up_to_date(name: str) -> None:
    drawn = architecture.PICTURES[name]()
    assert (architecture.IMAGES / name).read_text() == drawn, "python -m tools.architecture --write"
    assert f"](images/{name})" in ARCHITECTURE


def test_picture_has_the_layers_that_exist() -> None:
    rows = architecture.layers()
    marked = {name for row in rows for name, exists in row if exists}
    assert marked == {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {name for row in rows for name, _ in row} == set(architecture.LAYERS)
