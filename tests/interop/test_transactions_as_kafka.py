"""The same transactions on Apache Kafka and on Barnabas: answers, and what is written down of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.coordination.records import decode_record, encode_key, encode_value
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.records.kernel import check_batch
from barnabas.records.reader import read_batch
from barnabas.testing import Broker
from barnabas.transactions.records import KINDS, TransactionLogKey, TransactionLogValue
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.shard import TransactionShard
from tests.interop.admin_steps import create
from tests.interop.dump import dump, files
from tests.interop.transaction_play import NOBODY, TOPIC, Play, perform, perform_old
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient, wait_until

pytestmark = pytest.mark.java

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10",
}
LOG = "__transaction_state-0"
FEATURE = "transaction.version"


class Side(NamedTuple):
    """One of the two, after the play."""

    play: Play
    data: Path


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka, and Barnabas."""
    home = tmp_path_factory.mktemp("sides")
    with (
        ApacheKafka(home / "kafka", settings=SETTINGS) as kafka,
        Broker(home / "barnabas", SETTINGS) as broker,
        RawClient(kafka.port) as theirs,
        RawClient(broker.port) as ours,
    ):
        yield played(theirs, kafka.data), played(ours, home / "barnabas")


def played(client: RawClient, data: Path) -> Side:
    topic = create(TOPIC, 2)
    client.ask(topic.request, topic.version, topic.response)
    for kind in (0, 1):
        find = FindCoordinatorRequest(key="a", key_type=kind, coordinator_keys=[])
        wait_until(lambda find=find: client.ask(find, 3, FindCoordinatorResponse).error_code == 0, "both")
    wait_until(lambda: Play(client).init(None) != NOBODY, "producer ids")
    wait_until(lambda: "NOT_FOUND" in Play(client).describe("nobody"), "transactional ids")
    play = Play(client)
    perform(play)
    for level in (1, 0):
        finalise(client, level)
        perform_old(play, level)
    play.list()
    return Side(play, data)


def finalise(client: RawClient, level: int) -> None:
    """Take transaction.version down, and wait until the broker knows."""
    down = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=2)
    request = UpdateFeaturesRequest(feature_updates=[down])
    assert client.ask(request, 1, UpdateFeaturesResponse).error_code == 0
    ask = ApiVersionsRequest(client_software_name="play", client_software_version="1")

    def is_known() -> bool:
        found = client.ask(ask, 3, ApiVersionsResponse).finalized_features
        return {one.name: one.max_version_level for one in found}.get(FEATURE, 0) == level

    wait_until(is_known, f"{FEATURE}={level}")


def test_producers_are_answered_alike(sides: tuple[Side, Side]) -> None:
    theirs, ours = (side.play.notes for side in sides)
    assert ours == theirs


def written(side: Side) -> list[str]:
    """The records of the log, in the words of the play."""
    found = []
    for key, value, version in records_of(side):
        if value is None:
            found.append(f"{key}: nothing")
            continue
        told = {field.name: getattr(value, field.name) for field in value.__fields__}
        for name in ("producer_id", "previous_producer_id", "next_producer_id"):
            told[name] = side.play.alias(told[name])
        for name in ("transaction_last_update_timestamp_ms", "transaction_start_timestamp_ms"):
            told[name] = min(told[name], 1)
        if (partitions := value.transaction_partitions) is not None:
            told["transaction_partitions"] = sorted(
                (one.topic, sorted(one.partition_ids)) for one in partitions
            )
        found.append(f"{key} v{version}: {told}")
    return found


def records_of(side: Side) -> Iterator[tuple[str, TransactionLogValue | None, int]]:
    for _, key, value in pairs(side):
        record = decode_record(KINDS, key, value)
        assert isinstance(record.key, TransactionLogKey)
        assert record.value is None or isinstance(record.value, TransactionLogValue)
        yield record.key.transactional_id, record.value, record.version


def pairs(side: Side) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    data = (side.data / LOG / "00000000000000000000.log").read_bytes()
    at = 0
    while at < len(data):
        header = check_batch(data, at, len(data))
        assert not header.is_transactional
        for record in read_batch(data, at, header):
            yield record.offset, record.key, record.value
        at += header.size_bytes


def test_the_log_says_the_same(sides: tuple[Side, Side]) -> None:
    theirs, ours = map(written, sides)
    assert ours == theirs


def test_kafkas_records_are_what_they_were_when_written_here(sides: tuple[Side, Side]) -> None:
    """To the byte: what is read from Kafka's log, and written, is what Kafka wrote."""
    for side in sides:
        for _, key, value in pairs(side):
            record = decode_record(KINDS, key, value)
            assert (encode_key(record.key), encode_value(record)) == (key, value)


def test_a_shard_that_replays_kafkas_log_knows_what_kafka_does(sides: tuple[Side, Side]) -> None:
    theirs, _ = sides
    shard = TransactionShard(TransactionSettings)
    for _, key, value in pairs(theirs):
        shard.replay(decode_record(KINDS, key, value))
    found = sorted(
        (name, theirs.play.alias(one.producer_id), shard_state(shard, name))
        for name, one in shard.transactions.items()
    )
    assert theirs.play.notes[-1] == f"list [-1, None] v2: NONE [] {found}"


def shard_state(shard: TransactionShard, name: str) -> str:
    ((_, state),) = shard.describe(name, "r").replies
    return str(state.transaction_state)  # type: ignore[attr-defined]


def test_kafkas_own_tool_reads_both(sides: tuple[Side, Side]) -> None:
    variable = re.compile(r'(?:"\w*(?:Id|TimestampMs)":|CreateTime: )\d+|"transactionPartitions":\[\S+\]')
    printed = []
    for side in sides:
        found = dump(side.data, files(side.data, [LOG], [".log"]), "--transaction-log-decoder")
        lines = [line for line in next(iter(found.values())) if line.startswith("| ")]
        printed.append([variable.sub("", line) for line in lines])
    theirs, ours = printed
    assert ours == theirs
    assert sum("transactionStatus" in line for line in ours) > 50
