"""Groups of real clients, alone and mixed: every record is read, and nothing is owned twice at one time.

Members come and go, hang, die, are slow or are replaced, and their broker dies. What they told is judged by
tests/support/group_history.py. Groups of all assignors, or of all clients, go through the same steps side by
side, since sessions take time to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.support.group_history import Partition
from tests.support.group_members import (
    ALL,
    ASSIGNORS,
    NEW_JAVA,
    OLD_JAVA,
    SETTINGS,
    Group,
    Groups,
    Hosts,
    Member,
    is_here,
)
from tests.support.targets import Target, make_target

SHORT_MS = 3000
LONG_MS = 60_000
MARKS = {
    "kafkajs": pytest.mark.node,
    "franz-go": pytest.mark.go,
    NEW_JAVA: pytest.mark.java,
    OLD_JAVA: pytest.mark.java,
}


@pytest.fixture(scope="module")
def group_bootstrap(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for groups that do not wait for members to come, or long for those that are gone."""
    target = make_target(target_kind, tmp_path_factory.mktemp("target"), SETTINGS)
    target.start()
    yield target.bootstrap
    target.stop()


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Processes in which members of groups live."""
    hosts = Hosts()
    yield hosts
    hosts.end()


@pytest.mark.parametrize("client", [pytest.param(each, marks=MARKS.get(each, ())) for each in ASSIGNORS])
def test_members_of_one_client_come_and_go(hosts: Hosts, group_bootstrap: str, client: str) -> None:
    chosen = {name: [name] for name in ASSIGNORS[client]}
    with Groups(hosts, group_bootstrap, client, chosen) as all_:
        first = [group.join(client) for group in all_.groups]
        all_.settle()
        for group in all_.groups:
            group.join(client)
            group.join(client)
        all_.settle()
        for group, member in zip(all_.groups, first, strict=True):
            group.leave(member)
        all_.settle()
        all_.finish(once=True)


def test_clients_with_a_common_assignor_share_a_group_and_are_restarted_one_by_one(
    hosts: Hosts, group_bootstrap: str
) -> None:
    clients = {
        name: [each for each in ASSIGNORS if name in ASSIGNORS[each] and is_here(each)] for name in ALL
    }
    with Groups(hosts, group_bootstrap, "mixed", {name: [name] for name in ALL}) as all_:
        for group, those in zip(all_.groups, clients.values(), strict=True):
            for client in those:
                group.join(client)
        all_.settle()
        for group in all_.groups:
            assert described(group) == group.history.owned()
        for turn in range(max(map(len, clients.values()))):
            for group, those in zip(all_.groups, clients.values(), strict=True):
                if turn < len(those):
                    group.leave(group.members[0])
                    group.join(those[turn])
            all_.settle()
        all_.finish(once=True)


def described(group: Group) -> dict[str, set[Partition]]:
    """Who has what, as the broker sees it."""
    admin = AdminClient({"bootstrap.servers": group.bootstrap})
    found = admin.describe_consumer_groups([group.name])[group.name].result(30)
    assert found.state == ConsumerGroupState.STABLE
    assert [found.partition_assignor] == group.assignors
    return {
        member.client_id: {
            Partition(each.topic, each.partition) for each in member.assignment.topic_partitions
        }
        for member in found.members
    }


@pytest.mark.java
def test_a_group_moves_from_an_eager_to_a_cooperative_assignor_without_stopping(
    hosts: Hosts, group_bootstrap: str
) -> None:
    # librdkafka and kafka-python refuse both kinds in one list
    clients = [each for each in (NEW_JAVA, OLD_JAVA, "franz-go") if is_here(each)]
    steps = (["range"], ["cooperative-sticky", "range"], ["cooperative-sticky"])
    with Groups(hosts, group_bootstrap, "upgrade", {"eager": steps[0]}) as all_:
        (group,) = all_.groups
        for client in clients:
            group.join(client)
        all_.settle()
        for assignors in steps[1:]:
            for client in clients:
                group.leave(group.members[0])
                group.join(client, assignors=assignors)
                all_.settle()
        group.assignors = steps[-1]
        assert described(group) == group.history.owned()
        all_.finish(once=True)


def each_with(hosts: Hosts, bootstrap: str, prefix: str, clients: list[str]) -> Groups:
    """A group for each of these clients."""
    chosen = {client: [ASSIGNORS[client][-1]] for client in clients}
    # kafka-python's cooperative assignor gives a member that was missed what another one still has
    chosen["kafka-python"] = ["sticky"]
    return Groups(hosts, bootstrap, prefix, chosen)


def test_a_member_that_hangs_is_missed_comes_back_and_dies(hosts: Hosts, group_bootstrap: str) -> None:
    clients = [client for client in ASSIGNORS if is_here(client)]
    with each_with(hosts, group_bootstrap, "hanging", clients) as all_:
        victims: list[tuple[Group, Member]] = []
        for group, client in zip(all_.groups, clients, strict=True):
            group.join(client)
            victims.append((group, group.join(client, host=hosts.own(client), session_ms=SHORT_MS)))
        all_.settle()
        for group, victim in victims:
            victim.host.freeze()
            group.forget(victim)
        all_.settle()
        for group, victim in victims:
            victim.host.thaw()
            group.members.append(victim)
        all_.settle()
        for group, victim in victims:
            victim.host.kill()
            group.forget(victim)
        all_.settle()
        all_.finish(once=False)


def test_a_member_that_polls_too_late_leaves_and_comes_back(hosts: Hosts, group_bootstrap: str) -> None:
    # kafkajs and franz-go know no such limit
    clients = [each for each in ASSIGNORS if each not in ("kafkajs", "franz-go") and is_here(each)]
    with each_with(hosts, group_bootstrap, "slow", clients) as all_:
        slow = []
        for group, client in zip(all_.groups, clients, strict=True):
            group.join(client)
            slow.append(group.join(client, session_ms=SHORT_MS, poll_ms=SHORT_MS))
        all_.settle()
        for group, member in zip(all_.groups, slow, strict=True):
            member.stall()
            group.forget(member)
        all_.settle()
        for group, member in zip(all_.groups, slow, strict=True):
            member.resume()
            group.members.append(member)
        all_.settle()
        all_.finish(once=False)


def test_a_static_member_is_restarted_and_nobody_else_notices(hosts: Hosts, group_bootstrap: str) -> None:
    clients = [each for each in ASSIGNORS if each != "kafkajs" and is_here(each)]
    with each_with(hosts, group_bootstrap, "static", clients) as all_:
        for group, client in zip(all_.groups, clients, strict=True):
            for instance in ("first", "second", "third"):
                group.join(client, instance=instance, session_ms=LONG_MS)
        all_.settle()
        before = [group.parts() for group in all_.groups]
        calls = [changes(group) for group in all_.groups]
        for position, instance in enumerate(("first", "second")):  # one of them may be the leader
            for group, client in zip(all_.groups, clients, strict=True):
                group.leave(group.members[position])
                group.join(client, instance=instance, session_ms=LONG_MS)
                group.members.insert(position, group.members.pop())
            all_.settle()
        assert [group.parts() for group in all_.groups] == before
        # those who came back were told once each, and so were those who went, and nobody else
        after = [changes(group) for group in all_.groups]
        assert [now - then for now, then in zip(after, calls, strict=True)] == [4] * len(clients)
        all_.finish(once=True)


def changes(group: Group) -> int:
    """How often somebody was given or lost something."""
    return sum(1 for event in group.history.events("assigned", "revoked", "lost") if event.partitions)


def test_a_namesake_of_a_static_member_takes_its_place(hosts: Hosts, group_bootstrap: str) -> None:
    # aiokafka does not tell its instance with heartbeats: it is not fenced, but forgotten
    clients = [each for each in ASSIGNORS if each not in ("kafkajs", "aiokafka") and is_here(each)]
    with each_with(hosts, group_bootstrap, "namesake", clients) as all_:
        for group, client in zip(all_.groups, clients, strict=True):
            group.join(client, instance="one", session_ms=LONG_MS)
            group.join(client, instance="other", session_ms=LONG_MS)
        all_.settle()
        fenced = []
        for group, client in zip(all_.groups, clients, strict=True):
            fenced.append(group.members[0])
            group.replace(group.members[0])
            group.join(client, instance="one", session_ms=LONG_MS)
        for group, member in zip(all_.groups, fenced, strict=True):
            group.wait(lambda: group.history.events("failed", member=member.name), "fencing")  # noqa: B023
            (failed,) = group.history.events("failed", member=member.name)
            assert "fenced" in failed.why.lower(), failed
        all_.settle()
        all_.finish(once=False)


def test_the_broker_dies_and_groups_go_on(
    hosts: Hosts, new_target: Callable[[Mapping[str, str]], Target]
) -> None:
    target = new_target(SETTINGS)
    clients = {
        name: [each for each in ASSIGNORS if name in ASSIGNORS[each] and is_here(each)] for name in ALL
    }
    chosen = {name: [name] for name in ("roundrobin", "cooperative-sticky")}
    with Groups(hosts, target.bootstrap, "restarts", chosen) as all_:
        for group in all_.groups:
            for client in clients[group.assignors[0]]:
                group.join(client, session_ms=30_000)
        all_.settle()
        for end in (target.kill, target.stop):
            end()
            target.start()
            all_.settle()
        all_.finish(once=False)
