"""Delta tables, written exactly once, by batch and as a stream, with `deltalake` alone (no jar).

A write has the name of an application and a version; the commit records both in the table's log, in the same
transaction as the rows. A write whose version is already there is skipped, so a batch that Spark repeats
after a crash (after the commit here, before its own) changes nothing. If two drivers write the same version
at once, one loses: the log refuses its commit.

    write_delta(df, path, "daily", 17)                         rows are added
    merge_delta(changes, path, "key", "daily", 17)             rows replace, or (op = delete) delete, others
    stream.writeStream.foreachBatch(delta_writer(path))        the same as a stream; version = batch id
    stream.writeStream.foreachBatch(delta_merger(path, "key", prepare=ktable_changes))

Tasks write the Parquet files (parquet_files), the driver only commits their names; a MERGE is done by the
driver, from files that the tasks have staged. The path must lead to the same storage everywhere. A table that
does not exist is created; a DataFrame with other columns or types than the table's is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyarrow import dataset  # type: ignore[import-untyped]

from barnabas.spark.columns import names, require
from barnabas.spark.delta_schema import DeltaRefused, check_partitions, check_table, schema_of
from barnabas.spark.parquet_files import WrittenFile, write_files
from barnabas.spark.table_storage import Storage, storage_of
from barnabas.spark.tables import DELETE, OP, UPSERT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BatchWriter = Callable[["DataFrame", int], None]
_QUERY_ID = "sql.streaming.queryId"


def write_delta(
    df: DataFrame,
    path: str | Path,
    app_id: str,
    version: int,
    *,
    partition_by: str | Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> bool:
    """Add the rows, unless this version of the application was written before: then False."""
    by = tuple(names(partition_by))
    require(df, by, "write_delta")
    check_partitions(df.schema, by)
    table, storage = _open(df, path, by, storage_options)
    if _is_done(table, app_id, version):
        return False
    check_table(table, df.schema, by)
    files = write_files(df, storage, partition_by=by)
    with _losing_to_nobody(table, app_id, version) as outcome:
        if files:
            _append(table, files, by, _properties(app_id, version))
    return outcome.is_ours


def merge_delta(
    df: DataFrame,
    path: str | Path,
    keys: str | Sequence[str],
    app_id: str,
    version: int,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> bool:
    """Replace or add the rows by key, unless this version of the application was written before: then False.

    A column `op` makes a row an `upsert` or a `delete` (ktable_changes adds it); it does not go into the
    table. Keys must be unique and not null.
    """
    by = names(keys)
    require(df, by, "merge_delta")
    rows = df.drop(OP)
    table, storage = _open(rows, path, (), storage_options)
    if _is_done(table, app_id, version):
        return False
    check_table(table, rows.schema, tuple(table.metadata().partition_columns))
    files = write_files(df, storage, is_staged=True)
    try:
        with _losing_to_nobody(table, app_id, version) as outcome:
            if files:
                _merge(table, storage, files, by, _properties(app_id, version))
    finally:
        for each in files:
            storage.open().delete_file(each.path)
    return outcome.is_ours


def delta_writer(
    path: str | Path,
    name: str = "",
    *,
    partition_by: str | Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> BatchWriter:
    """For foreachBatch: add the rows of every batch, once.

    The application is the query (its id is in the checkpoint, so it survives restarts); `name` distinguishes
    several writes of one query into the same table.
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        is_written = write_delta(
            batch,
            path,
            _app_id(batch, name),
            batch_id,
            partition_by=partition_by,
            storage_options=storage_options,
        )
        if not is_written:
            _run(batch)

    return write


