"""The contents of a file system in memory, and what a power loss leaves of them.

Every file and directory is kept twice: as it is, and as it is on the medium (`durable`). Changes since the
last sync are a list of pending operations; a sync applies them to the durable copy, and a power loss applies
a random selection of them.

- A file's pending writes and truncations are each kept or lost on their own, and a write may be torn: only
  its head or only its tail arrives. The rest is what was there before, or zeros: a file may grow by bytes
  that never come. Applying the survivors in order covers every reordering too: an older write that would land
  on a newer one looks the same as the newer one lost.
- Names change by creating, moving and removing, each kept or lost as a whole: a moved file is at its old name
  or its new one, never at both or neither. A change that needs a lost one (a name that was never freed) is
  lost with it. A move between directories is durable when both are synced.
- A file is found again only if its name survived, even if its contents were synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

from barnabas.core.random import Random

K = TypeVar("K")


class SparseBytes:
    """Contents of a file; the zeros that a file was extended by take no memory."""

    __slots__ = ("size", "written")

    def __init__(self) -> None:
        self.written = bytearray()
        self.size = 0

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if not data:
            return
        gap = position - len(self.written)
        if gap > 0:
            self.written += bytes(gap)
        self.written[position : position + len(data)] = data
        self.size = max(self.size, len(self.written))

    def truncate(self, size: int) -> None:
        del self.written[size:]
        self.size = size

    def grow(self, size: int) -> None:
        self.size = max(self.size, size)

    def read(self, position: int, size: int) -> bytes:
        size = max(0, min(size, self.size - position))
        data = bytes(self.written[position : position + size])
        return data + bytes(size - len(data))


class Write(NamedTuple):
    """Bytes put into a file."""

    position: int
    data: bytes

    def play(self, onto: SparseBytes) -> None:
        onto.write(self.position, self.data)

    def __deepcopy__(self, memo: object) -> Write:
        return self


class Truncate(NamedTuple):
    """A file cut, or extended with zeros."""

    size: int

    def play(self, onto: SparseBytes) -> None:
        onto.truncate(self.size)

    def __deepcopy__(self, memo: object) -> Truncate:
        return self


class _Node:
    """The place of a file or directory, now and on the medium; a parent of None means unlinked."""

    __slots__ = ("durable_name", "durable_parent", "name", "parent")

    def __init__(self) -> None:
        self.parent: DirectoryNode | None = None
        self.name = ""
        self.durable_parent: DirectoryNode | None = None
        self.durable_name = ""

    @property
    def path(self) -> str:
        parts = []
        node: _Node | None = self
        while node is not None and node.parent is not None:
            parts.append(node.name)
            node = node.parent
        return "/".join(reversed(parts))

    def is_within(self, other: _Node) -> bool:
        node: _Node | None = self
        while node is not None and node is not other:
            node = node.parent
        return node is other


class FileNode(_Node):
    """A file, apart from its names and handles."""

    __slots__ = ("content", "durable", "modified_ms", "pending", "pins", "unsyncable", "version")

    def __init__(self) -> None:
        super().__init__()
        self.content = SparseBytes()
        self.durable = SparseBytes()
        self.pending: list[Write | Truncate] = []
        self.pins = 0
        self.unsyncable = False
        self.modified_ms = 0
        self.version = 0  # of the contents

    def do(self, operation: Write | Truncate) -> None:
        self.version += 1
        operation.play(self.content)
        self.pending.append(operation)

    def sync(self) -> None:
        for operation in self.pending:
            operation.play(self.durable)
        self.pending.clear()

    def lose_power(self, random: Random) -> None:
        """Keep what is durable and a random selection of the rest, which is durable from then on."""
        self.version += 1
        quarters = random.below(5)
        for operation in self.pending:
            if random.below(4) < quarters:
                operation.play(self.durable)
            elif isinstance(operation, Write) and random.below(2):
                _torn(operation, random).play(self.durable)
                if random.below(2):
                    self.durable.grow(operation.position + len(operation.data))
        self.pending.clear()
        self.content.written = bytearray(self.durable.written)
        self.content.size = self.durable.size


def _torn(write: Write, random: Random) -> Write:
    """The head or the tail of a write, possibly empty, never the whole."""
    if not write.data:
        return write
    cut = random.below(len(write.data))
    if random.below(2):
        return Write(write.position, write.data[:cut])
    return Write(write.position + cut + 1, write.data[cut + 1 :])


class DirectoryNode(_Node):
    """A directory: names and their files or directories."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileNode | DirectoryNode


class Place(NamedTuple):
    """A name in a directory."""

    directory: DirectoryNode
    name: str


class NameChange:
    """A node created (no source), removed (no target) or moved; pending until its directories are synced."""

    __slots__ = ("node", "replaced", "source", "target", "unsynced")

    def __init__(self, node: Node, source: Place | None, target: Place | None, replaced: Node | None) -> None:
        self.node: Final = node
        self.source: Final = source
        self.target: Final = target
        self.replaced: Final = replaced
        self.unsynced = list(dict.fromkeys(place.directory for place in (source, target) if place))

    def touches(self) -> set[object]:
        parts = (self.node, self.source, self.target, self.replaced)
        return {part for part in parts if part is not None}

    def builds_on(self) -> set[object]:
        """What a later change may touch only once this one is durable: also the directory of its source."""
        return self.touches() | {self.source.directory} if self.source else self.touches()


