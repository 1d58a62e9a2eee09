"""The image: what each record does to it, transactions, and the snapshot that makes an equal one."""

from __future__ import annotations

import pytest

from barnabas.core.errors import InvariantViolation
from barnabas.metadata import records as r
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from barnabas.metadata.parts import ListenerImage
from barnabas.metadata.replay import Replayer
from barnabas.protocol.schema import Message
from tests.metadata.kafka_life import KafkaLife
from tests.support.images import contents, image_of, replayed, to_records

ID, OTHER, DIRECTORY = b"i" * 16, b"o" * 16, b"d" * 16


def broker(broker_id: int = 1, *, epoch: int = 5, fenced: bool = True) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=ID,
        broker_epoch=epoch,
        end_points=[r.Endpoint(name="PLAINTEXT", host="here", port=9092, security_protocol=0)],
        features=[r.Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack="a",
        fenced=fenced,
        log_dirs=[DIRECTORY],
    )


def partition(index: int = 0, *, topic_id: bytes = ID) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=3,
        partition_epoch=4,
        directories=[DIRECTORY, DIRECTORY],
    )


TOPIC = r.TopicRecord(name="t", topic_id=ID)


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = image_of(TOPIC, partition(0), partition(1))
    topic = image.topic("t")
    assert topic is not None
    assert image.topic_by_id(ID) is topic
    assert len(topic.partitions) == 2
    assert topic.partition(2) is None
    assert topic.partition(-1) is None
    assert topic.partitions[0].leader == 1
    assert topic.partitions[0].directories == (DIRECTORY, DIRECTORY)
    assert image.topic("other") is None
    assert image.topic_by_id(OTHER) is None


def test_a_removed_topic_takes_its_settings_along() -> None:
    setting = r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="1")
    image = image_of(TOPIC, partition(), setting)
    assert image.topic_config("t") == {"retention.ms": "1"}
    image = replayed(image, r.RemoveTopicRecord(topic_id=ID))
    assert image == ClusterImage()
    image = replayed(image, r.TopicRecord(name="t", topic_id=OTHER))
    assert image.topic_config("t") == {}


def test_a_change_of_leader_is_a_new_leader_epoch_even_to_the_same_leader() -> None:
    image = image_of(TOPIC, partition())
    image = replayed(image, r.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1]))
    changed = image.topics_by_id[ID].partitions[0]
    assert (changed.isr, changed.leader, changed.leader_epoch, changed.partition_epoch) == ((1,), 1, 3, 5)
    image = replayed(
        image, r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1, leader_recovery_state=1)
    )
    changed = image.topics_by_id[ID].partitions[0]
    assert (changed.isr, changed.leader_epoch, changed.partition_epoch) == ((1,), 4, 6)
    assert changed.leader_recovery_state == 1
    image = replayed(image, r.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[], leader=-1))
    assert image.topics_by_id[ID].partitions[0].isr == ()
    assert image.topics_by_id[ID].partitions[0].leader_recovery_state == 1


def test_what_a_reader_holds_does_not_change() -> None:
    image = image_of(TOPIC, partition(), broker())
    held = image.topics_by_id[ID].partitions[0], image.brokers[1]
    image = replayed(image, r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2))
    image = replayed(image, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))
    assert (held[0].leader, held[1].fenced) == (1, True)
    assert (image.topics_by_id[ID].partitions[0].leader, image.brokers[1].fenced) == (2, False)


def test_replicas_that_move_without_a_word_on_directories_may_be_in_any() -> None:
    image = image_of(TOPIC, partition())
    image = replayed(image, r.PartitionChangeRecord(partition_id=0, topic_id=ID, replicas=[1, 2, 3]))
    assert image.topics_by_id[ID].partitions[0].directories == (bytes(16),) * 3