def delta_merger(
    path: str | Path,
    keys: str | Sequence[str],
    name: str = "",
    *,
    prepare: Callable[[DataFrame], DataFrame] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> BatchWriter:
    """For foreachBatch: merge every batch by key, once; `prepare` derives the rows from it, as ktable_changes
    does."""

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch if prepare is None else prepare(batch)
        app_id = _app_id(batch, name)
        if not merge_delta(rows, path, keys, app_id, batch_id, storage_options=storage_options):
            _run(batch)

    return write


def _run(batch: DataFrame) -> None:
    """Run the batch without writing it: a stateful query keeps its state only in a run, and fails without
    one."""
    batch.write.format("noop").mode("overwrite").save()


def _app_id(batch: DataFrame, name: str) -> str:
    query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise DeltaRefused("this is no batch of a stream; use write_delta or merge_delta with an app_id")
    return f"{query_id}/{name}" if name else query_id


def _open(
    df: DataFrame, path: str | Path, by: tuple[str, ...], options: Mapping[str, str] | None
) -> tuple[DeltaTable, Storage]:
    """The table, created if it does not exist."""
    storage = storage_of(path, options)
    uri = storage.uri
    if not DeltaTable.is_deltatable(uri, dict(storage.options)):
        DeltaTable.create(
            uri,
            schema_of(df.schema),
            mode="ignore",
            partition_by=list(by),
            storage_options=dict(storage.options),
        )
    return DeltaTable(uri, storage_options=dict(storage.options)), storage


def _is_done(table: DeltaTable, app_id: str, version: int) -> bool:
    last = table.transaction_version(app_id)
    return last is not None and last >= version


def _properties(app_id: str, version: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(app_id, version)])


class _Outcome:
    """Whether the table accepted this commit."""

    is_ours = True


@contextmanager
def _losing_to_nobody(table: DeltaTable, app_id: str, version: int) -> Iterator[_Outcome]:
    """Ignore the failure of a commit if another driver has written the same version."""
    outcome = _Outcome()
    try:
        yield outcome
    except CommitFailedError:
        table.update_incremental()
        if not _is_done(table, app_id, version):
            raise
        outcome.is_ours = False


def _append(
    table: DeltaTable, files: list[WrittenFile], by: tuple[str, ...], properties: CommitProperties
) -> None:
    table.create_write_transaction(
        [
            AddAction(each.path, each.size_bytes, each.partition_values, each.modified_ms, True, each.stats)
            for each in files
        ],
        "append",
        table.schema(),
        partition_by=list(by),
        commit_properties=properties,
    )


def _merge(
    table: DeltaTable,
    storage: Storage,
    files: list[WrittenFile],
    keys: list[str],
    properties: CommitProperties,
) -> None:
    staged = dataset.dataset([each.path for each in files], filesystem=storage.open(), format="parquet")
    _check_keys(staged, keys)
    if OP in staged.schema.names:
        _check_ops(staged)
    columns = [field.name for field in table.schema().fields]
    same = " AND ".join(f"t.{_quoted(key)} = s.{_quoted(key)}" for key in keys)
    values = {_quoted(name): f"s.{_quoted(name)}" for name in columns}
    merger = table.merge(
        staged.scanner().to_reader(), same, source_alias="s", target_alias="t", commit_properties=properties
    )
    if OP in staged.schema.names:
        is_delete = f"s.{OP} = '{DELETE}'"
        merger = merger.when_matched_delete(is_delete)
        merger = merger.when_matched_update(values, f"NOT ({is_delete})")
        merger = merger.when_not_matched_insert(values, f"NOT ({is_delete})")
    else:
        merger = merger.when_matched_update(values).when_not_matched_insert(values)
    merger.execute()


def _check_keys(staged: Any, keys: list[str]) -> None:
    """Refuse duplicate keys, which would become two rows of the table, and null keys, which match no row."""
    found = staged.to_table(columns=keys)
    for key in keys:
        if found.column(key).null_count:
            raise DeltaRefused(f"merge_delta: {key} is null in some rows; leave them out")
    if found.group_by(keys).aggregate([]).num_rows < found.num_rows:
        raise DeltaRefused(
            f"merge_delta: a key ({', '.join(keys)}) comes more than once; reduce the rows to one a key "
            "first, as ktable_changes does"
        )


def _check_ops(staged: Any) -> None:
    """Refuse other operations: they would be silently skipped, or a delete taken for a row."""
    other = {*staged.to_table(columns=[OP]).column(OP).unique().to_pylist()} - {UPSERT, DELETE}
    if other:
        named = ", ".join(sorted(map(repr, other)))
        raise DeltaRefused(f"merge_delta: {OP} is {named} in some rows; it is {UPSERT!r} or {DELETE!r}")


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
