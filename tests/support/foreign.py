"""Clients of other languages, run as programs: Node.js with kafkajs, Go with franz-go.

Their packages are fetched once into the user's cache, by the lock files beside the programs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.fetched import made_once

INTEROP = Path(__file__).resolve().parent.parent / "interop"
NODE, GO = INTEROP / "node", INTEROP / "go"


class ForeignFailed(Exception):
    """A program of another language could not be built, or failed."""


@functools.cache
def missing_node() -> str | None:
    """What this machine lacks to run the programs for Node.js, None where nothing."""
    lacking = [name for name in ("node", "npm") if shutil.which(name) is None]
    return f"{' and '.join(lacking)} not on the PATH" if lacking else None


@functools.cache
def missing_go() -> str | None:
    """What this machine lacks to build the programs in Go, None where nothing."""
    if shutil.which("go") is None:
        return "go is not on the PATH"
    wanted = re.search(r"^go (\d+)\.(\d+)", (GO / "go.mod").read_text(), re.MULTILINE)
    found = re.search(r"go(\d+)\.(\d+)", _said(["go", "version"]))
    assert wanted is not None
    if found is None or tuple(map(int, found.groups())) < tuple(map(int, wanted.groups())):
        return f"go is older than {wanted[1]}.{wanted[2]}"
    return None


def run_node(program: str, *arguments: str) -> list[dict[str, Any]]:
    """The JSON lines that a program of tests/interop/node prints."""
    return _lines([*node_command(program), *arguments])


def node_command(program: str) -> list[str]:
    """What starts a program of tests/interop/node."""
    return ["node", str(_made("node", NODE, _install_node) / program)]


def run_go(*arguments: str) -> list[dict[str, Any]]:
    """The JSON lines that the program of tests/interop/go prints."""
    return _lines(go_command(*arguments))


def go_command(*arguments: str) -> list[str]:
    """What starts the program of tests/interop/go."""
    return [str(_made("go", GO, _build_go) / "interop"), *arguments]


def _install_node(folder: Path) -> None:
    _said(["npm", "ci", "--no-audit", "--no-fund", "--silent"], folder)


def _build_go(folder: Path) -> None:
    _said(["go", "build", "-o", "interop", "."], folder)


def _made(kind: str, source: Path, make: Callable[[Path], None]) -> Path:
    """A copy of the programs, with what they need: one for each state of their sources."""
    files = sorted(path for path in source.iterdir() if path.is_file())
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    def copy_and_make(folder: Path) -> None:
        for path in files:
            shutil.copy(path, folder)
        make(folder)

    return made_once(f"interop-{kind}-{wanted[:16]}", wanted, copy_and_make)


def _lines(command: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _said(command).splitlines()]


def _said(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise ForeignFailed(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