def test_elr_is_cleared_for_one_topic_or_for_all() -> None:
    told = [
        TOPIC,
        partition(),
        r.TopicRecord(name="u", topic_id=OTHER),
        partition(topic_id=OTHER),
        *(
            r.PartitionChangeRecord(partition_id=0, topic_id=each, eligible_leader_replicas=[3])
            for each in (ID, OTHER)
        ),
    ]
    one, both = image_of(*told), image_of(*told)
    one = replayed(one, r.ClearElrRecord(topic_name="t"))
    assert [topic.partitions[0].elr for topic in (one.topics_by_name["t"], one.topics_by_name["u"])] == [
        (),
        (3,),
    ]
    both = replayed(both, r.ClearElrRecord(topic_name=""))
    assert [topic.partitions[0].elr for topic in both.topics_by_name.values()] == [(), ()]
    assert [topic.partitions[0].partition_epoch for topic in both.topics_by_name.values()] == [6, 6]


def test_a_broker_is_fenced_and_let_go() -> None:
    image = image_of(broker())
    assert image.brokers[1].endpoints == {"PLAINTEXT": ListenerImage("here", 9092, 0)}
    assert not image.brokers[1].is_active
    image = replayed(image, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))
    assert image.brokers[1].is_active
    image = replayed(
        image, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1)
    )
    assert (image.brokers[1].is_active, image.brokers[1].fenced) == (False, False)
    image = replayed(image, r.FenceBrokerRecord(id=1, epoch=5))
    assert image.brokers[1].fenced
    image = replayed(image, r.UnfenceBrokerRecord(id=1, epoch=5))
    assert not image.brokers[1].fenced
    image = replayed(image, r.UnregisterBrokerRecord(broker_id=1, broker_epoch=5))
    assert image.brokers == {}


def test_settings_are_set_and_forgotten() -> None:
    def setting(name: str, value: str | None) -> r.ConfigRecord:
        return r.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=name, value=value)

    image = image_of(setting("a", "1"), setting("b", "2"), setting("a", "3"))
    assert image.broker_config() == {"a": "3", "b": "2"}
    image = replayed(image, setting("a", None))
    image = replayed(image, setting("never.set", None))
    assert image.broker_config() == {"b": "2"}
    image = replayed(image, setting("b", None))
    assert len(image.configs) == 0


def test_a_transaction_takes_effect_when_it_ends() -> None:
    replayer = Replayer(ClusterImage())
    assert replayer.replay(0, 1, [r.BeginTransactionRecord(name="both"), TOPIC]) == []
    assert replayer.replay(2, 1, [partition()]) == []
    assert replayer.in_transaction
    assert replayer.image == ClusterImage()
    ((image, delta),) = replayer.replay(3, 2, [r.EndTransactionRecord()])
    assert not replayer.in_transaction
    assert image is replayer.image
    assert (image.offset, image.epoch) == (4, 2)
    assert contents(image) == image_of(TOPIC, partition())
    assert (delta.base, list(delta.changed_partitions)) == (ClusterImage(), [(ID, 0)])


def test_an_aborted_transaction_leaves_nothing() -> None:
    aborted = [r.BeginTransactionRecord(), partition(), r.AbortTransactionRecord(reason="failover")]
    assert image_of(TOPIC, *aborted) == image_of(TOPIC)
    replayer = Replayer(ClusterImage())
    first, last = replayer.replay(0, 1, [TOPIC, *aborted])  # what is before the transaction counts
    assert (first.image.offset, last.image.offset) == (1, 4)
    assert last.delta.is_empty
    assert contents(last.image) == image_of(TOPIC)


@pytest.mark.parametrize(
    "record",
    [
        r.EndTransactionRecord(),
        r.AbortTransactionRecord(),
        TOPIC,
        r.TopicRecord(name="other", topic_id=ID),
        r.RemoveTopicRecord(topic_id=OTHER),
        r.ClearElrRecord(topic_name="other"),
        partition(topic_id=OTHER),
        r.PartitionChangeRecord(partition_id=7, topic_id=ID, isr=[1]),
        r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5, fenced=1),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=1),
        r.UnregisterBrokerRecord(broker_id=1, broker_epoch=6),
        r.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
        r.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=2000),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_contradicts_the_image_stops_the_node(record: Message) -> None:
    ids = r.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=2000)
    with pytest.raises(InvariantViolation):
        image_of(TOPIC, partition(), broker(), ids, record)


