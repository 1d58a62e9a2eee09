from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.disk import DiskFull
from barnabas.core.errors import StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import checkpoints, names
from barnabas.log.checkpoints import CorruptCheckpoint, MetaProperties

T = TypeVar("T")
PATH = names.RECOVERY_POINT_CHECKPOINT
TOPIC_ID = UUID("abe398a3-796b-4f8e-94a8-0c368956484c")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def disk_with(path: str, content: bytes | str) -> MemoryDisk:
    disk = MemoryDisk()
    data = content.encode() if isinstance(content, str) else content
    run(checkpoints.write_atomically(disk, path, data))
    return disk


def content(disk: MemoryDisk, path: str) -> bytes | None:
    return run(checkpoints.read_whole(disk, path))


# --- the bytes, as Apache Kafka 4.3.0 writes them


def test_offset_checkpoint() -> None:
    disk = MemoryDisk()
    offsets = {("__transaction_state", 32): 0, ("t", 0): 23}
    run(checkpoints.write_offset_checkpoint(disk, PATH, offsets))
    assert content(disk, PATH) == b"0\n2\n__transaction_state 32 0\nt 0 23\n"
    assert run(checkpoints.read_offset_checkpoint(disk, PATH)) == offsets
    run(checkpoints.write_offset_checkpoint(disk, PATH, {}))
    assert content(disk, PATH) == b"0\n0\n"


def test_leader_epochs() -> None:
    disk = MemoryDisk()
    run(checkpoints.write_leader_epochs(disk, "x", [(0, 0), (3, 17)]))
    assert content(disk, "x") == b"0\n2\n0 0\n3 17\n"
    assert run(checkpoints.read_leader_epochs(disk, "x")) == [(0, 0), (3, 17)]


def test_partition_metadata() -> None:
    written_by_kafka = b"version: 0\ntopic_id: q-OYo3lrT46UqAw2iVZITA"
    disk = disk_with("x", written_by_kafka)
    assert run(checkpoints.read_partition_metadata(disk, "x")) == TOPIC_ID
    run(checkpoints.write_partition_metadata(disk, "x", TOPIC_ID))
    assert content(disk, "x") == written_by_kafka
    assert run(checkpoints.read_partition_metadata(disk, "absent")) is None


def test_clean_shutdown() -> None:
    disk = MemoryDisk()
    assert run(checkpoints.read_clean_shutdown(disk)) is None
    run(checkpoints.write_clean_shutdown(disk, 12))
    assert content(disk, names.CLEAN_SHUTDOWN) == b'{"version":0,"brokerEpoch":12}'
    assert run(checkpoints.read_clean_shutdown(disk)) == (12,)
    run(checkpoints.remove_clean_shutdown(disk))
    assert run(checkpoints.read_clean_shutdown(disk)) is None
    run(checkpoints.remove_clean_shutdown(disk))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"version":0}', '{"brokerEpoch":"x"}', '{"brokerEpoch":true}']
)
def test_a_clean_stop_is_clean_even_if_the_file_says_nothing(text: str) -> None:
    assert run(checkpoints.read_clean_shutdown(disk_with(names.CLEAN_SHUTDOWN, text))) == (-1,)


def test_meta_properties() -> None:
    disk = disk_with(
        names.META_PROPERTIES,
        "#\n#Mon Nov 16 03:07:47 UTC 2026\nnode.id=1\ndirectory.id=HZJx7cqpua_mtzJh2cpxCg\n"
        "version=1\ncluster.id=YXC51nfzQIWjDVTxGRcu1Q\n",
    )
    meta = run(checkpoints.read_meta_properties(disk))
    assert meta == MetaProperties("YXC51nfzQIWjDVTxGRcu1Q", 1, UUID("1d9271ed-caa9-b9af-e6b7-3261d9ca710a"))
    run(checkpoints.write_meta_properties(disk, meta))
    assert content(disk, names.META_PROPERTIES) == (
        b"#\ncluster.id=YXC51nfzQIWjDVTxGRcu1Q\ndirectory.id=HZJx7cqpua_mtzJh2cpxCg\nnode.id=1\nversion=1\n"
    )
    assert run(checkpoints.read_meta_properties(MemoryDisk())) is None


