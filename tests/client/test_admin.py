"""The admin against real brokers: every request is understood, and every answer, and errors have names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from barnabas.client.admin import (
    ALL_BROKERS,
    CLIENT_ID,
    TO_THE_END,
    USER,
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigType,
    CreatedTopic,
    ElectionType,
    FeatureUpdate,
    FeatureUpgrade,
    Match,
    NewPartitions,
    NewTopic,
    QuotaEntity,
    ResourceType,
)
from barnabas.client.errors import (
    BrokerError,
    NoSuchPartition,
    OffsetOutOfRange,
    TopicExists,
    UnknownTopic,
)
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from tests.client.real import Clients, real

DEADLINE_S = 120.0
SETTING = "log.cleaner.backoff.ms"  # of brokers: altered while they run, and of no other test's concern


def administer(bootstrap: str, work: Callable[[Admin, Clients], Awaitable[None]]) -> None:
    """Run `work` with an admin of that cluster."""

    async def whole(clients: Clients) -> None:
        async with clients.admin() as admin:
            await work(admin, clients)

    real(bootstrap, whole)


async def becomes(wanted: object, ask: Callable[[], Awaitable[object]]) -> None:
    """Kafka's brokers learn of a change after it is committed: ask until the answer is what it must be."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while (answer := await ask()) != wanted:
        assert asyncio.get_running_loop().time() < deadline, f"{answer} is not {wanted}"
        await asyncio.sleep(0.02)


async def make(admin: Admin, *topics: NewTopic) -> list[CreatedTopic]:
    """Create topics, and wait until brokers know of them."""
    made = await admin.create_topics(topics)
    await becomes([True] * len(topics), lambda: exist(admin, *(topic.name for topic in topics)))
    return made


async def exist(admin: Admin, *names: str) -> list[bool]:
    there = await admin.list_topics(with_internal=True)
    return [name in there for name in names]


def name_of(caught: pytest.ExceptionInfo[BrokerError]) -> str:
    return caught.value.error.name


# ---- topics ----------------------------------------------------------------------------------------------


