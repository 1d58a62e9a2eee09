"""The files of a disk that have handles, by path.

A path has one node, shared by all its handles, so that they agree on the file's size. A node follows its file
through renames. Once the file is removed or replaced, the node is reachable only through its handles: pinned
readers had their descriptor opened first and keep it, all others find the file missing.
"""

from __future__ import annotations

import os
from pathlib import Path

from barnabas.core.descriptors import OPEN_FLAGS, DescriptorPool, OsNode
from barnabas.core.disk import storage_errors


class OpenFiles:
    """Nodes by directory and name, and their descriptors."""

    def __init__(self, root: str | Path, max_open: int) -> None:
        self.root = os.path.abspath(root)
        self.closed = False
        self._pool = DescriptorPool(max_open)
        self._nodes: dict[str, dict[str, OsNode]] = {}
        self._nested = 0  # how many directories are inside others

    def describe(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def get(self, path: str) -> OsNode | None:
        directory, name = os.path.split(path)
        nodes = self._nodes.get(directory)
        return nodes.get(name) if nodes else None

    def add(self, node: OsNode) -> None:
        directory, name = os.path.split(node.path)
        if directory not in self._nodes:
            self._nodes[directory] = {}
            self._nested += "/" in directory
        self._nodes[directory][name] = node

    def at(self, path: str) -> list[OsNode]:
        """The node at `path`, or all nodes below that directory."""
        node = self.get(path)
        if node is not None:
            return [node]
        found = list(self._nodes.get(path, {}).values())
        if self._nested:  # rare: a log directory has files and directories of files
            below = f"{path}/"
            inside = (nodes for name, nodes in self._nodes.items() if name.startswith(below))
            found += [node for nodes in inside for node in nodes.values()]
        return found

    def open_descriptor(self, node: OsNode, flags: int = OPEN_FLAGS) -> None:
        where = self.describe(node.path)
        with storage_errors("open", where):
            self._pool.open(node, where, flags)

    def keep_pinned(self, nodes: list[OsNode]) -> None:
        """Before names are removed: open the descriptors of pinned nodes while their path is still valid."""
        for node in nodes:
            if node.pins and node.fd < 0:
                self.open_descriptor(node)

    def move(self, node: OsNode, path: str) -> None:
        self._forget(node)
        node.path = path
        self.add(node)

    def unlink(self, node: OsNode) -> None:
        """The file has lost its name."""
        self._forget(node)
        node.linked = False
        self.settle(node)

    def settle(self, node: OsNode) -> None:
        """Release what is not needed any more of a node that was closed or removed."""
        if node.busy or (not self.closed and (node.pins or (node.handles and node.linked))):
            return
        self._pool.close(node)
        # A node whose sync failed is kept: later handles on the file must not report it as durable.
        if not node.handles and not (node.unsyncable and node.linked):
            self._forget(node)

    def close(self) -> None:
        self.closed = True
        for nodes in self._nodes.values():
            for node in nodes.values():
                node.slow = True
        self._pool.close_idle()

    @property
    def has_unsyncable(self) -> bool:
        """Whether the sync of a file has failed."""
        return any(node.unsyncable for nodes in self._nodes.values() for node in nodes.values())

    @property
    def descriptors(self) -> int:
        """The number of open descriptors."""
        return len(self._pool)

    def _forget(self, node: OsNode) -> None:
        directory, name = os.path.split(node.path)
        nodes = self._nodes.get(directory, {})
        if nodes.get(name) is node:
            del nodes[name]
            if not nodes:
                del self._nodes[directory]
                self._nested -= "/" in directory