@given(
    cluster_id=st.text(st.characters(min_codepoint=33, max_codepoint=126)), node_id=st.integers(0, 2**31 - 1)
)
def test_meta_properties_survive_the_way_through_the_file(cluster_id: str, node_id: int) -> None:
    disk, meta = MemoryDisk(), MetaProperties(cluster_id, node_id, None)
    run(checkpoints.write_meta_properties(disk, meta))
    assert run(checkpoints.read_meta_properties(disk)) == meta


@given(st.uuids())
def test_ids_survive_the_way_through_text(value: UUID) -> None:
    text = checkpoints.uuid_to_text(value)
    assert len(text) == 22
    assert checkpoints.uuid_from_text(text) == value


TOPIC_NAMES = st.text("abc._-09", min_size=1, max_size=9)


@given(st.dictionaries(st.tuples(TOPIC_NAMES, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)))
def test_offsets_survive_the_way_through_the_file(offsets: dict[tuple[str, int], int]) -> None:
    disk = MemoryDisk()
    run(checkpoints.write_offset_checkpoint(disk, PATH, offsets))
    assert run(checkpoints.read_offset_checkpoint(disk, PATH)) == offsets


# --- what is missing, and what is wrong


@pytest.mark.parametrize("text", [None, "", "0\n", "0\n0\n"])
def test_a_missing_or_empty_checkpoint_has_no_entries(text: str | None) -> None:
    disk = MemoryDisk() if text is None else disk_with(PATH, text)
    assert run(checkpoints.read_offset_checkpoint(disk, PATH)) == {}
    assert run(checkpoints.read_leader_epochs(disk, PATH)) == []


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("1\n0\n", 1, "version 1 is not known"),
        ("x\n0\n", 1, "not a number"),
        ("0\nmany\n", 2, "not a number"),
        ("0\n-1\n", 2, "not a number"),
        ("0\n1\n", 2, "1 entries are announced, 0 follow"),
        ("0\n1\na 0 1\nb 0 1\n", 2, "1 entries are announced, 2 follow"),
        ("0\n1\na 0\n", 3, "'a 0' is malformed"),
        ("0\n1\na 0 1 2\n", 3, "malformed"),
        ("0\n2\na 0 1\na zero 1\n", 4, "'zero' is not a number"),
        ("0\n1\na 0 -1\n", 3, "'-1' is not a number"),
        ("0\n1\n\n", 3, "malformed"),
        (b"0\n1\na 0 \xff\n", 3, "not UTF-8"),
        (b"\0" * 12, 1, "malformed"),
    ],
)
def test_a_corrupt_checkpoint_is_named(text: str | bytes, line: int, reason: str) -> None:
    disk = disk_with(PATH, text)
    with pytest.raises(CorruptCheckpoint, match=reason) as caught:
        run(checkpoints.read_offset_checkpoint(disk, PATH))
    assert f"{disk.describe(PATH)} is corrupt in line {line}: " in str(caught.value)
    assert isinstance(caught.value, StorageError)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("version: 0\n", 1),
        ("version: 1\ntopic_id: q-OYo3lrT46UqAw2iVZITA", 1),
        ("topic_id: q-OYo3lrT46UqAw2iVZITA\nversion: 0", 1),
        ("version: 0\ntopic_id: q-OYo3lrT46UqAw2iVZIT", 2),
        ("version: 0\ntopic_id: q+OYo3lrT46UqAw2iVZITA", 2),
        ("version: 0\ntopic_id:", 2),
        ("version: 0\ntopic_id: q-OYo3lrT46UqAw2iVZITAAAAA", 2),
    ],
)
def test_corrupt_partition_metadata_is_named(text: str, line: int) -> None:
    with pytest.raises(CorruptCheckpoint, match=f"line {line}:"):
        run(checkpoints.read_partition_metadata(disk_with("x", text), "x"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("cluster.id=a\nversion=1\n", "node.id is missing"),
        ("cluster.id=a\nnode.id=1\n", "version is missing"),
        ("cluster.id=a\nnode.id=1\nversion=2\n", "line 3: version 2"),
        ("cluster.id=a\nnode.id=x\nversion=1\n", "line 2: node.id"),
        ("cluster.id=a\nnode.id=1\ndirectory.id=x\nversion=1\n", "line 3: directory.id"),
        ("gibberish\n", "line 1: 'gibberish' is not key=value"),
    ],
)
def test_corrupt_meta_properties_are_named(text: str, reason: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=reason):
        run(checkpoints.read_meta_properties(disk_with(names.META_PROPERTIES, text)))


