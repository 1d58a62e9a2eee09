"""An immutable mapping with cheap new versions: 256 dictionaries, shared except for changed ones.

A version is made through a `Draft`, which copies a shard when it is first written to. With 100,000 keys a
shard has about 400, so one change takes a few microseconds, independent of the total size. The shard of a key
is computed from its bytes and never from `hash`, so that the order of iteration is the same in every process:
by shard, and within a shard in the order of insertion. Equality does not depend on that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Generic, TypeVar
from zlib import crc32

K = TypeVar("K")
V = TypeVar("V")

SHARDS = 256
_EMPTY: dict[Any, Any] = {}
_NO_SHARDS: tuple[dict[Any, Any], ...] = (_EMPTY,) * SHARDS


def shard_of_text(text: str) -> int:
    """The shard of a name."""
    return crc32(text.encode(errors="surrogatepass")) % SHARDS


class ShardedMap(Generic[K, V]):
    """A version of the mapping; `shard_of` gives the shard of a key, from 0 to 255."""

    __slots__ = ("_shard_of", "_shards", "_size")

    def __init__(self, shard_of: Callable[[K], int]) -> None:
        self._shard_of = shard_of
        self._shards: tuple[dict[K, V], ...] = _NO_SHARDS
        self._size = 0

    def __getitem__(self, key: K) -> V:
        return self._shards[self._shard_of(key)][key]

    def get(self, key: K) -> V | None:
        return self._shards[self._shard_of(key)].get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._shards[self._shard_of(key)]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._shards)

    def values(self) -> Iterator[V]:
        return chain.from_iterable(shard.values() for shard in self._shards)

    def items(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(shard.items() for shard in self._shards)

    def shards(self) -> tuple[Mapping[K, V], ...]:
        """The parts, to iterate in slices without blocking the loop."""
        return self._shards

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShardedMap):
            return NotImplemented
        return self._size == other._size and self._shards == other._shards

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ShardedMap({dict(self.items())!r})"


class Draft(Generic[K, V]):
    """The next version of a mapping under construction."""

    __slots__ = ("_base", "_copied", "_shard_of", "_shards")

    def __init__(self, base: ShardedMap[K, V]) -> None:
        self._base = base
        self._shard_of = base._shard_of
        self._shards: list[dict[K, V]] | None = None
        self._copied: set[int] = set()

    def get(self, key: K) -> V | None:
        shards = self._shards or self._base._shards
        return shards[self._shard_of(key)].get(key)

    def __setitem__(self, key: K, value: V) -> None:
        number = self._shard_of(key)
        if number not in self._copied:
            self._copy(number)
        self._shards[number][key] = value  # type: ignore[index]

    def remove(self, key: K) -> None:
        """Remove a key, if it is there."""
        number = self._shard_of(key)
        if number not in self._copied:
            self._copy(number)
        self._shards[number].pop(key, None)  # type: ignore[index]

    def _copy(self, number: int) -> None:
        if self._shards is None:
            self._shards = list(self._base._shards)
        self._copied.add(number)
        self._shards[number] = self._shards[number].copy()

    def finish(self) -> ShardedMap[K, V]:
        """The next version; the draft must not be written to any more."""
        if self._shards is None:
            return self._base
        made: ShardedMap[K, V] = ShardedMap(self._shard_of)
        made._shards = tuple(self._shards)
        before = self._base._shards
        made._size = self._base._size + sum(
            len(made._shards[number]) - len(before[number]) for number in self._copied
        )
        return made
