"""`barnabas group`, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.failures import CommandFailed
from barnabas.cli.groups.describe import groups_named
from barnabas.cli.groups.reset import Bounds, NewOffset
from barnabas.client.admin import Admin, GroupDescription, GroupListing
from barnabas.client.metadata import TopicPartition
from barnabas.records.record import Record
from tests.cli.records import write
from tests.cli.running import Commands, start, until
from tests.cli.test_topic import document, error, lines
from tests.client.coordinated import join, on

RECORDS = [Record(0, 1000 * n, None, b"x") for n in range(10)]


def filled(run: Commands, topic: str, partitions: int = 2) -> str:
    """A topic with ten records in partition 0, of the first ten seconds there ever were."""
    forever = ("--set", "retention.ms=-1")  # they are older than retention allows
    run.ok("topic", "create", topic, "--partitions", partitions, *forever)
    write(run.bootstrap, topic, RECORDS, partition=0)
    return topic


def offsets(run: Commands, group: str) -> dict[int, int]:
    """What is committed, by partition."""
    (described,) = document(run, "group", "describe", group)
    return {each["partition"]: each["offset"] for each in described["offsets"]}


def planned(run: Commands, group: str, *how: object) -> dict[int, int]:
    (plan,) = document(run, "group", "reset", group, *how)
    return {each["partition"]: each["offset"] for each in plan["offsets"]}


def test_groups_are_listed_by_name_state_and_type(anywhere: Commands) -> None:
    topic = filled(anywhere, "g-list")
    for group in ("g-list-a", "g-list-b"):
        anywhere.ok("group", "reset", group, "--topic", topic, "--to-latest", "--execute")
    on(anywhere.bootstrap, lambda admin: join(admin, "g-list-b", topic, [0]))
    assert lines(anywhere, "group", "list", "g-list-*") == [
        ["GROUP", "STATE", "TYPE", "PROTOCOL", "TYPE", "COORDINATOR"],
        ["g-list-a", "Empty", "classic", "-", "1"],
        ["g-list-b", "Stable", "classic", "consumer", "1"],
    ]
    (stable,) = document(anywhere, "group", "list", "g-list-*", "--state", "stable,dead", "--type", "CLASSIC")
    assert (stable["group"], stable["state"], stable["type"]) == ("g-list-b", "Stable", "classic")
    with pytest.raises(SystemExit):
        anywhere("group", "list", "--state", "asleep")


def test_lag_is_told_by_partition_and_in_all(anywhere: Commands) -> None:
    topic = filled(anywhere, "g-lag")
    anywhere.ok("group", "reset", "g-lag", "--topic", topic, "--to-offset", 4, "--execute")
    said = anywhere.ok("group", "describe", "g-lag").decode()
    head, _, *table = said.splitlines()
    assert head == f"g-lag: Empty, 0 members, coordinator 1 at {anywhere.bootstrap}"
    assert [line.split() for line in table] == [
        ["TOPIC", "PARTITION", "OFFSET", "END", "LAG"],
        ["g-lag", "0", "4", "10", "6"],
        ["g-lag", "1", "0", "0", "0"],
        ["lag", "6", "in", "all"],
    ]
    (described,) = document(anywhere, "group", "describe", "g-lag")
    assert described["lag"] == 6
    assert "members" not in described
    assert lines(anywhere, "group", "describe", "g-lag", "--state")[1][:2] == ["g-lag", "Empty"]


def test_members_are_shown_with_what_they_read(anywhere: Commands) -> None:
    topic = filled(anywhere, "g-members", 3)
    anywhere.ok("group", "reset", "g-members", "--topic", f"{topic}:0", "--to-offset", 1, "--execute")
    member = on(anywhere.bootstrap, lambda admin: join(admin, "g-members", topic, [0, 2], "desk-1"))
    (described,) = document(anywhere, "group", "describe", "g-members", "--all")
    (shown,) = described["members"]
    assert (shown["member"], shown["instance"], shown["topics"]) == (member, "desk-1", [topic])
    assert [each["partition"] for each in shown["assignment"]] == [0, 2]
    assert [(each["partition"], each["lag"], each["member"]) for each in described["offsets"]] == [
        (0, 9, member),
        (2, None, member),
    ]
    text = anywhere.ok("group", "describe", "g-members").decode()
    assert text.endswith("\nlag 9 in all, and 1 partition of which it is not known\n")
    text = anywhere.ok("group", "describe", "g-members", "--members").decode()
    assert text.startswith("g-members: Stable, 1 member, protocol range, coordinator 1 at ")
    assert text.splitlines()[-1].split()[-2:] == ["2", f"{topic}:0,2"]
    removed = anywhere.ok("group", "remove-members", "g-members", "--instance", "desk-1")
    assert removed == b"1 member of g-members removed\n"
    assert anywhere.ok("group", "remove-members", "g-members", "--all") == b"g-members has no members\n"


def test_a_group_with_members_keeps_its_offsets(anywhere: Commands) -> None:
    topic = filled(anywhere, "g-busy")
    on(anywhere.bootstrap, lambda admin: join(admin, "g-busy", topic, [0]))
    said = error(anywhere, "group", "reset", "g-busy", "--topic", topic, "--to-earliest", "--execute")
    assert "group 'g-busy' has 1 member (Stable), and only they may commit\n  stop them first" in said
    assert "NON_EMPTY_GROUP\n  stop its members first" in error(anywhere, "group", "delete", "g-busy")
    said = error(anywhere, "group", "delete-offsets", "g-busy", "--topic", topic)
    assert "GROUP_SUBSCRIBED_TO_TOPIC\n  its members read that topic" in said
    assert offsets(anywhere, "g-busy") == {0: None}


def test_a_plan_is_only_shown_until_it_is_to_be_executed(anywhere: Commands) -> None:
    topic = filled(anywhere, "g-plan")
    how = ("group", "reset", "g-plan", "--topic", f"{topic}:0", "--to-latest")
    assert lines(anywhere, *how) == [
        ["GROUP", "TOPIC", "PARTITION", "OFFSET", "NEW", "OFFSET"],
        ["g-plan", topic, "0", "-", "10"],
        ["nothing", "was", "changed;", "--execute", "does", "it"],
    ]
    assert "there is no group 'g-plan'" in error(anywhere, "group", "describe", "g-plan")
    assert anywhere.ok(*how, "--execute").endswith(b"done\n")
    assert offsets(anywhere, "g-plan") == {0: 10}


def test_offsets_are_reset_in_every_way(anywhere: Commands) -> None:
    topic = filled(anywhere, "g-ways")
    both = ("--topic", topic)
    assert planned(anywhere, "g-ways", *both, "--to-current") == {0: 10, 1: 0}
    assert planned(anywhere, "g-ways", *both, "--to-offset", 6, "--execute") == {0: 6, 1: 0}
    assert planned(anywhere, "g-ways", *both, "--to-earliest") == {0: 0, 1: 0}
    assert planned(anywhere, "g-ways", *both, "--to-latest") == {0: 10, 1: 0}
    assert planned(anywhere, "g-ways", *both, "--to-current") == {0: 6, 1: 0}
    assert planned(anywhere, "g-ways", "--all-topics", "--shift-by", -2) == {0: 4, 1: 0}
    assert planned(anywhere, "g-ways", "--topic", f"{topic}:0", "--shift-by", 3) == {0: 9}
    assert planned(anywhere, "g-ways", *both, "--to-datetime", "1970-01-01T00:00:02.500Z") == {0: 3, 1: 0}
    assert planned(anywhere, "g-ways", *both, "--by-duration", "PT1H") == {0: 10, 1: 0}
    assert offsets(anywhere, "g-ways") == {0: 6, 1: 0}


def test_a_plan_is_exported_and_taken_from_a_file(anywhere: Commands, tmp_path: Path) -> None:
    topic = filled(anywhere, "g-file")
    how = ("group", "reset", "--topic", f"{topic}:0", "--to-offset", 6)
    one = anywhere.ok(*how, "g-file-a", "--export")
    assert one.decode() == f"{topic},0,6\n"
    two = anywhere.ok(*how, "g-file-a", "g-file-b", "--export")
    assert two.decode() == f"g-file-a,{topic},0,6\ng-file-b,{topic},0,6\n"
    file = tmp_path / "plan.csv"
    file.write_bytes(two.replace(b"b,g-file,0,6", b"b,g-file,0,7"))
    anywhere.ok("group", "reset", "g-file-a", "g-file-b", "--from-file", file, "--execute")
    assert [offsets(anywhere, group) for group in ("g-file-a", "g-file-b")] == [{0: 6}, {0: 7}]
    done = anywhere("group", "reset", "g-file-a", "--from-file", "-", stdin=f"{topic},0,99\n".encode())
    assert done.err == f"{topic}-0 ends at 10, before 99: 10 is taken\n"
    wrong = anywhere("group", "reset", "g-file-a", "--from-file", "-", stdin=b"g-file,0\n")
    assert "-, line 1: no topic, partition and offset" in wrong.err
    assert wrong.status == 1


def test_what_cannot_be_reset_is_said(anywhere: Commands) -> None:
    topic = filled(anywhere, "g-cannot")
    reset = ("group", "reset", "g-cannot")
    assert "no topic is named" in error(anywhere, *reset, "--to-latest")
    assert "did you mean g-cannot" in error(anywhere, *reset, "--topic", "g-cannott", "--to-latest")
    assert "has no partition 7" in error(anywhere, *reset, "--topic", f"{topic}:7", "--to-latest")
    assert "nothing to shift" in error(anywhere, *reset, "--topic", topic, "--shift-by", 1)
    assert "'soon' is no time" in error(anywhere, *reset, "--topic", topic, "--to-datetime", "soon")
    assert "cannot read nowhere.csv" in error(anywhere, *reset, "--from-file", "nowhere.csv")
    assert anywhere.ok(*reset, "--all-topics", "--to-latest") == b"there is nothing to reset\n"
    assert "no group is named" in error(anywhere, "group", "describe")
    for wrong in (("--topic", ":1"), ("--by-duration", "1 hour"), ("--to-offset", "-5")):
        with pytest.raises(SystemExit):
            anywhere(*reset, *wrong)


def test_a_group_that_cannot_be_reset_does_not_hide_those_that_were(
    anywhere: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(anywhere, "g-some")
    alter = Admin.alter_group_offsets

    async def alter_late(admin: Admin, group: str, offsets: Any) -> None:
        if group == "g-some-b":
            await join(admin, group, topic, [0])
        await alter(admin, group, offsets)

    monkeypatch.setattr(Admin, "alter_group_offsets", alter_late)
    how = ("--topic", f"{topic}:0", "--to-latest", "--execute")
    done = anywhere("group", "reset", "g-some-a", "g-some-b", "g-some-c", *how)
    assert done.status == 1
    assert [line.split()[0] for line in done.out.decode().splitlines()] == ["GROUP", "g-some-a", "done"]
    assert "in group 'g-some-b': UNKNOWN_MEMBER_ID\n  the members there are now" in done.err


def test_offsets_and_groups_are_deleted(anywhere: Commands) -> None:
    topic = filled(anywhere, "g-delete")
    for group in ("g-delete-a", "g-delete-b"):
        anywhere.ok("group", "reset", group, "--topic", topic, "--to-latest", "--execute")
    said = anywhere.ok("group", "delete-offsets", "g-delete-a", "--topic", f"{topic}:1")
    assert said == b"g-delete-a has nothing committed for 1 partition any more\n"
    assert offsets(anywhere, "g-delete-a") == {0: 10}
    done = anywhere("group", "delete", "g-delete-a", "g-delete-c", "g-delete-b")
    assert (done.status, done.out) == (1, b"deleted g-delete-a\n")
    assert "there is no group 'g-delete-c'\n  did you mean g-delete-b" in done.err
    assert document(anywhere, "group", "delete", "g-delete-b", "--yes") == {"deleted": ["g-delete-b"]}
    assert anywhere.ok("group", "list", "g-delete-*") == b""
    assert "there is no group" in error(anywhere, "group", "delete-offsets", "g-delete-b", "--topic", topic)


def test_a_group_is_watched_until_ctrl_c(anywhere: Commands) -> None:
    topic = filled(anywhere, "g-watch")
    anywhere.ok("group", "reset", "g-watch", "--topic", topic, "--to-earliest", "--execute")
    watching = start(anywhere.bootstrap, "group", "describe", "g-watch", "--watch", "0.05", "--json")
    assert watching.stdout is not None
    looks = [json.loads(watching.stdout.readline()) for _ in range(2)]
    assert [look["groups"][0]["lag"] for look in looks] == [10, 10]
    assert looks[0]["time_ms"] < looks[1]["time_ms"]
    watching.send_signal(signal.SIGINT)
    until(lambda: watching.poll() is not None)
    assert watching.returncode == 130
    watching.communicate()


def test_a_group_that_older_brokers_call_dead_is_not_there() -> None:
    class OldBroker:
        async def describe_groups(self, names: list[str]) -> dict[str, GroupDescription]:
            return {name: GroupDescription(name, "Dead", "", "", 1, []) for name in names}

        async def list_groups(self) -> list[GroupListing]:
            return [GroupListing("billing", "consumer", None, None, 1)]

    session: Any = SimpleNamespace(admin=OldBroker())
    with pytest.raises(CommandFailed, match="there is no group 'biling'") as caught:
        asyncio.run(groups_named(session, ["biling"]))
    assert str(caught.value.next_step).startswith("did you mean billing?")
    going = asyncio.run(groups_named(session, ["billing"]))  # still listed
    assert going["billing"].state == "Dead"


def test_an_offset_that_is_not_there_becomes_the_nearest() -> None:
    at, bounds = TopicPartition("orders", 1), Bounds(5, 9)
    assert bounds.nearest(at, 7, 3) == NewOffset(7, 3)
    assert bounds.nearest(at, 4, None) == NewOffset(5, None, "orders-1 begins at 5, after 4")
    assert bounds.nearest(at, 10, None) == NewOffset(9, None, "orders-1 ends at 9, before 10")
