"""Compare the syntax trees of Python files, docstrings left out: a change of words changes none of them.

    python -m tools.same_syntax REV [PATH...]           the working tree against a revision
    python -m tools.same_syntax REV..REV [PATH...]      two revisions

Names every file whose tree differs, or that only one side has, and exits with 1 if there is one. Comments and
layout are not part of a tree. A body of only a docstring counts as `pass`. Changed files in other languages
are counted, not compared. Untracked files are ignored.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_PYTHON = (".py", ".pyi")
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def tree(source: str) -> str:
    """The syntax tree as text, without docstrings, comments and positions."""
    parsed = ast.parse(source)
    for node in ast.walk(parsed):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            node.body[:1] = [] if len(node.body) > 1 else [ast.Pass()]
    return ast.dump(parsed)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def _version(revision: str) -> Callable[[str], str]:
    return lambda name: _git("show", f"{revision}:{name}")


def _working_tree() -> Callable[[str], str]:
    root = Path(_git("rev-parse", "--show-toplevel").strip())
    return lambda name: (root / name).read_text()


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        sys.stderr.write(str(__doc__))
        return 2
    old, _, new = arguments[0].partition("..")
    before, after = _version(old), _version(new) if new else _working_tree()
    diff = ["diff", "--name-status", "--no-renames", "-z", old, *([new] if new else [])]
    fields = _git(*diff, "--", *arguments[1:]).split("\0")
    changed = dict(zip(fields[1::2], fields[::2], strict=False))  # name: A, D or M
    python = {name: status for name, status in changed.items() if name.endswith(_PYTHON)}
    differing = [
        name for name, status in python.items() if status != "M" or tree(before(name)) != tree(after(name))
    ]
    others = len(changed) - len(python)
    summary = f"{len(python)} Python files compared, {len(differing)} differ; {others} others not compared"
    sys.stdout.write("\n".join([*differing, summary, ""]))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
