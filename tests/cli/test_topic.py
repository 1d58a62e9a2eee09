"""`barnabas topic`, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import json
from typing import Any

from barnabas.records.record import Record
from tests.cli.records import write
from tests.cli.running import Commands


def lines(run: Commands, *arguments: object) -> list[list[str]]:
    """The cells of a plain table, its head among them."""
    return [line.split() for line in run.ok(*arguments).decode().splitlines()]


def document(run: Commands, *arguments: object) -> Any:
    return json.loads(run.ok(*arguments, "--json"))


def error(run: Commands, *arguments: object) -> str:
    """What a command that fails says."""
    done = run(*arguments)
    assert (done.status, done.out) == (1, b"")
    return done.err


def test_a_topic_is_created_listed_described_and_deleted(anywhere: Commands) -> None:
    said = anywhere.ok("topic", "create", "t-whole", "--partitions", 2, "--set", "retention.ms=60000")
    assert said == b"t-whole created: 2 partitions, 1 replica\n"
    assert lines(anywhere, "topic", "list", "t-whol*") == [
        ["TOPIC", "PARTITIONS", "REPLICAS", "STATE"],
        ["t-whole", "2", "1", "ok"],
    ]
    (listed,) = document(anywhere, "topic", "list", "t-whole")
    assert (listed["topic"], listed["partitions"], listed["internal"]) == ("t-whole", 2, False)
    shown = anywhere.ok("topic", "describe", "t-whole").decode()
    assert shown.startswith(f"t-whole: 2 partitions, ok\nid {listed['id']}\nretention.ms=60000\n\n")
    assert [line.split() for line in shown.splitlines()[-3:]] == [
        ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN", "SYNC"],
        ["0", "1", "0", "1", "1"],
        ["1", "1", "0", "1", "1"],
    ]
    (described,) = document(anywhere, "topic", "describe", "t-whole")
    assert described["settings"] == {"retention.ms": "60000"}
    assert [(p["partition"], p["leader"], p["in_sync"]) for p in described["partitions"]] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]
    assert document(anywhere, "topic", "delete", "--id", listed["id"]) == {"deleted": ["t-whole"]}
    assert anywhere.ok("topic", "list", "t-whole") == b""


def test_what_is_there_already_is_an_error_unless_it_may_be(anywhere: Commands) -> None:
    (made,) = document(anywhere, "topic", "create", "t-twice", "--assign", "1,1,1")
    assert (made["created"], made["partitions"]) == (True, 3)
    assert "TOPIC_ALREADY_EXISTS" in error(anywhere, "topic", "create", "t-twice")
    assert anywhere.ok("topic", "create", "t-twice", "--if-not-exists") == b"t-twice is there already\n"


def test_what_was_created_before_one_that_could_not_be_is_told(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "t-there", "--partitions", 1)
    done = anywhere("topic", "create", "t-before", "t-there", "--partitions", 1, "--json")
    assert done.status == 1
    assert [fact["topic"] for fact in json.loads(done.out)] == ["t-before"]
    assert "TOPIC_ALREADY_EXISTS" in json.loads(done.err)["error"]


def test_a_dry_run_does_nothing(anywhere: Commands) -> None:
    said = anywhere.ok("topic", "create", "t-dry", "--partitions", 1, "--dry-run")
    assert said == b"t-dry could be created: 1 partition, 1 replica\n"
    assert anywhere.ok("topic", "list", "t-dry") == b""


def test_a_topic_is_altered(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "t-alter", "--partitions", 1, "--set", "segment.ms=60000")
    change = ["--set", "retention.ms=60000", "--append", "cleanup.policy=compact", "--unset", "segment.ms"]
    said = anywhere.ok("topic", "alter", "t-alter", "--partitions", 3, *change, "--dry-run").decode()
    assert said.startswith("t-alter could be altered: 3 partitions, retention.ms=60000")
    assert len(document(anywhere, "topic", "describe", "t-alter")[0]["partitions"]) == 1
    anywhere.ok("topic", "alter", "t-alter", "--partitions", 3, *change)
    (altered,) = document(anywhere, "topic", "describe", "t-alter")
    assert len(altered["partitions"]) == 3
    assert altered["settings"] == {"retention.ms": "60000", "cleanup.policy": "delete,compact"}
    fewer = error(anywhere, "topic", "alter", "t-alter", "--partitions", 2)
    assert "INVALID_PARTITIONS (The topic t-alter currently has 3 partition(s); 2 would not" in fewer
    assert "can be added, never taken away" in fewer
    wrong = error(anywhere, "topic", "alter", "t-alter", "--partitions", 4, "--set", "retention.ms=x")
    assert "INVALID_CONFIG" in wrong
    assert len(document(anywhere, "topic", "describe", "t-alter")[0]["partitions"]) == 3
    assert "nothing to alter" in error(anywhere, "topic", "alter", "t-alter")


def test_offsets_are_shown_and_old_records_go(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "t-trim", "--partitions", 2)
    write(anywhere.bootstrap, "t-trim", [Record(0, 1000 + n, None, b"x") for n in range(10)], partition=0)
    assert lines(anywhere, "topic", "offsets", "t-trim")[1:] == [
        ["t-trim", "0", "0", "10", "10"],
        ["t-trim", "1", "0", "0", "0"],
    ]
    (at,) = document(anywhere, "topic", "offsets", "t-trim", "--partitions", 0, "--at", "1004")
    assert at == {"topic": "t-trim", "partition": 0, "offset": 4, "timestamp_ms": 1004}
    assert (
        document(anywhere, "topic", "offsets", "t-trim", "--partitions", 1, "--at", "-2h")[0]["offset"]
        is None
    )
    (newest,) = document(anywhere, "topic", "offsets", "t-trim", "--partitions", "0", "--at", "max-timestamp")
    assert newest["offset"] == 9
    dry = anywhere.ok("topic", "trim", "t-trim", "--partitions", 0, "--before", 3, "--dry-run")
    assert dry.decode() == "up to 3 records of t-trim would be deleted; partition 0 begins at 3\n"
    beyond = error(anywhere, "topic", "trim", "t-trim", "--before", 3)
    assert "t-trim-1 ends at 0, before 3" in beyond
    anywhere.ok("topic", "trim", "t-trim", "--partitions", 0, "--before", 3)
    assert lines(anywhere, "topic", "offsets", "t-trim")[1] == ["t-trim", "0", "3", "10", "7"]
    anywhere.ok("topic", "trim", "t-trim", "--before-time", "1005", "--partitions", 0)
    assert document(anywhere, "topic", "offsets", "t-trim")[0]["earliest"] == 5
    trimmed = document(anywhere, "topic", "trim", "t-trim", "--all")
    assert trimmed["partitions"] == [{"partition": 0, "earliest": 10}]
    assert anywhere.ok("topic", "trim", "t-trim", "--all") == b"there is nothing to delete in t-trim\n"


def test_a_setting_to_be_unset_must_exist(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "t-unset", "--partitions", 1)
    done = anywhere("topic", "alter", "t-unset", "--partitions", 2, "--unset", "retention.mss")
    assert done.status == 1
    assert "did you mean retention.ms" in done.err
    (described,) = json.loads(anywhere.ok("topic", "describe", "t-unset", "--json"))
    assert len(described["partitions"]) == 1


def test_a_name_that_is_nearly_right_is_named(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "t-orders")
    for action in (("describe",), ("offsets",), ("delete",), ("trim", "--all"), ("alter", "--partitions", 2)):
        said = error(anywhere, "topic", action[0], "t-ordres", *action[1:])
        assert said.startswith(f"barnabas topic {action[0]}: there is no topic 't-ordres'\n")
        assert "did you mean t-orders" in said
    assert "has no partition 7" in error(anywhere, "topic", "offsets", "t-orders", "--partitions", 7)
    assert "'soon' is no time" in error(anywhere, "topic", "offsets", "t-orders", "--at", "soon")


def test_errors_of_the_broker_come_with_a_next_step(anywhere: Commands) -> None:
    said = error(anywhere, "topic", "create", "t-many", "--replicas", 3)
    assert "INVALID_REPLICATION_FACTOR" in said
    assert "`barnabas cluster describe`" in said
    assert "INVALID_TOPIC_EXCEPTION" in error(anywhere, "topic", "create", "no/topic")
