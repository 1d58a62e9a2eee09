"""`barnabas txn`, on Barnabas and on Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.admin import Admin
from barnabas.core.clock import SystemClock
from barnabas.testing import Broker
from tests.cli.running import Commands
from tests.cli.test_topic import document, error, lines
from tests.client.coordinated import Writer, begin, hang, on

HOUR_MS = 3_600_000


def begun(run: Commands, name: str, partitions: int = 2) -> Writer:
    """A topic, and a transaction of the same name that is open in all its partitions."""
    run.ok("topic", "create", name, "--partitions", partitions)
    return on(run.bootstrap, lambda admin: begin(admin, name, name, range(partitions)))


def test_open_transactions_are_listed_and_described(anywhere: Commands) -> None:
    writer = begun(anywhere, "x-open")
    pattern = ("txn", "list", "--pattern", "x-open.*")
    assert lines(anywhere, *pattern) == [
        ["ID", "PRODUCER", "STATE", "COORDINATOR"],
        ["x-open", str(writer.producer_id), "Ongoing", "1"],
    ]
    by_producer = ("--state", "ongoing", "--producer-id", writer.producer_id)
    assert [each["transactional_id"] for each in document(anywhere, *pattern, *by_producer)] == ["x-open"]
    assert document(anywhere, *pattern, "--older-than", "1h") == []
    assert document(anywhere, *pattern, "--state", "CompleteCommit,Empty") == []
    (described,) = document(anywhere, "txn", "describe", "x-open")
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    assert described["partitions"] == [{"topic": "x-open", "partition": number} for number in (0, 1)]
    row = lines(anywhere, "txn", "describe", "x-open")[1]
    assert (row[:4], row[-2:]) == (["x-open", "Ongoing", *map(str, writer)], ["x-open-0,x-open-1", "1"])
    assert "did you mean x-open" in error(anywhere, "txn", "describe", "x-opne")
    assert "RE2" in error(anywhere, "txn", "list", "--pattern", "(")


def test_the_producers_of_partitions_are_shown(anywhere: Commands) -> None:
    writer = begun(anywhere, "x-producers")
    first, second = document(anywhere, "txn", "producers", "x-producers")
    assert (first["partition"], second["partition"]) == (0, 1)
    assert (first["producer_id"], first["transaction_start_offset"]) == (writer.producer_id, 0)
    (again,) = document(anywhere, "txn", "producers", "x-producers:1", "--broker", 1)
    assert again == second
    assert lines(anywhere, "txn", "producers", "x-producers:0")[1][:4] == [
        "x-producers",
        "0",
        *map(str, writer),
    ]
    assert "has no partition 9" in error(anywhere, "txn", "producers", "x-producers:9")
    for command in (("producers", "x-producers:1"), ("hanging",)):
        said = error(anywhere, "txn", *command, "--broker", 7)
        assert "there is no broker 7" in said
        assert "these are there: 1" in said


def test_one_that_hangs_is_found_and_aborted(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "x-hang", "--partitions", 2)

    async def hanging(admin: Admin) -> int:
        return await hang(admin, Writer(987_654, 5), "x-hang", 1, SystemClock().wall_ms() - HOUR_MS)

    offset = on(anywhere.bootstrap, hanging)
    search = ("txn", "hanging", "--topic", "x-hang")
    (found,) = document(anywhere, *search)
    assert (found["partition"], found["producer_id"], found["producer_epoch"]) == (1, 987_654, 5)
    assert document(anywhere, "txn", "hanging", "--broker", 1, "--topic", "x-hang:0,1") == [found]
    assert document(anywhere, *search, "--open-for", "2h") == []
    table = lines(anywhere, *search)
    assert table[1][:3] == ["x-hang", "1", str(offset)]
    assert "txn abort" in " ".join(table[-1])
    assert "no transaction that begins at 77" in error(anywhere, "txn", "abort", "x-hang:1", "--offset", 77)
    said = anywhere.ok("txn", "abort", "x-hang:1", "--offset", offset, "--yes")
    assert said == b"the transaction of producer 987654 in x-hang-1 is aborted\n"
    assert anywhere.ok(*search) == b"no transaction hangs\n"


def test_one_that_its_coordinator_knows_is_ended_by_it(anywhere: Commands) -> None:
    writer = begun(anywhere, "x-known")
    said = error(anywhere, "txn", "abort", "x-known:0", "--offset", 0, "--yes")
    assert "it does not hang: transactional id 'x-known' has it (Ongoing)" in said
    assert "`barnabas txn terminate x-known`" in said
    assert document(anywhere, "txn", "hanging", "--topic", "x-known", "--open-for", "0s") == []
    ended = document(anywhere, "txn", "terminate", "x-known", "--yes")
    assert ended["producer_id"] == writer.producer_id
    assert ended["producer_epoch"] > writer.producer_epoch
    assert document(anywhere, "txn", "describe", "x-known")[0]["partitions"] == []
    assert "there is no transactional id" in error(anywhere, "txn", "terminate", "x-nobody")


def test_one_is_ended_however_short_transactions_must_be(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    with Broker(settings={"transaction.max.timeout.ms": "30000"}) as broker:
        run = Commands(broker.bootstrap, capfdbinary, tmp_path)
        run.ok("topic", "create", "x-short")
        on(broker.bootstrap, lambda admin: begin(admin, "x-short", "x-short", [0], timeout_ms=30_000))
        run.ok("txn", "terminate", "x-short", "--yes")
        assert document(run, "txn", "describe", "x-short")[0]["state"] == "Empty"


def test_an_abort_by_producer_needs_all_three_numbers(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "x-numbers")
    said = error(anywhere, "txn", "abort", "x-numbers:0", "--producer-id", 7)
    assert "needs --producer-epoch and --coordinator-epoch" in said
    with pytest.raises(SystemExit):
        anywhere("txn", "abort", "x-numbers", "--offset", 7)
