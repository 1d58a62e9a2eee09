"""A coordinator whose partition moves between log directories while it is used, or whose disk fails."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import WIRE_ERRORS
from tests.broker.test_directories import Site, alter
from tests.support.raw_client import RawClient, wait_until
from tests.support.raw_offsets import At, commit, fetch, find
from tests.support.raw_transactions import COMMITTED, Transactor, latest

GROUP = "g"
OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
ONE_EACH = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}

# how a coordinator answers while its partition is taken from it and loaded again
UNAVAILABLE = {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, **ONE_EACH)
    made.start()
    yield made
    made.broker.stop()


def committed(client: RawClient, offset: int) -> str:
    (topic,) = commit(client, 2, GROUP, [("t", [At(0, offset)])]).topics
    return WIRE_ERRORS[topic.partitions[0].error_code].name


def found(client: RawClient) -> int:
    """The committed offset, from a coordinator that may have to load it first."""
    topics: list[Any] = []

    def is_told() -> bool:
        answer = fetch(client, 2, GROUP, [("t", [0])])
        assert WIRE_ERRORS[answer.error_code].name in {"NONE", *UNAVAILABLE}
        topics[:] = answer.topics
        return not answer.error_code

    wait_until(is_told, "the offset")
    offset: int = topics[0].partitions[0].committed_offset
    return offset


def test_commits_go_on_while_the_partition_moves(site: Site) -> None:
    site.create("t")
    with RawClient(site.broker.port) as client:
        find(client, GROUP)
        assert committed(client, 1) == "NONE"
        (before,) = site.told(OFFSETS)
        target = "a" if before != "a" else "b"
        assert alter(site, OFFSETS, 0, target) == "NONE"
        offset, said = 1, set()
        while site.told(OFFSETS) != target:
            answer = committed(client, offset + 1)
            said.add(answer)
            offset += answer == "NONE"
            assert found(client) in (offset, offset + 1)  # what was not acknowledged may count or not
        assert said <= {"NONE", *UNAVAILABLE}
        wait_until(lambda: committed(client, 1000) == "NONE", "a commit after the move")
        assert found(client) == 1000
    site.broker.kill()
    site.start()
    with RawClient(site.broker.port) as client:
        find(client, GROUP)
        assert found(client) == 1000


def test_a_transaction_goes_on_while_its_coordinator_moves(site: Site) -> None:
    site.create("t")
    with RawClient(site.broker.port) as client:
        one = Transactor(client, "x")
        assert one.produce("t", b"a") == "NONE"
        (before,) = site.told(STATE)
        target = "a" if before != "a" else "b"
        assert alter(site, STATE, 0, target) == "NONE"
        wait_until(lambda: site.told(STATE) == target, "it has moved")
        wait_until(lambda: one.end(commit=True) == "NONE", "the end of the transaction")
        wait_until(lambda: latest(client, "t", COMMITTED) == 2, "its marker")


def test_a_coordinator_whose_disk_fails_says_so_and_is_there_again_after_a_restart() -> None:
    site = Site(None, **ONE_EACH)
    site.start()
    try:
        site.create("t", 1)
        with RawClient(site.broker.port) as client:
            find(client, GROUP)
            assert committed(client, 5) == "NONE"
            assert alter(site, OFFSETS, 0, "c") == "NONE"  # without the first there is no node
            wait_until(lambda: site.told(OFFSETS) == Path(site.memory_name("c")).name, "it is there")
            disk = site.broker._disks["c"]
            disk.fail("append", errno.EIO)
            disk.fail("sync", errno.EIO)
            disk.fail("read", errno.EIO)
            wait_until(lambda: committed(client, 6) == "COORDINATOR_NOT_AVAILABLE", "the failure")
            assert WIRE_ERRORS[fetch(client, 2, GROUP, None).error_code].name == "COORDINATOR_NOT_AVAILABLE"
        site.broker.stop()
        disk.heal()
        site.start()
        with RawClient(site.broker.port) as client:
            find(client, GROUP)
            assert found(client) == 5
    finally:
        site.broker.stop()