@given(st.binary(max_size=60))
def test_any_bytes_give_entries_or_the_named_error(data: bytes) -> None:
    try:
        entries = checkpoints.parse_checkpoint(data, "here", list)
    except CorruptCheckpoint:
        return
    assert len(entries) == max(0, len(data.decode().splitlines()) - 2)


# --- crashes and full disks


def test_a_crash_leaves_the_old_contents_or_the_new() -> None:
    old, new = {("t", 0): 1}, {("t", 0): 2, ("u", 1): 3}
    disk = MemoryDisk()
    run(checkpoints.write_offset_checkpoint(disk, PATH, old))
    points: list[MemoryDisk] = []
    disk.before = lambda operation, path: points.append(disk.fork())
    run(checkpoints.write_offset_checkpoint(disk, PATH, new))
    points.append(disk.fork())
    disk.before = None
    seen = set()
    for number, point in enumerate(points):
        for seed in range(20):
            crashed = point.fork()
            crashed.crash_power(SeededRandom(seed))
            found = run(checkpoints.read_offset_checkpoint(crashed, PATH))
            assert found in (old, new)
            seen.add(len(found))
            if number == len(points) - 1:
                assert found == new
            run(checkpoints.write_offset_checkpoint(crashed, PATH, old))
            assert run(checkpoints.read_offset_checkpoint(crashed, PATH)) == old
    assert seen == {1, 2}


def test_a_removed_mark_of_a_clean_stop_does_not_come_back() -> None:
    disk = MemoryDisk()
    run(checkpoints.write_clean_shutdown(disk, 1))
    run(checkpoints.remove_clean_shutdown(disk))
    for seed in range(20):
        crashed = disk.fork()
        crashed.crash_power(SeededRandom(seed))
        assert run(checkpoints.read_clean_shutdown(crashed)) is None


def test_without_sync_nothing_is_synced() -> None:
    disk, operations = MemoryDisk(), list[str]()
    disk.before = lambda operation, path: operations.append(operation)
    run(checkpoints.write_atomically(disk, "x", b"0", sync=False))
    assert not {"sync", "sync_dir"} & set(operations)
    run(checkpoints.write_atomically(disk, "x", b"0"))
    assert {"sync", "sync_dir"} < set(operations)


@pytest.mark.parametrize("operation", ["append", "sync", "rename"])
def test_a_full_disk_leaves_the_old_contents(operation: str) -> None:
    disk = MemoryDisk()
    run(checkpoints.write_offset_checkpoint(disk, PATH, {("t", 0): 1}))
    disk.fail(operation, errno.ENOSPC)
    with pytest.raises(DiskFull):
        run(checkpoints.write_offset_checkpoint(disk, PATH, {("t", 0): 2}))
    disk.heal()
    assert run(checkpoints.read_offset_checkpoint(disk, PATH)) == {("t", 0): 1}
    run(checkpoints.write_offset_checkpoint(disk, PATH, {("t", 0): 3}))
    assert run(checkpoints.read_offset_checkpoint(disk, PATH)) == {("t", 0): 3}
