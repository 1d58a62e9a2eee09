"""What a checker says: which promise was broken, when, and how that shows."""

from __future__ import annotations

from typing import NamedTuple


class Violation(NamedTuple):
    checker: str
    at: float  # virtual time of the event that shows it
    what: str  # where, and what was seen against what was promised

    def __str__(self) -> str:
        return f"{self.checker}: at {self.at:.3f} s: {self.what}"
