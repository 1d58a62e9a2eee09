"""Choices from a seed: every part of a simulation has a stream of its own, named after it.

So a draw more in one place changes nothing elsewhere, and a seed stays recognisable as the code changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import exp, log
from typing import TypeVar

from barnabas.core.random import Random, SeededRandom

T = TypeVar("T")


def stream(seed: int, name: str) -> SeededRandom:
    """The randomness of one part of the simulation."""
    return SeededRandom(int.from_bytes(blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "big"))


def node_stream(seed: int, node: int, name: str) -> SeededRandom:
    """The randomness of one part of one node's machine. Node 1 draws from the stream of that name, however
    many nodes there are; every other node has one of its own."""
    return stream(seed, name if node == 1 else f"{name} of node {node}")


def pick(random: Random, choices: Sequence[T]) -> T:
    return choices[random.below(len(choices))]


def happens(random: Random, probability: float) -> bool:
    return random.uniform() < probability


def between(random: Random, low: float, high: float) -> float:
    return low + (high - low) * random.uniform()


def log_between(random: Random, low: float, high: float) -> float:
    """As often of one order of magnitude as of another."""
    return exp(between(random, log(low), log(high)))
