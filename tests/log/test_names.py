from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log import names
from barnabas.log.names import DirectoryKind, PartitionDirectory

UNIQUE = UUID("c8d2b1a0-1234-4abc-8def-00112233aabb")
TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=249)
SUFFIXES = (
    names.LOG,
    names.INDEX,
    names.TIME_INDEX,
    names.TXN_INDEX,
    names.SNAPSHOT,
    names.LOG + names.DELETED,
)


def test_an_offset_has_twenty_digits() -> None:
    assert names.offset_name(170) == "00000000000000000170"
    assert names.parse_offset("00000000000000000170.log", names.LOG) == 170


@given(offset=st.integers(0, names.MAX_OFFSET), suffix=st.sampled_from(SUFFIXES))
def test_offsets_survive_the_way_through_a_name(offset: int, suffix: str) -> None:
    assert names.parse_offset(names.offset_name(offset) + suffix, suffix) == offset


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000170",
        "170.log",
        "00000000000000000170.log.deleted",
        "000000000000000001700.log",
        "-0000000000000000170.log",
        "0000000000000000017x.log",
        "٠0000000000000000170.log",
        "99999999999999999999.log",
        "00000000000000000170.index",
        ".log",
        "",
    ],
)
def test_other_names_are_no_offsets(name: str) -> None:
    assert names.parse_offset(name, names.LOG) is None


@given(topic=TOPICS, partition=st.integers(0, names.MAX_PARTITION), kind=st.sampled_from(DirectoryKind))
def test_directories_survive_the_way_through_a_name(topic: str, partition: int, kind: DirectoryKind) -> None:
    if kind is DirectoryKind.LIVE:
        name = names.partition_directory(topic, partition)
    else:
        name = names.marked_directory(topic, partition, kind, UNIQUE)
    parsed = names.parse_partition_directory(name)
    assert parsed is not None
    assert (parsed.partition, parsed.kind) == (partition, kind)
    assert parsed.topic == topic or (kind in (DirectoryKind.DELETE, DirectoryKind.STRAY) and len(name) == 255)
    assert topic.startswith(parsed.topic)


def test_the_mark_of_a_long_topic_fits_into_a_file_name() -> None:
    topic = "t" * 249
    name = names.marked_directory(topic, 12, DirectoryKind.DELETE, UNIQUE)
    assert name == "t" * 212 + "-12.c8d2b1a012344abc8def00112233aabb-delete"
    assert len(name) == 255
    future = names.marked_directory(topic, 12, DirectoryKind.FUTURE, UNIQUE)
    assert future.startswith(topic + "-12.")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", PartitionDirectory("orders", 0, DirectoryKind.LIVE)),
        ("a-b-7", PartitionDirectory("a-b", 7, DirectoryKind.LIVE)),
        ("a--7", PartitionDirectory("a-", 7, DirectoryKind.LIVE)),
        ("a.b-delete-3", PartitionDirectory("a.b-delete", 3, DirectoryKind.LIVE)),
        ("a.b-3.0123abc-delete", PartitionDirectory("a.b", 3, DirectoryKind.DELETE)),
        ("a-0.0123abc-future", PartitionDirectory("a", 0, DirectoryKind.FUTURE)),
        ("a-0.0123abc-stray", PartitionDirectory("a", 0, DirectoryKind.STRAY)),
        ("__cluster_metadata-0", PartitionDirectory("__cluster_metadata", 0, DirectoryKind.LIVE)),
    ],
)
def test_directories(name: str, expected: PartitionDirectory) -> None:
    assert names.parse_partition_directory(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "-0",
        "orders-",
        "orders-x",
        "orders-01",
        "orders-+1",
        "orders-2147483648",
        "orders-1٠",
        "or ders-1",
        "orders-0.0123abc-deleted",
        "orders-0-delete",
        "orders.0123abc-delete",
        "lost+found",
        ".kafka_cleanshutdown",
        "",
    ],
)
def test_other_names_are_no_partitions(name: str) -> None:
    assert names.parse_partition_directory(name) is None