class Pending:
    """Pending name changes in order, indexed by the directories they wait for and by what they touch."""

    def __init__(self) -> None:
        self._changes: dict[int, NameChange] = {}
        self._last = 0
        self._waiting_for: dict[DirectoryNode, dict[int, NameChange]] = {}
        self._touching: dict[object, dict[int, NameChange]] = {}

    def __iter__(self) -> Iterator[NameChange]:
        return iter(self._changes.values())

    def add(self, change: NameChange) -> None:
        self._last += 1
        self._changes[self._last] = change
        for directory in change.unsynced:
            self._waiting_for.setdefault(directory, {})[self._last] = change
        for part in change.builds_on():
            self._touching.setdefault(part, {})[self._last] = change

    def synced(self, directory: DirectoryNode) -> list[NameChange]:
        """Take out changes that waited only for `directory`, and the earlier ones on which they build."""
        found: dict[int, NameChange] = {}
        for number, change in self._waiting_for.pop(directory, {}).items():
            change.unsynced = [waited for waited in change.unsynced if waited is not directory]
            if not change.unsynced:
                found[number] = change
        left = list(found.items())
        while left:
            number, change = left.pop()
            for part in change.touches():
                for earlier, other in self._touching.get(part, {}).items():
                    if earlier < number and earlier not in found:
                        found[earlier] = other
                        left.append((earlier, other))
        for number, change in found.items():
            self._forget(number, change)
        return [change for _, change in sorted(found.items(), key=lambda item: item[0])]

    def _forget(self, number: int, change: NameChange) -> None:
        del self._changes[number]
        for directory in change.unsynced:
            _drop(self._waiting_for, directory, number)
        for part in change.builds_on():
            _drop(self._touching, part, number)

    def clear(self) -> None:
        self._changes.clear()
        self._waiting_for.clear()
        self._touching.clear()


def _drop(index: dict[K, dict[int, NameChange]], key: K, number: int) -> None:
    numbers = index[key]
    del numbers[number]
    if not numbers:
        del index[key]


class Tree:
    """A root directory and the name changes that are not durable yet."""

    def __init__(self) -> None:
        self.root = DirectoryNode()
        self._pending = Pending()

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for part in split(path):
            node = node.entries.get(part) if isinstance(node, DirectoryNode) else None
        return node

    def files(self) -> Iterator[FileNode]:
        """Every file that has a name, in the order of the names."""
        return (node for node in _walk(self.root) if isinstance(node, FileNode))

    def change(self, node: Node, source: Place | None, target: Place | None) -> None:
        """Create, move or remove `node`, replacing what stands at the target."""
        if source:
            del source.directory.entries[source.name]
        replaced = target.directory.entries.get(target.name) if target else None
        if replaced:
            replaced.parent = None
        node.parent = target.directory if target else None
        if target:
            node.name = target.name
            target.directory.entries[target.name] = node
        self._pending.add(NameChange(node, source, target, replaced))

    def sync(self, directory: DirectoryNode) -> None:
        """Make the changes in `directory` durable, and the earlier changes on which they build."""
        for change in self._pending.synced(directory):
            _settle(change)

    def sync_all(self) -> None:
        """Make everything durable."""
        for change in self._pending:
            _settle(change)
        self._pending.clear()
        for file in self.files():
            file.sync()

    def lose_power(self, random: Random) -> None:
        """Keep what is durable and a random selection of the rest, which is durable from then on."""
        quarters = random.below(5)
        for change in self._pending:
            if random.below(4) < quarters and _possible(change):
                _settle(change)
        self._pending.clear()
        _restore(self.root)
        for file in self.files():
            file.lose_power(random)


def split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _walk(directory: DirectoryNode) -> Iterator[Node]:
    for _, node in sorted(directory.entries.items()):
        yield node
        if isinstance(node, DirectoryNode):
            yield from _walk(node)


def _possible(change: NameChange) -> bool:
    """Whether a surviving change still applies after earlier ones were lost."""
    if change.target is None:
        node = change.node
        empty = isinstance(node, FileNode) or not node.durable
        return empty and (node.durable_parent, node.durable_name) == change.source
    there = change.target.directory.durable.get(change.target.name)
    if there is not None and there is not change.node:
        if change.source is None or (isinstance(there, DirectoryNode) and there.durable):
            return False
        if isinstance(there, DirectoryNode) is not isinstance(change.node, DirectoryNode):
            return False
    above: _Node | None = change.target.directory
    while above is not None:
        if above is change.node:
            return False
        above = above.durable_parent
    return True


def _settle(change: NameChange) -> None:
    """Apply a change to the medium."""
    _detach(change.node)
    if change.target:
        directory, name = change.target
        if name in directory.durable:
            _detach(directory.durable[name])
        directory.durable[name] = change.node
        change.node.durable_parent, change.node.durable_name = directory, name


def _detach(node: Node) -> None:
    if node.durable_parent is not None:
        del node.durable_parent.durable[node.durable_name]
        node.durable_parent = None


def _restore(directory: DirectoryNode) -> None:
    """Reset the names below `directory` to those on the medium."""
    directory.entries = dict(directory.durable)
    for name, node in directory.entries.items():
        node.parent, node.name = directory, name
        if isinstance(node, DirectoryNode):
            _restore(node)