def test_topics_are_made_described_and_deleted(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        plain = NewTopic("admin-plain", 2, 1, {"retention.ms": "1000000"})
        placed = NewTopic("admin-placed", assignments={0: [1], 1: [1], 2: [1]})
        made = await make(admin, plain, placed)
        assert [(m.name, m.partitions, m.replication_factor) for m in made] == [
            ("admin-plain", 2, 1),
            ("admin-placed", 3, 1),
        ]
        described = await admin.describe_topics(["admin-plain"])
        topic = described["admin-plain"]
        assert topic.topic_id == made[0].topic_id
        assert [(p.partition, p.leader, p.replicas, p.in_sync) for p in topic.partitions] == [
            (0, 1, [1], [1]),
            (1, 1, [1], [1]),
        ]
        assert await admin.describe_topics(topic_ids=[topic.topic_id]) == described
        await admin.delete_topics(["admin-placed"])
        await admin.delete_topics(topic_ids=[topic.topic_id])
        await becomes([False, False], lambda: exist(admin, "admin-plain", "admin-placed"))
        with pytest.raises(UnknownTopic) as caught:
            await admin.delete_topics(topic_ids=[topic.topic_id])
        assert name_of(caught) == "UNKNOWN_TOPIC_ID"

    administer(bootstrap, work)


def test_partitions_are_described_in_portions(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("admin-portion-a", 3, 1), NewTopic("admin-portion-b", 2, 1))
        whole = await admin.describe_partitions(["admin-portion-b", "admin-portion-a"])
        assert {name: len(topic.partitions) for name, topic in whole.items()} == {
            "admin-portion-a": 3,
            "admin-portion-b": 2,
        }
        assert whole["admin-portion-a"].partitions[0].eligible == []
        in_portions = await admin.describe_partitions(list(whole), partitions_an_answer=1)
        assert in_portions == whole
        with pytest.raises(UnknownTopic):
            await admin.describe_partitions(["admin-portion-a", "admin-portion-none"])

    administer(bootstrap, work)


def test_partitions_are_added(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("admin-grow-a", 1, 1), NewTopic("admin-grow-b", 1, 1))

        async def counts() -> list[int]:
            topics = await admin.describe_topics(["admin-grow-a", "admin-grow-b"])
            return [len(topics[name].partitions) for name in sorted(topics)]

        await admin.create_partitions({"admin-grow-a": 3}, validate_only=True)
        assert await counts() == [1, 1]
        await admin.create_partitions({"admin-grow-a": 3, "admin-grow-b": NewPartitions(2, [[1]])})
        await becomes([3, 2], counts)
        with pytest.raises(BrokerError) as caught:
            await admin.create_partitions({"admin-grow-a": 2, "admin-grow-none": 4})
        names = [name_of(caught), *(other.error.name for other in caught.value.others)]
        assert sorted(names) == ["INVALID_PARTITIONS", "UNKNOWN_TOPIC_OR_PARTITION"]

    administer(bootstrap, work)


def test_what_can_be_done_of_many_is_done(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("admin-many-a", 1, 1))
        with pytest.raises(TopicExists):
            await admin.create_topics([NewTopic("admin-many-a", 1, 1), NewTopic("admin-many-b", 1, 1)])
        await becomes([True, True], lambda: exist(admin, "admin-many-a", "admin-many-b"))
        with pytest.raises(UnknownTopic):
            await admin.delete_topics(["admin-many-none", "admin-many-a"])
        await becomes([False, True], lambda: exist(admin, "admin-many-a", "admin-many-b"))

    administer(bootstrap, work)


# ---- what partitions hold --------------------------------------------------------------------------------


def test_records_are_deleted_and_offsets_found(bootstrap: str) -> None:
    async def work(admin: Admin, clients: Clients) -> None:
        topic = "admin-records"
        await make(admin, NewTopic(topic, 2, 1))
        async with clients.producer() as producer:
            for number in range(10):
                await (await producer.send(topic, b"x", partition=0, timestamp_ms=1000 + number))
        first = TopicPartition(topic, 0)
        found = {
            spec: (await admin.list_offsets({first: spec}))[first].offset
            for spec in (EARLIEST, LATEST, MAX_TIMESTAMP, 1004)
        }
        assert found == {EARLIEST: 0, LATEST: 10, MAX_TIMESTAMP: 9, 1004: 4}
        assert await admin.delete_records({(topic, 0): 4, (topic, 1): TO_THE_END}) == {
            (topic, 0): 4,
            (topic, 1): 0,
        }
        assert (await admin.list_offsets({first: EARLIEST}))[first].offset == 4
        assert await admin.delete_records({(topic, 0): TO_THE_END}) == {(topic, 0): 10}
        with pytest.raises(OffsetOutOfRange):
            await admin.delete_records({(topic, 0): 11})
        with pytest.raises(NoSuchPartition):
            await admin.delete_records({(topic, 7): 1})
        with pytest.raises(UnknownTopic):
            await admin.delete_records({("admin-records-none", 0): 1})

    administer(bootstrap, work)


def test_single_replicas_tell_where_they_end(bootstrap: str) -> None:
    async def work(admin: Admin, clients: Clients) -> None:
        topic = "admin-replicas"
        (made,) = await make(admin, NewTopic(topic, 2, 1))
        async with clients.producer() as producer:
            for number in range(3):
                await (await producer.send(topic, b"x", partition=0, timestamp_ms=5000 + number))
        first, second, none = (TopicPartition(topic, number) for number in (0, 1, 7))
        ends = await admin.replica_ends(1, [first, second, none])
        assert (ends[first], ends[second]) == (3, 0)
        assert isinstance(ends[none], BrokerError)
        assert await admin.timestamp_at(1, first, made.topic_id, 1) == 5001
        assert await admin.timestamp_at(1, first, made.topic_id, 3) is None
        assert await admin.timestamp_at(1, first, made.topic_id, 99) is None

    administer(bootstrap, work)


def test_producers_are_described(bootstrap: str) -> None:
    async def work(admin: Admin, clients: Clients) -> None:
        topic = "admin-producers"
        await make(admin, NewTopic(topic, 2, 1))
        async with clients.producer() as producer:
            for _ in range(3):
                await (await producer.send(topic, b"x", partition=0, timestamp_ms=1234))
        producers = await admin.describe_producers([(topic, 0), (topic, 1)])
        assert producers[TopicPartition(topic, 1)] == []
        (one,) = producers[TopicPartition(topic, 0)]
        assert (one.producer_epoch, one.last_sequence, one.last_timestamp_ms) == (0, 2, 1234)
        assert one.transaction_start_offset is None

    administer(bootstrap, work)


# ---- settings --------------------------------------------------------------------------------------------


def test_settings_of_topics_are_changed(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        topic = "admin-configs"
        await make(admin, NewTopic(topic, 1, 1, {"retention.ms": "86400000"}))
        entries = await admin.describe_configs(
            ResourceType.TOPIC, topic, ["retention.ms"], with_synonyms=True, with_documentation=True
        )
        entry = entries["retention.ms"]
        assert (entry.value, entry.source, entry.type) == ("86400000", ConfigSource.TOPIC, ConfigType.LONG)
        assert entry.synonyms[0] == ("retention.ms", "86400000", ConfigSource.TOPIC)
        assert entry.documentation

        async def own() -> dict[str, str | None]:
            all_of_them = await admin.describe_configs(ResourceType.TOPIC, topic)
            return {n: e.value for n, e in all_of_them.items() if e.source is ConfigSource.TOPIC}

        append = ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND)
        remove = ConfigChange("retention.ms", None, ConfigOperation.DELETE)
        bytes_ = ConfigChange("segment.bytes", "2000000")
        changes = [append, remove, bytes_]
        await admin.alter_configs(ResourceType.TOPIC, topic, changes, validate_only=True)
        assert await own() == {"retention.ms": "86400000"}
        await admin.alter_configs(ResourceType.TOPIC, topic, changes)
        await becomes({"cleanup.policy": "delete,compact", "segment.bytes": "2000000"}, own)
        subtract = ConfigChange("cleanup.policy", "delete", ConfigOperation.SUBTRACT)
        await admin.alter_configs(ResourceType.TOPIC, topic, [subtract])
        await becomes({"cleanup.policy": "compact", "segment.bytes": "2000000"}, own)
        for wrong in (ConfigChange("segment.bytes", "many"), ConfigChange("no.such.setting", "1")):
            with pytest.raises(BrokerError) as caught:
                await admin.alter_configs(ResourceType.TOPIC, topic, [wrong])
            assert name_of(caught) == "INVALID_CONFIG"

    administer(bootstrap, work)


def test_one_setting_of_many_topics(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("admin-one", 1, 1), NewTopic("admin-two", 1, 1, {"retention.ms": "5000"}))
        found = await admin.describe_topic_setting(["admin-one", "admin-two", "admin-none"], "retention.ms")
        assert found == {"admin-one": "604800000", "admin-two": "5000"}
        assert await admin.describe_topic_setting([], "retention.ms") == {}

    administer(bootstrap, work)


def test_settings_of_one_broker_and_of_all(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        async def of_broker() -> tuple[str | None, ConfigSource]:
            entries = await admin.describe_configs(ResourceType.BROKER, "1", [SETTING])
            return entries[SETTING].value, entries[SETTING].source

        remove = ConfigChange(SETTING, None, ConfigOperation.DELETE)
        await admin.alter_configs(ResourceType.BROKER, ALL_BROKERS, [ConfigChange(SETTING, "15001")])
        await becomes(("15001", ConfigSource.ALL_BROKERS), of_broker)
        assert (await admin.describe_configs(ResourceType.BROKER, ALL_BROKERS))[SETTING].value == "15001"
        await admin.alter_configs(ResourceType.BROKER, "1", [ConfigChange(SETTING, "15002")])
        await becomes(("15002", ConfigSource.BROKER), of_broker)
        await admin.alter_configs(ResourceType.BROKER, "1", [remove])
        await becomes(("15001", ConfigSource.ALL_BROKERS), of_broker)
        await admin.alter_configs(ResourceType.BROKER, ALL_BROKERS, [remove])
        await becomes(("15000", ConfigSource.DEFAULT), of_broker)

    administer(bootstrap, work)


def test_loggers_are_set(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        levels = await admin.describe_configs(ResourceType.BROKER_LOGGER, "1")
        name = min(levels)
        change = ConfigChange(name, "DEBUG")
        await admin.alter_configs(ResourceType.BROKER_LOGGER, "1", [change])
        after = await admin.describe_configs(ResourceType.BROKER_LOGGER, "1")
        assert (after[name].value, after[name].source) == ("DEBUG", ConfigSource.BROKER_LOGGER)
        await admin.alter_configs(ResourceType.BROKER_LOGGER, "1", [change._replace(value="WARN")])

    administer(bootstrap, work)


def test_what_has_settings_is_listed(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        topic = "admin-resources"
        await make(admin, NewTopic(topic, 1, 1))
        await admin.alter_configs(
            ResourceType.GROUP, "admin-group", [ConfigChange("consumer.session.timeout.ms", "50000")]
        )
        wanted = {
            ConfigResource(ResourceType.TOPIC, topic),
            ConfigResource(ResourceType.BROKER, "1"),
            ConfigResource(ResourceType.GROUP, "admin-group"),
        }

        async def listed() -> set[ConfigResource]:
            return wanted & set(await admin.list_config_resources())

        await becomes(wanted, listed)
        groups = await admin.list_config_resources([ResourceType.GROUP])
        assert {resource.type for resource in groups} == {ResourceType.GROUP}

    administer(bootstrap, work)


# ---- the cluster -----------------------------------------------------------------------------------------


def test_the_cluster_is_described(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        cluster = await admin.describe_cluster(with_fenced=True)
        (broker,) = cluster.brokers
        assert (broker.node_id, str(broker.address), broker.is_fenced) == (1, bootstrap, False)
        assert len(cluster.cluster_id) == 22
        versions = await admin.api_versions()
        assert versions[18] == (0, 4)
        assert await admin.api_versions(1) == versions

    administer(bootstrap, work)


def test_the_quorum_is_described(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        quorum = await admin.describe_quorum()
        (voter,) = quorum.voters
        assert (quorum.leader_id, voter.node_id, quorum.observers) == (1, 1, [])
        assert voter.log_end_offset >= quorum.high_watermark > 0
        assert "CONTROLLER" in quorum.endpoints[1]

    administer(bootstrap, work)


def test_features_are_described_and_updates_of_them_judged(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        features = await admin.describe_features()
        assert features.finalized["metadata.version"] == (30, 30)
        assert features.supported["metadata.version"].last == 30
        assert features.finalized_epoch is not None
        down = FeatureUpdate(29, FeatureUpgrade.UNSAFE_DOWNGRADE)
        with pytest.raises(BrokerError) as caught:
            await admin.update_features({"metadata.version": down}, validate_only=True)
        assert name_of(caught) == "INVALID_UPDATE_VERSION"
        with pytest.raises(BrokerError) as caught:
            await admin.update_features({"no.such.feature": 1})
        assert name_of(caught) == "INVALID_UPDATE_VERSION"
        assert (await admin.describe_features()).finalized == features.finalized

    administer(bootstrap, work)


def test_log_directories_are_described(bootstrap: str) -> None:
    async def work(admin: Admin, clients: Clients) -> None:
        topic = "admin-dirs"
        await make(admin, NewTopic(topic, 2, 1))
        async with clients.producer() as producer:
            await (await producer.send(topic, b"x" * 1000, partition=1))

        async def logs() -> list[int]:
            of_brokers = await admin.describe_log_dirs(topics=[topic])
            return sorted(each.partition for one in of_brokers[1].values() for each in one.replicas)

        await becomes([0, 1], logs)
        ((path, directory),) = (await admin.describe_log_dirs(topics=[topic]))[1].items()
        assert path
        assert directory.error is None
        assert directory.replicas[TopicPartition(topic, 0)].size_bytes == 0
        assert directory.replicas[TopicPartition(topic, 1)].size_bytes > 1000
        everything = await admin.describe_log_dirs([1])
        assert set(directory.replicas) <= set(everything[1][path].replicas)

    administer(bootstrap, work)


def test_a_broker_that_never_was_is_not_unregistered(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        with pytest.raises(BrokerError) as caught:
            await admin.unregister_broker(77)
        assert name_of(caught) == "BROKER_ID_NOT_REGISTERED"

    administer(bootstrap, work)


# ---- replicas, quotas ------------------------------------------------------------------------------------


def test_leaders_are_elected_and_partitions_moved(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        topic = "admin-leaders"
        await make(admin, NewTopic(topic, 1, 1))
        elected = await admin.elect_leaders(ElectionType.PREFERRED, [(topic, 0), (topic, 9)])
        told = {each.partition: error.error.name for each, error in elected.items() if error is not None}
        assert told == {0: "ELECTION_NOT_NEEDED", 9: "UNKNOWN_TOPIC_OR_PARTITION"}
        assert await admin.elect_leaders(ElectionType.UNCLEAN) == {}
        assert await admin.list_reassignments() == {}
        assert await admin.list_reassignments([(topic, 0)]) == {}
        await admin.alter_reassignments({(topic, 0): [1]})
        with pytest.raises(BrokerError) as caught:
            await admin.alter_reassignments({(topic, 0): None})
        assert name_of(caught) == "NO_REASSIGNMENT_IN_PROGRESS"
        with pytest.raises(BrokerError) as caught:
            await admin.alter_reassignments({(topic, 0): [1, 7]})
        assert name_of(caught) == "INVALID_REPLICA_ASSIGNMENT"

    administer(bootstrap, work)


def test_quotas_are_set_and_taken_away(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        one = QuotaEntity.of({USER: "barnabas"})
        others = QuotaEntity.of({USER: None, CLIENT_ID: "castle"})
        await admin.alter_client_quotas(
            {one: {"producer_byte_rate": 1e6}, others: {"request_percentage": 50.0}}
        )

        async def matching(*matches: Match, is_strict: bool = False) -> set[QuotaEntity]:
            return set(await admin.describe_client_quotas(matches, is_strict=is_strict))

        await becomes({one, others}, matching)
        assert (await admin.describe_client_quotas([Match(USER, "barnabas")]))[one] == {
            "producer_byte_rate": 1e6
        }
        assert await matching(Match(USER)) == {others}
        assert await matching(Match(USER, is_any=True)) == {one, others}
        assert await matching(Match(USER, is_any=True), is_strict=True) == {one}
        with pytest.raises(BrokerError) as caught:
            await admin.alter_client_quotas({one: {"no_such_quota": 1.0}})
        assert name_of(caught) == "INVALID_REQUEST"
        await admin.alter_client_quotas(
            {one: {"producer_byte_rate": None}, others: {"request_percentage": None}}
        )
        await becomes(set(), matching)

    administer(bootstrap, work)
