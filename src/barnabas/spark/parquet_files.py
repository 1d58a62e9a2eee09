"""Writes a DataFrame to Parquet files beside a Delta table, in the tasks: no data goes through the driver.

Files have unique names, and mean nothing until the table's log names them: files of a failed or repeated
attempt are never read, and are removed by the next vacuum. Vacuum ignores staged files: a job that fails
removes its own (only if the driver dies, they remain in `_barnabas`, where everything older than a job may be
deleted). The list of files is returned in a manifest, which Spark's commit of the job writes after all tasks
have ended. All files are in one flat directory: the values of a Delta table's partition columns are in its
log, not in paths.

This is a Python data source and not mapInArrow, because that requires pandas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs as arrow_fs
from pyarrow import parquet
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.core.clock import SystemClock
from barnabas.core.random import SystemRandom
from barnabas.spark.parquet_stats import file_stats, partition_text
from barnabas.spark.table_storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FILE_BYTES = 128 * 1024 * 1024  # a file that has become larger than this is closed, and another one is begun
BUFFER_BYTES = 32 * 1024 * 1024  # the buffered rows of all files of a task, before they become row groups
MAX_OPEN = 200  # open files of a task, approximately; later rows of a closed one begin a new file
_FORMAT = "barnabas_parquet_files"
_ORDER = "orderWithSecrets"  # Spark redacts the value of an option with this name
_OWN = "_barnabas"  # a directory that readers and vacuum ignore


class WrittenFile(NamedTuple):
    """A file, with its attributes in the log of a Delta table."""

    path: str
    size_bytes: int
    partition_values: dict[str, str | None]
    modified_ms: int
    stats: str


class Order(NamedTuple):
    """The instructions for the tasks."""

    storage: Storage
    prefix: str
    partition_by: tuple[str, ...]
    manifest: str


def write_files(
    df: DataFrame, storage: Storage, *, partition_by: tuple[str, ...] = (), is_staged: bool = False
) -> list[WrittenFile]:
    """Run the DataFrame once, and write its rows to new files (staged ones apart from the table's); returns
    them."""
    unique = SystemRandom().uuid()
    prefix = f"{_OWN}/{unique}-" if is_staged else f"part-{unique}-"
    order = Order(storage, prefix, partition_by, f"{_OWN}/{unique}.json")
    storage.open().create_dir(_OWN)
    df.sparkSession.dataSource.register(ParquetFiles)
    files = storage.open()
    try:
        df.write.format(_FORMAT).mode("append").option(_ORDER, json.dumps(order)).save()
    except Exception:
        if is_staged:
            _remove(files, prefix)
        raise
    with files.open_input_file(order.manifest) as source:
        found = json.loads(source.read())
    files.delete_file(order.manifest)
    return [WrittenFile(*each) for each in found]


def _remove(files: Any, prefix: str) -> None:
    """Remove all files that a job has staged so far."""
    for found in files.get_file_info(arrow_fs.FileSelector(_OWN)):
        if found.path.startswith(prefix):
            files.delete_file(found.path)


class ParquetFiles(DataSource):
    """The format with which Spark runs the tasks below."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer, which Spark sends to the tasks."""
        storage, prefix, partition_by, manifest = json.loads(self.options[_ORDER])
        order = Order(Storage(*storage), prefix, tuple(partition_by), manifest)
        return FilesWriter(order, to_arrow_schema(schema, timezone="UTC"))


class Written(WriterCommitMessage):
    """The files that a task has written."""

    def __init__(self, files: list[WrittenFile]) -> None:
        self.files = files


class FilesWriter(DataSourceArrowWriter):
    """Writes in the tasks; the driver writes the manifest."""

    def __init__(self, order: Order, schema: pa.Schema) -> None:
        self._order = order
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows of a task."""
        outputs = _Outputs(self._order, self._schema)
        for batch in iterator:
            if batch.num_rows:
                outputs.add(pa.Table.from_batches([batch]))
        return Written(outputs.close())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have ended: write the list of their files."""
        found = [file for each in messages if isinstance(each, Written) for file in each.files]
        with self._order.storage.open().open_output_stream(self._order.manifest) as sink:
            sink.write(json.dumps(found).encode())


class _Outputs:
    """The files that a task is writing, one for each combination of partition values."""

    def __init__(self, order: Order, schema: pa.Schema) -> None:
        self._order = order
        self._schema = schema
        self._files = order.storage.open()
        self._open: dict[tuple[Any, ...], _Output] = {}
        self._held_bytes = 0
        self._done: list[WrittenFile] = []

    def add(self, table: pa.Table) -> None:
        table = table.cast(self._schema)  # Spark's timestamps have the time zone of its session
        for values, rows in _split(table, self._order.partition_by):
            self._output(values).held.append(rows.drop_columns(list(self._order.partition_by)))
        self._held_bytes += table.nbytes
        if self._held_bytes >= BUFFER_BYTES:
            self._flush()

    def close(self) -> list[WrittenFile]:
        self._flush()
        self._done += [each.close() for each in self._open.values()]
        return self._done

    def _output(self, values: tuple[Any, ...]) -> _Output:
        if values not in self._open:
            path = f"{self._order.prefix}{SystemRandom().uuid()}.parquet"
            by = self._order.partition_by
            texts = {name: partition_text(value) for name, value in zip(by, values, strict=True)}
            self._open[values] = _Output(self._files, path, texts)
        return self._open[values]

    def _flush(self) -> None:
        limit_bytes = FILE_BYTES if len(self._open) <= MAX_OPEN else 0
        for values, each in list(self._open.items()):
            if each.flush() >= limit_bytes:
                self._done.append(self._open.pop(values).close())
        self._held_bytes = 0


class _Output:
    """One file."""

    def __init__(self, files: Any, path: str, values: dict[str, str | None]) -> None:
        self._files = files
        self._path = path
        self._values = values
        self._sink: Any = None
        self._writer: Any = None
        self.held: list[pa.Table] = []

    def flush(self) -> int:
        """Write the buffered rows as a row group; returns the size of the file."""
        if self.held:
            table = pa.concat_tables(self.held)
            if self._writer is None:
                self._sink = self._files.open_output_stream(self._path)
                self._writer = parquet.ParquetWriter(self._sink, table.schema)
            self._writer.write_table(table)
            self.held.clear()
        size: int = self._sink.tell()
        return size

    def close(self) -> WrittenFile:
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        stats = json.dumps(file_stats(self._writer.writer.metadata))
        return WrittenFile(self._path, size, self._values, SystemClock().wall_ms(), stats)


def _split(table: pa.Table, by: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each combination of partition values, in their order."""
    if not by:
        yield (), table
        return
    ordered = table.sort_by([(name, "ascending") for name in by])
    groups = ordered.group_by(list(by), use_threads=False).aggregate([([], "count_all")])
    start = 0
    for group in groups.to_pylist():
        yield tuple(group[name] for name in by), ordered.slice(start, group["count_all"])
        start += group["count_all"]