def test_a_transaction_does_not_begin_inside_another() -> None:
    with pytest.raises(InvariantViolation):
        image_of(r.BeginTransactionRecord(), r.BeginTransactionRecord())


def test_a_later_metadata_version_is_refused() -> None:
    with pytest.raises(r.UnknownRecord, match="31"):
        image_of(r.FeatureLevelRecord(name="metadata.version", feature_level=31))


def test_a_feature_at_level_0_is_off() -> None:
    levels = [r.FeatureLevelRecord(name="group.version", feature_level=level) for level in (1, 0)]
    assert image_of(*levels).features == {}


KEPT: list[tuple[Message, Message]] = [
    (
        r.UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        r.RemoveUserScramCredentialRecord(name="u", mechanism=1),
    ),
    (
        r.AccessControlEntryRecord(
            id=ID,
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:u",
            host="*",
            operation=3,
            permission_type=3,
        ),
        r.RemoveAccessControlEntryRecord(id=ID),
    ),
    (
        r.DelegationTokenRecord(
            owner="User:u",
            requester="User:u",
            renewers=["User:v"],
            issue_timestamp=1,
            max_timestamp=2,
            expiration_timestamp=3,
            token_id="token",
        ),
        r.RemoveDelegationTokenRecord(token_id="token"),
    ),
    (
        r.ClientQuotaRecord(
            entity=[r.QuotaEntity(entity_type="user", entity_name=None)], key="rate", value=1.0, remove=False
        ),
        r.ClientQuotaRecord(
            entity=[r.QuotaEntity(entity_type="user", entity_name=None)], key="rate", value=0.0, remove=True
        ),
    ),
]


@pytest.mark.parametrize(("told", "removal"), KEPT, ids=lambda record: type(record).__name__)
def test_what_is_not_served_yet_survives_in_snapshots(told: Message, removal: Message) -> None:
    image = image_of(told)
    assert to_records(image) == [told]
    image = replayed(image, removal)
    assert image == ClusterImage()


def test_a_snapshot_is_in_order_whatever_the_order_of_events() -> None:
    topics = [r.TopicRecord(name=name, topic_id=name.encode() * 16) for name in "cab"]
    levels = [r.FeatureLevelRecord(name=n, feature_level=1) for n in ("a.version", "metadata.version")]
    forwards, backwards = image_of(*topics, *levels), image_of(*levels[::-1], *topics[::-1])
    assert to_records(forwards) == to_records(backwards)
    assert to_records(forwards)[0] == levels[1]
    assert [record.name for record in to_records(forwards)[2:] if isinstance(record, r.TopicRecord)] == [
        *"abc"
    ]


def test_every_record_of_kafka_is_replayed() -> None:
    from barnabas.metadata.delta import _REPLAYS

    of_transactions = {r.BeginTransactionRecord, r.EndTransactionRecord, r.AbortTransactionRecord}
    assert set(_REPLAYS) | of_transactions == set(r.RECORDS.values())


def test_kafkas_log_and_its_snapshot_make_the_same_image(kafka_life: KafkaLife) -> None:
    of_log = image_of(
        *(r.decode_record(value.data) for value in kafka_life.log if value.offset < kafka_life.snapshot_end)
    )
    told = [r.decode_record(data) for data in kafka_life.snapshot]
    of_snapshot = image_of(*told)
    assert of_log == of_snapshot
    assert of_log.topic("first") is not None
    # Kafka's own order, but for that of features and such among themselves
    assert [type(each) for each in to_records(of_log)] == [type(each) for each in told]
    assert image_of(*to_records(of_log)) == of_log
