"""A step of a person with Apache Kafka's tools: a command line, with places to be filled in.

`{bootstrap}` and `{controller}` are where the system is, `{data}` is its data directory, and `{dir}` a folder
for files that steps read.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple


class Step(NamedTuple):
    """One command line; `given` is what it reads from its standard input."""

    tool: str
    arguments: str
    given: str = ""

    @property
    def name(self) -> str:
        return f"kafka-{self.tool} {self.arguments}"

    def words(self, places: dict[str, str]) -> list[str]:
        return [word.format(**places) for word in shlex.split(self.arguments.replace("{}", "{{}}"))]


def steps(tool: str, *lines: str, at: str = "--bootstrap-server {bootstrap} ") -> list[Step]:
    """One tool, many times."""
    return [Step(tool, at + line) for line in lines]
