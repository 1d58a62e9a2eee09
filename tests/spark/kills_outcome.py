"""What came of many kills, by readers that are not ours, and how it is told."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.interop.reading import read_pairs
from tests.spark.kills_judge import Copy, Place, copy_of
from tests.spark.kills_query import GROUP_ID_PREFIX, INPUT, OUTPUT
from tests.spark.kills_world import IN_PARTITIONS, OUT_PARTITIONS

POLL_S = 0.01
MIRRORED_S = 60.0
UNEXPECTED = ("AlreadyFurther", "SplitChanged", "DataLost", "BadMarkerTopic", "OptionError", "SettingError")


class Outcome(NamedTuple):
    """What many kills came to."""

    kills: Counter[str]
    moments: Counter[str]
    lives: int
    batches: int
    fed: int
    aborted: int  # copies that were written and never committed
    failures: Counter[str]  # of runs of the query that failed, by their error
    seconds: float

    def __str__(self) -> str:
        def told(counts: Counter[str]) -> str:
            return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"

        return "\n".join(
            [
                f"{self.kills.total()} kills in {self.seconds:.0f} s, {self.fed:,} records: "
                f"none lost, none twice, all in order",
                f"  killed: {told(self.kills)}",
                f"  when: {told(self.moments)}",
                f"  {self.batches} batches, {self.lives} lives of the driver, "
                f"{self.aborted:,} copies written and not committed",
                f"  runs that failed: {told(self.failures)}",
            ]
        )


def numbers_fed(bootstrap: str, count: int) -> dict[Place, int]:
    """The numbers in the input; each is there once, or the feeder is to blame."""
    found = {
        Place(partition, offset): int(value or b"")
        for partition in range(IN_PARTITIONS)
        for offset, (_, value) in enumerate(
            read_pairs("confluent", bootstrap, INPUT, partition, committed=True)
        )
    }
    assert sorted(found.values()) == list(range(count)), "the input is not what was fed"
    return found


def copies_of(bootstrap: str, directory: Path, sink: str) -> list[list[Copy]]:
    if sink == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(directory / "table").to_pyarrow_table().to_pylist()
        copies = [copy_of(row["key"], row["value"].encode()) for row in rows]
        return [sorted(copies, key=lambda copy: copy.number)]  # a table has no order
    return [
        [copy_of(key or b"", value or b"") for key, value in pairs]
        for partition in range(OUT_PARTITIONS)
        for pairs in [read_pairs("confluent", bootstrap, OUTPUT, partition, committed=True)]
    ]


def count_written(bootstrap: str) -> int:
    return sum(
        len(read_pairs("confluent", bootstrap, OUTPUT, partition, committed=False))
        for partition in range(OUT_PARTITIONS)
    )


def lag_of(bootstrap: str) -> list[str]:
    """What the group that mirrors the query's offsets lacks; a little later it should not."""
    group, deadline = f"{GROUP_ID_PREFIX}-{INPUT}", time.monotonic() + MIRRORED_S
    ends = {
        partition: len(read_pairs("confluent", bootstrap, INPUT, partition, committed=True))
        for partition in range(IN_PARTITIONS)
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    while True:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        offsets = {each.partition: each.offset for each in asked[group].result(30).topic_partitions}
        if offsets == ends:
            return []
        if time.monotonic() > deadline:
            return [f"group {group} is at {offsets}, and the input ends at {ends}"]
        time.sleep(POLL_S)


def failures_of(directory: Path) -> list[str]:
    file = directory / "failures.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    failures = []
    for line in lines:
        with suppress(json.JSONDecodeError):  # it was killed while it wrote
            failures.append(str(json.loads(line)["error"]))
    return failures


def unexpected(directory: Path, excused: Sequence[str] = ()) -> list[str]:
    """What a query failed of, and kills do not excuse."""
    names = [name for name in UNEXPECTED if name not in excused]
    return [error for error in failures_of(directory) if any(name in error for name in names)]


def name_of(error: str) -> str:
    """A failure in a few words: the last line of what is said of it that names an error."""
    said = error.partition("=== Streaming Query ===")[0].partition("terminated with exception:")[2]
    said = said.replace("SQLSTATE: XXKST", "").strip()
    lines = [line.strip() for line in said.splitlines() if "Error" in line or "Exception" in line]
    return (lines[-1] if lines else said or "a connection to a process that is gone")[:80]
