"""A data directory moves between Apache Kafka and Barnabas, back and forth, after clean stops and kills.

Each of them finds all that the other left (see moving.py), works on it, and leaves it to the next. The same
server.properties serves both. Nothing here looks at files, but for what no client can see yet.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from barnabas.broker.storage.formatting import METADATA_DIRECTORY
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from tests.interop.dump import dump
from tests.interop.moving import WAIT_S, Doing, OneDirectory, latest, look, records_of
from tests.interop.workload import wait_until
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.java, pytest.mark.slow]  # nodes are started on one directory, again and again

NEVER_MS = "9000000000000"
PRODUCER = 4_000_000
STARTED_MS = int(time.time() * 1000)
# what is finalised and not served is kept, and shown to nobody
SERVED_FEATURES = ("metadata.version", "eligible.leader.replicas.version", "transaction.version")
GROUPS = ["readers", "writers"]
METADATA_LOGS = f"{METADATA_DIRECTORY}/*.log"
INTERNAL = ("__consumer_offsets-0/*.log", "__transaction_state-0/*.log")


def port_of(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


def begin(bootstrap: str) -> None:
    """One of everything, by Kafka."""
    doing = Doing(bootstrap)
    doing.create("codecs", 2, segment_index_bytes="4096")
    doing.create("deleted")
    doing.create("transactions")
    doing.create("open")
    doing.create("stamped", message_timestamp_type="LogAppendTime", retention_ms="-1")
    doing.create(
        "compacted",
        cleanup_policy="compact",
        segment_ms="1",
        min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms=NEVER_MS,
    )
    doing.create("beheaded")
    doing.create("sequences")
    doing.every_codec("codecs", "kafka")
    doing.produce("deleted", [(None, b"gone")])
    doing.transactions("transactions", "kafka")
    doing.produce("stamped", [(b"k", b"v"), (b"k", None)])
    doing.produce("beheaded", [(None, b"%d" % number) for number in range(40)])
    rewrite(doing, "kafka")
    doing.delete("deleted")
    doing.delete_records("beheaded", 4)
    doing.alter(ResourceType.BROKER, "1", log_cleaner_threads="2")
    doing.alter(ResourceType.BROKER, "", log_retention_ms="8000000000")
    for number, group in enumerate(GROUPS):
        doing.commit(group, "codecs", 3 + number)
    left_open = doing.transactional("left-open")
    left_open.begin_transaction()
    doing.send(left_open, "open", [(b"k", b"undecided")])
    doing.produce("open", [(b"k", b"behind it")])


def rewrite(doing: Doing, word: str) -> None:
    """The same keys again and again, each batch in a segment of its own."""
    for round_number in range(4):
        values = [(b"key %d" % key, f"{word} {round_number} {key}".encode() * 20) for key in range(5)]
        values.append((b"dead", None if round_number == 3 else b"alive"))
        doing.produce("compacted", values)


def compact(bootstrap: str) -> None:
    """Let whoever serves compact what is there, and see it done."""
    doing, before = Doing(bootstrap), records_of(bootstrap, "compacted")
    doing.alter(ResourceType.TOPIC, "compacted", min_compaction_lag_ms="0")
    wait_until(
        lambda: len(records_of(bootstrap, "compacted")) <= len(before) // 2, "the topic to be compacted"
    )
    doing.alter(ResourceType.TOPIC, "compacted", min_compaction_lag_ms=NEVER_MS)
    assert latest(records_of(bootstrap, "compacted")) == latest(before)


def work(bootstrap: str, word: str) -> None:
    """What an administrator and clients do, with whoever serves."""
    doing = Doing(bootstrap)
    doing.create(f"by-{word}", 3, retention_ms="123456789000", cleanup_policy="compact,delete")
    doing.create(f"doomed-by-{word}")
    doing.every_codec(f"by-{word}", word)
    doing.every_codec("codecs", word)
    doing.produce("codecs", [(b"k", word.encode())], partition=1)
    doing.produce("stamped", [(word.encode(), b"again")])
    doing.produce("open", [(b"k", f"behind it, {word}".encode())])
    doing.delete(f"doomed-by-{word}")
    doing.add_partitions(f"by-{word}", 5)
    doing.produce(f"by-{word}", [(b"k", b"in a new partition")], partition=4)
    doing.delete_records("beheaded", 4 + len(word))
    doing.alter(ResourceType.TOPIC, "codecs", segment_index_bytes=None, max_message_bytes="2000000")
    # not unset: Kafka starts with what its newest snapshot says of that, even if the log takes it back
    doing.alter(ResourceType.BROKER, "1", log_cleaner_threads=str(1 + len(word) % 2))
    doing.alter(ResourceType.BROKER, "", message_max_bytes=str(1_500_000 + len(word)))


# ---- what confluent-kafka cannot ask ---------------------------------------------------------------------


def send_in_sequence(bootstrap: str, sequence: int) -> tuple[int, int]:
    """One record of an idempotent producer that knows only its own sequence; error and offset."""
    batch = build_batch(
        # not from long ago: Kafka forgets producers by the time of their last record
        [Record(0, STARTED_MS + sequence, b"k", b"%d" % sequence)],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name="sequences", partition_data=[data])],
    )
    with RawClient(port_of(bootstrap)) as client:
        answer = client.ask(request, 9, ProduceResponse)
    (partition,) = answer.responses[0].partition_responses
    return partition.error_code, partition.base_offset


def new_producer_id(bootstrap: str) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    given: list[int] = []

    def is_given() -> bool:  # a broker that has none left asks its controller first, and clients try again
        with RawClient(port_of(bootstrap)) as client:
            answer = client.ask(request, 4, InitProducerIdResponse)
        given.append(answer.producer_id)
        return answer.error_code == 0

    wait_until(is_given, "a producer id")
    return given[-1]


def levels(bootstrap: str) -> dict[str, int]:
    """The features that are finalised."""
    with RawClient(port_of(bootstrap)) as client:
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        answer = client.ask(request, 4, ApiVersionsResponse)
    return {each.name: each.max_version_level for each in answer.finalized_features}


def raise_level(bootstrap: str, name: str, level: int) -> None:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
    request = UpdateFeaturesRequest(feature_updates=[update], validate_only=False)
    with RawClient(port_of(bootstrap)) as client:
        answer = client.ask(request, 2, UpdateFeaturesResponse)
    assert answer.error_code == 0, answer.error_message


def set_quota(bootstrap: str) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name="k")],
        ops=[OpData(key="producer_byte_rate", value=12345.0, remove=False)],
    )
    with RawClient(port_of(bootstrap)) as client:
        answer = client.ask(
            AlterClientQuotasRequest(entries=[entry], validate_only=False), 1, AlterClientQuotasResponse
        )
    assert [each.error_code for each in answer.entries] == [0]


def quotas(bootstrap: str) -> list[Any]:
    with RawClient(port_of(bootstrap)) as client:
        request = DescribeClientQuotasRequest(components=[], strict=False)
        answer = client.ask(request, 1, DescribeClientQuotasResponse)
    return [
        (entity.entity_type, entity.entity_name, value.key, value.value)
        for entry in answer.entries or []
        for entity in entry.entity
        for value in entry.values
    ]


# ---- the moves -------------------------------------------------------------------------------------------


def test_back_and_forth_with_everything(tmp_path: Path) -> None:
    moving = OneDirectory(tmp_path)
    with moving.kafka() as kafka:
        begin(kafka.bootstrap)
        set_quota(kafka.bootstrap)
        assert send_in_sequence(kafka.bootstrap, 0) == (0, 0)
        features, given = levels(kafka.bootstrap), new_producer_id(kafka.bootstrap)
        seen = look(kafka.bootstrap)
        offsets = Doing(kafka.bootstrap).committed(GROUPS, "codecs")
    assert "deleted" not in seen["topics"]
    assert len(seen["committed"]["transactions-0"]) == 4
    assert len(seen["records"]["transactions-0"]) == 6
    assert seen["committed"]["open-0"] == []  # all of it is behind the transaction that is left open

    groups = moving.files(*INTERNAL)
    with moving.barnabas() as barnabas:
        bootstrap = f"127.0.0.1:{barnabas.port}"
        assert bootstrap == kafka.bootstrap
        assert look(bootstrap) == seen
        assert levels(bootstrap) == {name: features[name] for name in SERVED_FEATURES}
        assert quotas(bootstrap) == [("user", "k", "producer_byte_rate", 12345.0)]
        assert send_in_sequence(bootstrap, 0) == (0, 0)  # known already
        assert send_in_sequence(bootstrap, 1) == (0, 1)
        assert new_producer_id(bootstrap) > given
        work(bootstrap, "barnabas")
        compact(bootstrap)
        given, seen = new_producer_id(bootstrap), look(bootstrap)
        assert barnabas.stop() == 0
    assert moving.files(*INTERNAL) == groups  # groups and transactions are for whoever serves them
    check_metadata_files(moving.data)

    with moving.kafka() as kafka:
        assert look(kafka.bootstrap) == seen
        assert levels(kafka.bootstrap) == features
        assert Doing(kafka.bootstrap).committed(GROUPS, "codecs") == offsets
        assert quotas(kafka.bootstrap) == [("user", "k", "producer_byte_rate", 12345.0)]
        assert send_in_sequence(kafka.bootstrap, 1) == (0, 1)
        assert send_in_sequence(kafka.bootstrap, 2) == (0, 2)
        assert new_producer_id(kafka.bootstrap) > given
        work(kafka.bootstrap, "kafka")
        rewrite(Doing(kafka.bootstrap), "kafka again")
        compact(kafka.bootstrap)
        Doing(kafka.bootstrap).transactions("transactions", "kafka again")
        Doing(kafka.bootstrap).commit(GROUPS[0], "codecs", 9)
        offsets = Doing(kafka.bootstrap).committed(GROUPS, "codecs")
        given, seen = new_producer_id(kafka.bootstrap), look(kafka.bootstrap)
        kafka.kill()

    with moving.barnabas() as barnabas:
        assert look(bootstrap) == seen
        assert send_in_sequence(bootstrap, 2) == (0, 2)
        assert send_in_sequence(bootstrap, 3) == (0, 3)
        assert new_producer_id(bootstrap) > given
        work(bootstrap, "barnabas-again")
        # the voters, so far named in the settings, stand in the log from now on
        raise_level(bootstrap, "kraft.version", 1)
        features["kraft.version"] = 1
        given, seen = new_producer_id(bootstrap), look(bootstrap)
        barnabas.kill()

    with moving.kafka() as kafka:
        assert look(kafka.bootstrap) == seen
        assert levels(kafka.bootstrap) == features
        assert Doing(kafka.bootstrap).committed(GROUPS, "codecs") == offsets
        assert send_in_sequence(kafka.bootstrap, 3) == (0, 3)
        assert new_producer_id(kafka.bootstrap) > given
        Doing(kafka.bootstrap).transactions("transactions", "kafka at last")
    assert complaints(moving) == []


def complaints(moving: OneDirectory) -> list[str]:
    """What Kafka said of the files it found; that segments are small is what the settings ask for."""
    lines = (moving.node.home / "kafka.log").read_text().splitlines()
    about = ("storage.internals", "kafka.log", "kafka.raft", "org.apache.kafka.raft", "snapshot", "RaftLog")
    return [
        line
        for line in lines
        if (" WARN " in line or " ERROR " in line)
        and any(word in line for word in about)
        and "Overriding internal.metadata.log.segment.bytes" not in line
    ]


def check_metadata_files(data: Path) -> None:
    """Kafka's own tool reads each record of the metadata that Barnabas wrote, snapshots too."""
    folder = data / METADATA_DIRECTORY
    snapshots = sorted(folder.glob("*-*.checkpoint"))
    assert snapshots, "the settings ask for snapshots all the time"
    dumped = dump(data, [*snapshots, *sorted(folder.glob("*.log"))], "--cluster-metadata-decoder")
    assert len(dumped) == len(snapshots) + len(list(folder.glob("*.log")))
    for file, lines in dumped.items():
        batches = [line for line in lines if line.startswith("baseOffset")]
        assert batches or not (data / file).stat().st_size
        assert all("isvalid: true" in line for line in batches)
        records = [line.split("headerKeys: [] ")[1] for line in lines if line.startswith("| offset")]
        known = ("LeaderChange", "KRaft", "Snapshot", "payload: {")
        assert all(record.startswith(known) and "Error" not in record for record in records), file
    newest = dumped[str(snapshots[-1].relative_to(data))]
    told = [json.loads(line.split("payload: ")[1])["type"] for line in newest if "payload: " in line]
    for kind in (
        "FEATURE_LEVEL",
        "REGISTER_BROKER",
        "TOPIC",
        "PARTITION",
        "CONFIG",
        "CLIENT_QUOTA",
        "PRODUCER_IDS",
    ):
        assert f"{kind}_RECORD" in told


