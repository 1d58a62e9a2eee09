"""The storage of a Delta table: a directory, or an object store with an address that `deltalake` takes.

Tasks and driver open the same storage, each for itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs as arrow_fs


class Storage(NamedTuple):
    """The address of a table, and the options of its object store."""

    uri: str
    options: Mapping[str, str]

    def open(self) -> Any:
        """The table's directory as a file system of Arrow."""
        if not _is_address(self.uri):
            return arrow_fs.SubTreeFileSystem(self.uri, arrow_fs.LocalFileSystem())
        return arrow_fs.PyFileSystem(_handler(self.uri, dict(self.options)))


def storage_of(path: str | Path, options: Mapping[str, str] | None) -> Storage:
    """The storage; a missing local directory is created."""
    uri = os.fspath(path)
    if not _is_address(uri):
        uri = os.path.abspath(uri)  # tasks have other working directories
        os.makedirs(uri, exist_ok=True)
    return Storage(uri, dict(options or {}))


def _is_address(uri: str) -> bool:
    return "://" in uri


def _handler(uri: str, options: dict[str, str]) -> Any:
    from deltalake.fs import DeltaStorageHandler

    class Handler(DeltaStorageHandler):
        """Converts Arrow's buffers to bytes for deltalake's streams."""

        def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
            return pa.PythonFile(_BytesAlone(self._handler.open_output_stream(path, metadata)), mode="w")

    return Handler(uri, options)


class _BytesAlone:
    """A stream to write to, in the form of a Python file for Arrow."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._written = 0

    def write(self, data: Any) -> int:
        written = bytes(data)
        self._stream.write(written)
        self._written += len(written)
        return len(written)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self.closed = True
