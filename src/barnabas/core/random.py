"""The randomness seam: jitter, ids and the choices of the simulator all come from here."""

from __future__ import annotations

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
