"""The same requests of a group's members to Apache Kafka and to Barnabas, side by side: answers of every
version, refusals, and what is written down."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.coordination.records import decode_record
from barnabas.groups.records import KINDS, GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.schema import Message, Struct
from barnabas.records.reader import read_records
from barnabas.testing import Broker
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient
from tests.support.raw_groups import beating, joining, leaving, syncing

pytestmark = pytest.mark.java

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "group.max.size": "3",
}
PATIENCE_S = 120.0
UNKNOWN_MEMBER_ID = 25
# Kafka makes a group even for a first member that it refuses; here a mistake changes nothing
MADE_BY_KAFKA_ONLY = "r"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RESPONSES: dict[type[Message], type[Message]] = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    DescribeGroupsRequest: DescribeGroupsResponse,
    ListGroupsRequest: ListGroupsResponse,
    DeleteGroupsRequest: DeleteGroupsResponse,
}


class Side(NamedTuple):
    """One of the two: where it listens, and where its data is."""

    port: int
    data: Path


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka, and Barnabas; both coordinate groups."""
    home = tmp_path_factory.mktemp("sides")
    with (
        ApacheKafka(home / "kafka", settings=SETTINGS) as kafka,
        Broker(home / "barnabas", SETTINGS) as broker,
    ):
        both = Side(kafka.port, kafka.data), Side(broker.port, home / "barnabas")
        for side in both:
            _await_coordinator(side)
        yield both


def _await_coordinator(side: Side) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with RawClient(side.port) as client:
        while True:
            found = client.ask(FindCoordinatorRequest(key="g", key_type=0), 2, FindCoordinatorResponse)
            beaten = client.ask(beating("g", 1, "nobody"), 3, HeartbeatResponse)
            if (found.error_code, beaten.error_code) == (0, UNKNOWN_MEMBER_ID):
                return  # it would not say that unless it knew its groups
            assert time.monotonic() < deadline, "nobody coordinates groups"
            time.sleep(0.05)


