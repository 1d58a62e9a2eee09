"""Whether the output of something that copies a topic exactly once is what it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

SHOWN = 5


def output_of(client: str) -> str:
    """The topic to which it copies the input."""
    return f"output-{client}"


def differences(name: str, expected: Sequence[str], found: Sequence[str]) -> list[str]:
    """Where an output is not the input, once and in order."""
    if list(expected) == list(found):
        return []
    wanted, there = Counter(expected), Counter(found)
    return [
        f"{name} has {len(found)} records, where {len(expected)} are committed; missing "
        f"{[each for each in wanted if each not in there][:SHOWN]}, strange "
        f"{[each for each in there if each not in wanted][:SHOWN]}, "
        f"twice {[each for each in wanted if there[each] > wanted[each]][:SHOWN]}"
    ]
