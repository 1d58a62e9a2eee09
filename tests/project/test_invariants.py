"""A program that contradicts itself ends its node: nobody on the way answers it as a client's error."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import barnabas.broker

BROKER = Path(barnabas.broker.__file__).parent


def caught_too_widely(source: str) -> Iterator[int]:
    """Lines that catch every error of something awaited, and do not let the violations through before."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Try):
            continue
        awaits = any(isinstance(part, ast.Await) for line in node.body for part in ast.walk(line))
        before = ""
        for handler in node.handlers:
            caught = ast.unparse(handler.type) if handler.type is not None else ""
            if awaits and "BarnabasError" in caught and "InvariantViolation" not in before:
                yield handler.lineno
            before += caught


def test_it_is_noticed() -> None:
    assert list(caught_too_widely("async def f():\n try:\n  await g()\n except BarnabasError:\n  pass")) == [
        4
    ]


def test_handlers_and_coordinators_let_violations_through() -> None:
    found = [
        f"{path.relative_to(BROKER)}:{line}"
        for part in ("handlers", "coordinators")
        for path in sorted((BROKER / part).glob("*.py"))
        for line in caught_too_widely(path.read_text())
    ]
    assert found == []
