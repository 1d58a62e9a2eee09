"""The same requests to Apache Kafka and to Barnabas, side by side: administrators', and of topics that have a
codec of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.schema import Struct
from barnabas.records.batch import HEADER_BYTES
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec, decompress
from barnabas.records.kernel import check_batch
from barnabas.records.record import Record
from barnabas.testing import Broker
from tests.interop.admin_steps import Step, create, steps
from tests.interop.dump import dump, files
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient, fetch_request, produce_request
from tests.support.targets import NO_RETENTION

pytestmark = pytest.mark.java


class Side(NamedTuple):
    """One of the two."""

    client: RawClient
    data: Path


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka, and Barnabas."""
    home = tmp_path_factory.mktemp("sides")
    with (
        ApacheKafka(home / "kafka", settings=NO_RETENTION) as kafka,
        Broker(home / "barnabas", NO_RETENTION) as broker,
        RawClient(kafka.port) as theirs,
        RawClient(broker.port) as ours,
    ):
        yield Side(theirs, kafka.data), Side(ours, home / "barnabas")


def comparable(value: Any) -> Any:
    """A response as plain values: ids are known or not, and lists of structures have no order."""
    if isinstance(value, Struct):
        return {field.name: comparable(getattr(value, field.name)) for field in value.__fields__}
    if isinstance(value, (list, tuple)):
        return sorted(map(comparable, value), key=repr)
    return any(value) if isinstance(value, bytes) else value


def answer(side: Side, step: Step) -> Any:
    return comparable(side.client.ask(step.request, step.version, step.response))


def test_administrators_are_answered_alike_to_the_words(sides: tuple[Side, Side]) -> None:
    differences = []
    for step in steps():
        expected, got = (answer(side, step) for side in sides)
        if got != expected:
            differences.append(f"{step.request} v{step.version}\n  Kafka: {expected}\n  here:  {got}")
    assert not differences, "\n".join(differences)


# ---- compression.type -------------------------------------------------------------------------------------

CODECS = {"uncompressed": Codec.NONE} | {codec.name.lower(): codec for codec in list(Codec)[1:]}
COUNT = 20


def sent(codec: Codec, sequence: int) -> bytearray:
    records = [
        Record(i, 1_700_000_000_000 + i * 7 % 5, None if i % 3 else b"%d" % i, b"v" * 50, (("h", b"x"),))
        for i in range(COUNT)
    ]
    return build_batch(records, codec=codec, producer_id=77, producer_epoch=2, base_sequence=sequence)


def produced(side: Side, topic: str, batch: bytearray, version: int = 9) -> int:
    request = produce_request(topic, [b""])
    request.topic_data[0].partition_data[0].records = memoryview(batch)
    response = side.client.ask(request, version, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def stored(side: Side, topic: str, offset: int) -> dict[str, Any]:
    """All that a batch says, but for what depends on how well a codec does."""
    response = side.client.ask(fetch_request(topic, offset=offset), 11, FetchResponse)
    batch = bytes(response.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]
    header = check_batch(batch, 0, len(batch))
    section = batch[HEADER_BYTES : header.size_bytes]
    found = header._asdict() | {"records": bytes(decompress(header.codec, section)), "section": b""}
    del found["crc"], found["batch_length"]
    return found


def check_what_the_tool_reads(sides: tuple[Side, Side]) -> None:
    variable = re.compile(r"(size|crc|position|log_append_time|LogAppendTime|CreateTime): \S+ ?")
    printed = []
    for side in sides:
        those = files(side.data, [f"{name}-CreateTime-0" for name in CODECS], [".log"])
        found = dump(side.data, those, "--deep-iteration")
        assert len(found) == len(CODECS)
        printed.append({file: [variable.sub("", line) for line in lines] for file, lines in found.items()})
    assert printed[1] == printed[0]
    assert sum("compresscodec: zstd" in line for lines in printed[1].values() for line in lines) == len(
        CODECS
    )


def test_batches_are_stored_in_the_codec_of_their_topic(sides: tuple[Side, Side]) -> None:
    for name in CODECS:
        for timestamps in ("CreateTime", "LogAppendTime"):
            configs = {"compression.type": name, "message.timestamp.type": timestamps}
            step = create(f"{name}-{timestamps}", 1, configs=configs)
            assert [answer(side, step)["topics"][0]["error_code"] for side in sides] == [0, 0]
    for name, (at, codec) in product(CODECS, enumerate(Codec)):
        topic = f"{name}-CreateTime"
        batch = sent(codec, at * COUNT)
        assert [produced(side, topic, bytearray(batch)) for side in sides] == [0, 0]
        expected, got = (stored(side, topic, at * COUNT) for side in sides)
        assert got == expected
        assert got["attributes"] & 7 == CODECS[name]
        assert [produced(side, f"{name}-LogAppendTime", bytearray(batch)) for side in sides] == [0, 0]
    check_what_the_tool_reads(sides)


def test_a_batch_may_be_too_large_before_it_is_recompressed_and_after(sides: tuple[Side, Side]) -> None:
    records = [Record(0, 1_700_000_000_000, b"k", b"x" * 5000, ())]
    for name, codec in (("uncompressed", Codec.ZSTD), ("zstd", Codec.NONE), ("gzip", Codec.ZSTD)):
        topic = f"small-{name}"
        step = create(topic, 1, configs={"compression.type": name, "max.message.bytes": "2000"})
        assert answer(sides[0], step) == answer(sides[1], step)
        errors = [produced(side, topic, build_batch(records, codec=codec)) for side in sides]
        assert errors == ([0, 0] if name == "gzip" else [10, 10])
        damaged = build_batch(records, codec=Codec.NONE)
        damaged[-1] ^= 1  # which nobody finds out about one that is too large
        assert [produced(side, topic, bytearray(damaged)) for side in sides] == [10, 10]


def fetched(side: Side, topic: str, version: int) -> tuple[int, int, int, bool]:
    response = side.client.ask(fetch_request(topic), version, FetchResponse)
    (partition,) = response.responses[0].partitions
    has_records = bool(partition.records)
    return partition.error_code, partition.high_watermark, partition.log_start_offset, has_records


def test_zstd_came_late(sides: tuple[Side, Side]) -> None:
    for step in (create("late", 1), create("late-zstd", 1, configs={"compression.type": "zstd"})):
        assert answer(sides[0], step) == answer(sides[1], step)
    for topic, codec, version in product(("late", "late-zstd"), (Codec.NONE, Codec.ZSTD), (3, 6, 7)):
        batch = build_batch([Record(0, 1_700_000_000_000, b"k", b"v", ())], codec=codec)
        expected, got = (produced(side, topic, bytearray(batch), version) for side in sides)
        assert got == expected == (76 if codec is Codec.ZSTD and version < 7 else 0)
    for topic, version in product(("late", "late-zstd"), (4, 9, 10)):
        expected, got = (fetched(side, topic, version) for side in sides)
        assert got == expected
        assert (got[0], got[3]) == (0, True)  # who cannot read zstd finds out by itself