class Play:
    """Requests over a few connections to one side, and what came back: ids named by when they first came."""

    def __init__(self, side: Side) -> None:
        self.port = side.port
        self.told: list[tuple[str, Any]] = []
        self._clients: dict[str, RawClient] = {}
        self._waiting: dict[str, tuple[str, type[Message], int, bool]] = {}
        self._names: dict[str, str] = {}

    def send(self, who: str, request: Message, version: int) -> None:
        """A request that may take a while to be answered: see `receive`."""
        client = self._clients.get(who)
        if client is None:
            client = self._clients[who] = RawClient(self.port)
        client.send(request, version)
        flexible = version >= type(request).__flexible__
        label = f"{who}: {type(request).__name__} v{version}"
        self._waiting[who] = label, RESPONSES[type(request)], version, flexible

    def receive(self, who: str) -> Any:
        """What was answered; as it is, and noted down in a way that can be compared."""
        label, cls, version, flexible = self._waiting.pop(who)
        _, response = self._clients[who].receive_response(cls, version, flexible=flexible)
        self.told.append((label, self._comparable(response)))
        return response

    def ask(self, who: str, request: Message, version: int) -> Any:
        self.send(who, request, version)
        return self.receive(who)

    def is_silent(self, who: str, seconds: float = 0.05) -> bool:
        return self._clients[who].is_silent(seconds)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _comparable(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return {field.name: self._comparable(getattr(value, field.name)) for field in value.__fields__}
        if isinstance(value, (list, tuple)):
            return sorted(map(self._comparable, value), key=repr)
        return self._named(value) if isinstance(value, str) else value

    def _named(self, text: str) -> str:
        found = UUID.search(text)
        if found is None:
            return text
        return text.replace(found[0], self._names.setdefault(found[0], f"#{len(self._names)}"))


def described(*groups: str, version: int = 6) -> tuple[DescribeGroupsRequest, int]:
    return DescribeGroupsRequest(groups=list(groups), include_authorized_operations=True), version


# ---- plays ------------------------------------------------------------------------------------------------


def first_join(play: Play, group: str, who: str = "a", version: int = 9, **wants: Any) -> Any:
    """A member in the generation that begins with it, with an id that it was given first."""
    if version >= 4 and "instance" not in wants:
        given = play.ask(who, joining(group, **wants), version)
        return play.ask(who, joining(group, given.member_id, **wants), version)
    return play.ask(who, joining(group, **wants), version)


def every_version(play: Play) -> None:
    """A life of one member in each version of all requests."""
    for version in range(10):
        group = f"alone-{version}"
        joined = first_join(play, group, version=version)
        sync_version = min(version, 5)
        play.ask("a", syncing(group, joined, {joined.member_id: b"all"}), sync_version)
        play.ask("a", beating(group, joined.generation_id, joined.member_id), min(version, 4))
        play.ask("a", *described(group, version=min(version, 6)))
        play.ask("a", leaving(group, (joined.member_id, None)), min(version, 5))
        play.ask("a", *described(group, version=min(version, 6)))


def refused(play: Play) -> None:
    """Mistakes of clients who are no members, in the first and the last version."""
    for version in (0, 4, 9):
        for wrong in (
            joining(""),
            joining("", "x"),
            joining(MADE_BY_KAFKA_ONLY, session_ms=999),
            joining(MADE_BY_KAFKA_ONLY, session_ms=1_800_001),
            joining(MADE_BY_KAFKA_ONLY, "unknown"),
            joining(MADE_BY_KAFKA_ONLY, kind=""),
            joining(MADE_BY_KAFKA_ONLY, protocols=()),
        ):
            play.ask("a", wrong, version)
        if version >= 5:
            play.ask("a", joining(MADE_BY_KAFKA_ONLY, "unknown", instance="i"), version)
    nobody = JoinGroupResponse(error_code=0, generation_id=1, leader="", member_id="nobody", members=[])
    for version in (0, 3, 5):
        play.ask("a", syncing("", nobody), version)
        play.ask("a", syncing("unknown", nobody), version)
        play.ask("a", beating("", 1, "nobody"), min(version, 4))
        play.ask("a", beating("unknown", 1, "nobody"), min(version, 4))
        play.ask("a", leaving("", ("nobody", None)), version)
        play.ask("a", leaving("unknown", ("nobody", None)), version)
    play.ask("a", leaving("unknown", ("", None), ("nobody", "i")), 5)
    play.ask("a", leaving("unknown"), 5)
    for version in range(7):
        play.ask("a", *described("unknown", "", version=version))
    for version in range(3):
        play.ask("a", DeleteGroupsRequest(groups_names=["unknown", "unknown", ""]), version)
    play.ask("a", DeleteGroupsRequest(groups_names=[MADE_BY_KAFKA_ONLY]), 2)
    play.told.pop()


def mistakes_of_members(play: Play) -> None:
    """What a member of a stable group may get wrong."""
    joined = first_join(play, "m", protocols=(("range", b"r"), ("sticky", b"s")))
    me, generation = joined.member_id, joined.generation_id
    play.ask("b", *described("m"))  # not synced yet
    for wrong in (
        syncing("m", joined, generation_id=generation + 1),
        syncing("m", joined, member_id="nobody"),
        syncing("m", joined, protocol_type="connect"),
        syncing("m", joined, protocol_type=None),
        syncing("m", joined, protocol_name=None),
        syncing("m", joined, protocol_name="sticky"),
        syncing("m", joined, instance="i"),
    ):
        play.ask("b", wrong, 5)
    play.ask("a", syncing("m", joined, {me: b"part"}), 5)
    play.ask("b", syncing("m", joined), 5)  # again: the same part
    for wrong in (
        beating("m", generation + 1, me),
        beating("m", generation - 1, me),
        beating("m", generation, "nobody"),
        beating("m", generation, me, "i"),
    ):
        play.ask("b", wrong, 4)
    for wrong_join in (
        joining("m", kind="connect"),
        joining("m", protocols=(("roundrobin", b""),)),
        joining("m", "nobody"),
        joining("m", me, instance="i"),
        joining("m", me, kind="connect"),
    ):
        play.ask("b", wrong_join, 9)
    play.ask("b", leaving("m", ("nobody", None), (me, "i"), ("", None), ("", "i")), 5)
    play.ask("b", DeleteGroupsRequest(groups_names=["m"]), 2)
    play.ask("b", *described("m"))
    play.ask("b", leaving("m", (me, None), (me, None)), 5)
    play.ask("b", *described("m"))
    play.ask("b", beating("m", generation, me), 4)
    play.ask("b", syncing("m", joined), 5)
    play.ask("b", joining("m", me), 9)
    play.ask("b", DeleteGroupsRequest(groups_names=["m", "m"]), 2)
    play.ask("b", *described("m"))


def two_members(play: Play) -> None:
    """A second member comes, both rebalance; one leaves."""
    one = first_join(play, "two", "a", protocols=(("range", b"r1"), ("sticky", b"s1")))
    play.ask("a", syncing("two", one, {one.member_id: b"all"}), 5)
    given = play.ask("b", joining("two"), 9)
    play.ask("c", beating("two", one.generation_id, given.member_id), 4)
    play.ask("c", joining("two", given.member_id, instance="i"), 9)
    play.send("b", joining("two", given.member_id, protocols=(("sticky", b"s2"),)), 9)
    assert play.is_silent("b")
    play.ask("a", beating("two", one.generation_id, one.member_id), 4)
    play.ask("a", syncing("two", one), 5)
    play.ask("c", *described("two"))
    play.send("a", joining("two", one.member_id, protocols=(("range", b"r1"), ("sticky", b"s1"))), 9)
    one, two = play.receive("a"), play.receive("b")
    play.send("b", syncing("two", two), 5)
    assert play.is_silent("b")
    play.ask("c", beating("two", two.generation_id, two.member_id), 4)
    play.ask("c", joining("two", two.member_id, protocols=(("sticky", b"s2"),)), 9)  # the same again
    play.ask("a", syncing("two", one, {one.member_id: b"1", two.member_id: b"2", "nobody": b"3"}), 5)
    play.receive("b")
    play.ask("c", *described("two"))
    play.ask("b", joining("two", two.member_id, protocols=(("sticky", b"s2"),)), 9)  # a follower, unchanged
    play.ask("c", leaving("two", (one.member_id, None)), 5)
    play.ask("b", beating("two", two.generation_id, two.member_id), 4)
    again = play.ask("b", joining("two", two.member_id, protocols=(("sticky", b"s2"),)), 5)
    play.ask("b", syncing("two", again), 3)  # a leader that hands in nothing
    play.ask("c", leaving("two", (two.member_id, None)), 0)


def static_members(play: Play) -> None:
    """An instance that comes back: without a rebalance, with one, and as the leader."""
    leader = first_join(play, "s", "a", instance="i1")
    play.ask("a", syncing("s", leader, {leader.member_id: b"all"}, instance="i1"), 5)
    play.ask("c", leaving("s", ("nobody", "i1"), (leader.member_id, "i2")), 5)
    back = play.ask("b", joining("s", instance="i1"), 9)
    play.ask("a", beating("s", back.generation_id, leader.member_id, "i1"), 4)
    play.ask("a", syncing("s", leader, instance="i1"), 5)
    play.ask("a", joining("s", leader.member_id, instance="i1"), 9)
    play.ask("b", syncing("s", back, instance="i1"), 5)
    older = play.ask("b", joining("s", instance="i1"), 8)
    play.ask("b", syncing("s", older, instance="i1"), 5)
    play.ask("b", *described("s"))
    other = play.ask("b", joining("s", instance="i1", protocols=(("range", b"other"),)), 9)
    play.ask("b", syncing("s", other, instance="i1"), 5)
    play.ask("b", *described("s"))
    play.ask("c", leaving("s", ("", "i1"), ("", "i2")), 5)
    play.ask("c", *described("s"))
    play.ask("c", beating("s", other.generation_id, other.member_id, "i1"), 4)


def static_pair(play: Play) -> None:
    """Another instance joins; the first is replaced while it waits."""
    one = first_join(play, "p", "a", instance="i1", protocols=(("range", b"r"), ("sticky", b"s")))
    play.ask("a", syncing("p", one, {one.member_id: b"all"}, instance="i1"), 5)
    play.send("b", joining("p", instance="i2"), 9)
    assert play.is_silent("b")
    play.send("c", joining("p", instance="i2"), 9)
    play.receive("b")
    play.send("a", joining("p", one.member_id, instance="i1"), 9)
    one, two = play.receive("a"), play.receive("c")
    play.send("c", syncing("p", two, instance="i2"), 5)
    assert play.is_silent("c")
    play.send("b", joining("p", instance="i2"), 9)  # in mid-sync: everybody joins again
    play.receive("c")
    play.ask("a", syncing("p", one, {one.member_id: b"1"}, instance="i1"), 5)
    play.send("a", joining("p", one.member_id, instance="i1"), 9)
    one, two = play.receive("a"), play.receive("b")
    play.send("b", syncing("p", two, instance="i2"), 5)
    play.ask("a", syncing("p", one, {one.member_id: b"1", two.member_id: b"2"}, instance="i1"), 5)
    play.receive("b")
    play.ask("c", leaving("p", ("", "i1"), ("", "i2")), 5)


def too_large(play: Play) -> None:
    """Parts that no batch has room for, while another member waits for its own."""
    one = first_join(play, "large", "a")
    play.ask("a", syncing("large", one, {one.member_id: b"all"}), 5)
    play.send("b", joining("large"), 3)
    assert play.is_silent("b")
    play.send("a", joining("large", one.member_id), 9)
    one, two = play.receive("a"), play.receive("b")
    play.send("b", syncing("large", two), 3)
    assert play.is_silent("b", 0.5)  # long enough to be there before the leader
    play.ask("a", syncing("large", one, {one.member_id: bytes(2_000_000)}), 5)
    play.receive("b")
    play.ask("c", *described("large"))
    play.ask("a", syncing("large", one, {one.member_id: b"1"}), 5)
    play.ask("c", leaving("large", (one.member_id, None), (two.member_id, None)), 5)


def too_many(play: Play) -> None:
    """A fourth where three may be."""
    for who in ("a", "b", "c"):
        play.send(who, joining("full"), 3)
        assert play.is_silent(who)
    play.ask("d", joining("full"), 3)
    joined = [play.receive(who) for who in ("b", "c", "a")]  # ids are named before they come in a list
    play.ask("d", joining("full"), 9)
    play.ask("d", leaving("full", *((one.member_id, None) for one in joined)), 5)
    play.ask("d", *described("full"))


def sessions(play: Play) -> None:
    """Nothing is heard of a member: it goes, and so does an id that never came back."""
    one = first_join(play, "late", "a", session_ms=1000)
    play.ask("a", syncing("late", one, {one.member_id: b"all"}), 5)
    given = play.ask("b", joining("late", session_ms=1000), 9)
    time.sleep(1.6)  # what is tested is that time passes
    play.ask("a", beating("late", one.generation_id, one.member_id), 4)
    play.ask("b", joining("late", given.member_id, session_ms=1000), 9)
    play.ask("b", *described("late"))


def lists(play: Play) -> None:
    """Groups by state and type, whatever the case of their names."""
    joined = first_join(play, "listed", kind="connect")
    for version in range(6):
        play.ask("a", ListGroupsRequest(), version)
    for states, types in (
        (["empty"], []),
        (["completingrebalance", "STABLE "], []),
        (["nonsense"], []),
        ([], ["CLASSIC"]),
        ([], ["consumer"]),
        ([], ["nonsense"]),
        (["Empty"], ["Classic"]),
    ):
        play.ask("a", ListGroupsRequest(states_filter=states, types_filter=types), 5)
    play.ask("a", leaving("listed", (joined.member_id, None)), 5)


PLAYS = (
    every_version,
    refused,
    mistakes_of_members,
    two_members,
    static_members,
    static_pair,
    too_large,
    too_many,
    sessions,
    lists,
)


def closing(play: Callable[[Play], None]) -> Callable[[Play], None]:
    def played(each: Play) -> None:
        try:
            play(each)
        finally:
            each.close()

    return played


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_members_are_answered_alike(sides: tuple[Side, Side], play: Callable[[Play], None]) -> None:
    kafka, here = plays = [Play(side) for side in sides]
    with ThreadPoolExecutor(len(plays)) as both:
        list(both.map(closing(play), plays))  # at the same time: much of it is waiting
    differences = [
        f"{label}\n  Kafka: {expected}\n  here:  {got}"
        for (label, expected), (_, got) in zip(kafka.told, here.told, strict=True)
        if got != expected
    ]
    assert not differences, "\n".join(differences)


def test_the_same_is_written_down(sides: tuple[Side, Side]) -> None:
    """What the plays before left in the log: the same records of each group, in the same versions."""
    kafka, here = (_written(side) for side in sides)
    assert "two" in here
    assert {group: here.get(group) for group in kafka} == kafka


def _written(side: Side) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    (file,) = sorted((side.data / "__consumer_offsets-0").glob("*.log"))
    for record in read_records(file.read_bytes()):
        told = decode_record(KINDS, record.key, record.value)
        if isinstance(told.key, GroupMetadataKey) and told.key.group != MADE_BY_KAFKA_ONLY:
            found.setdefault(told.key.group, []).append((told.version, _plain(told.value)))
    return found


def _plain(value: Message | None) -> Any:
    """A record without its times, and ids without their random part."""
    if value is None:
        return None
    assert isinstance(value, GroupMetadataValue)
    members = sorted(UUID.sub("", repr(member)) for member in value.members)
    leader = UUID.sub("", value.leader) if value.leader else value.leader
    return value.protocol_type, value.generation, value.protocol, leader, members
