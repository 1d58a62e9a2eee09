"""The randomness interface, used for jitter, ids and the choices of the simulator."""

from __future__ import annotations

import random
import secrets
from typing import Protocol
from uuid import UUID


class Random(Protocol):
    """A source of randomness, of the system or of a seed."""

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound - 1`."""

    def uniform(self) -> float:
        """A number from 0 up to, not including, 1."""

    def bytes(self, count: int) -> bytes:
        """That many random bytes."""

    def uuid(self) -> UUID:
        """A random (version 4) UUID."""


def random_id(random: Random) -> UUID:
    """An id that tools take as text: none begins with `-`, which they would read as an option."""
    drawn = random.uuid()
    is_dash = drawn.bytes[0] >> 2 == 62  # in base64url
    return UUID(int=drawn.int ^ 1 << 127) if is_dash else drawn


class SystemRandom:
    """The operating system's randomness, good enough for ids and secrets."""

    def below(self, bound: int) -> int:
        return secrets.randbelow(bound)

    def uniform(self) -> float:
        return secrets.randbits(53) / (1 << 53)

    def bytes(self, count: int) -> bytes:
        return secrets.token_bytes(count)

    def uuid(self) -> UUID:
        return UUID(bytes=secrets.token_bytes(16), version=4)


class SeededRandom:
    """The same numbers from the same seed, on every Python version and platform, under any PYTHONHASHSEED.

    Everything is drawn from `getrandbits` of the Mersenne Twister, which has not changed since Python 2.3.
    The library's derived methods (`randrange`, `shuffle`) have changed, so none of them is used. Not for
    secrets.
    """

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"a seed is not negative: {seed}")
        self.seed = seed
        self._bits = random.Random(seed).getrandbits

    def below(self, bound: int) -> int:
        if bound <= 0:
            raise ValueError(f"no whole number is at least 0 and below {bound}")
        width = bound.bit_length()
        while (number := self._bits(width)) >= bound:
            pass
        return number

    def uniform(self) -> float:
        return self._bits(53) / (1 << 53)

    def bytes(self, count: int) -> bytes:
        return self._bits(8 * count).to_bytes(count, "little") if count else b""

    def uuid(self) -> UUID:
        return UUID(bytes=self.bytes(16), version=4)