def test_an_older_cluster_with_voters_in_its_log_and_credentials(tmp_path: Path) -> None:
    """Killed first; the levels of 3.9; SCRAM credentials, which nothing here enforces."""
    moving = OneDirectory(tmp_path, release="3.9", standalone=True)
    with moving.kafka() as kafka:
        doing = Doing(kafka.bootstrap)
        doing.create("letters", 2)
        doing.every_codec("letters", "kafka")
        credential = UserScramCredentialUpsertion(
            "k", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"a password", b"some salt"
        )
        for future in doing.admin.alter_user_scram_credentials([credential]).values():
            future.result(WAIT_S)
        features, seen = levels(kafka.bootstrap), look(kafka.bootstrap)
        assert features["metadata.version"] == 21
        kafka.kill()

    refused = moving.barnabas()
    refused.spawn()
    assert refused.wait() == 1
    assert "1 SCRAM credentials" in refused.log()
    assert "barnabas.allow.unenforced.security=true" in refused.log()

    with moving.barnabas("--set", "barnabas.allow.unenforced.security=true") as barnabas:
        bootstrap = f"127.0.0.1:{barnabas.port}"
        assert "NOT enforced" in barnabas.log()
        assert look(bootstrap) == seen
        assert levels(bootstrap)["metadata.version"] == 21
        doing = Doing(bootstrap)
        doing.create("by-barnabas", 3, retention_ms="123456789000")
        doing.every_codec("by-barnabas", "barnabas")
        doing.every_codec("letters", "barnabas")
        for number in range(30):  # enough for snapshots that stand for all of it
            doing.alter(ResourceType.TOPIC, "letters", retention_ms=str(1_000_000_000 + number))
        seen = look(bootstrap)
        assert barnabas.stop() == 0
    starts = [int(path.stem) for path in moving.data.glob(METADATA_LOGS)]
    assert min(starts) > 0  # the beginning of the metadata log is gone

    with moving.kafka() as kafka:
        assert look(kafka.bootstrap) == seen
        assert levels(kafka.bootstrap) == features
        doing = Doing(kafka.bootstrap)
        described = doing.admin.describe_user_scram_credentials(["k"])["k"].result(WAIT_S)
        assert [each.iterations for each in described.scram_credential_infos] == [4096]
    assert complaints(moving) == []
