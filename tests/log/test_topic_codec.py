"""Topics that have a codec of their own: what is stored, and what is too large before or after."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.core.errors import MessageTooLarge
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.config import InvalidConfig, LogConfig
from barnabas.log.partition import Appended, PartitionLog
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.reader import read_batches, read_records
from barnabas.records.record import Record
from tests.support.log_fixtures import from_producer
from tests.support.logs import START_MS, batch, open_directory, read_bytes

NAMES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


async def fresh_log(**fields: Any) -> PartitionLog:
    directory = await open_directory(MemoryDisk(), LogConfig(**fields), None)
    return await directory.partition("t", 0)


def large(codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([Record(0, START_MS, b"k", b"x" * 5000, ())], codec=codec)


@pytest.mark.parametrize("name", NAMES)
def test_every_batch_is_stored_in_the_codec_of_its_topic(name: str) -> None:
    async def scenario() -> None:
        log = await fresh_log(compression_type=name)
        sent = [batch([b"x" * 200, b"y" * 200], codec=codec) for codec in Codec]
        appended = [await log.append_as_leader(each, 4) for each in sent]
        assert [(each.first_offset, each.last_offset) for each in appended] == [
            (2 * at, 2 * at + 1) for at in range(5)
        ]
        stored = await read_bytes(log, 0)
        headers = [header for header, _ in read_batches(stored)]
        assert [header.codec for header in headers] == [NAMES[name]] * 5
        assert [header.leader_epoch for header in headers] == [4] * 5
        assert [each.stored_bytes for each in appended] == [header.size_bytes for header in headers]
        assert [record.value for record in read_records(stored)] == [b"x" * 200, b"y" * 200] * 5

    asyncio.run(scenario())


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_that_comes_in_the_right_codec_is_stored_as_it_was_sent(name: str) -> None:
    async def scenario() -> None:
        log = await fresh_log(compression_type=name, gzip_level=1, zstd_level=-50, lz4_level=3)
        sent = batch([b"x" * 200] * 20, codec=NAMES[name])
        before = bytes(sent)
        await log.append_as_leader(sent, 0)
        assert (await read_bytes(log, 0))[16:] == before[16:]

    asyncio.run(scenario())


def test_the_size_counts_before_and_after() -> None:
    async def scenario() -> None:
        log = await fresh_log(compression_type="uncompressed", max_message_bytes=2000)
        with pytest.raises(MessageTooLarge, match="5071 bytes"):
            await log.append_as_leader(large(Codec.ZSTD), 0)
        log = await fresh_log(compression_type="zstd", max_message_bytes=2000)
        with pytest.raises(MessageTooLarge, match="5071 bytes"):
            await log.append_as_leader(large(), 0)
        assert log.end_offset == 0
        await log.append_as_leader(large(Codec.GZIP), 0)
        assert log.end_offset == 1

    asyncio.run(scenario())


def test_append_time_is_stamped_on_what_is_stored() -> None:
    async def scenario() -> None:
        log = await fresh_log(compression_type="gzip", log_append_time=True)
        appended = await log.append_as_leader(batch([b"x"] * 3), 0)
        stored = await read_bytes(log, 0)
        header = kernel.check_batch(stored, 0, len(stored))
        assert header.is_log_append_time
        assert header.max_timestamp == appended.log_append_time_ms

    asyncio.run(scenario())


def test_duplicates_are_still_known() -> None:
    async def scenario() -> None:
        log = await fresh_log(compression_type="zstd")
        first: Appended = await log.append_as_leader(from_producer(0, 3), 0)
        again = await log.append_as_leader(from_producer(0, 3), 0)
        assert (again.is_duplicate, again.first_offset, again.stored_bytes) == (True, first.first_offset, 0)
        assert log.end_offset == 3
        header = BatchHeader.parse(await read_bytes(log, 0))
        assert (header.codec, header.base_sequence) == (Codec.ZSTD, 0)

    asyncio.run(scenario())


def test_settings_become_a_codec_and_its_level() -> None:
    def level(**properties: str) -> tuple[Codec | None, int | None]:
        names = {name.replace("_", "."): value for name, value in properties.items()}
        config = LogConfig.from_properties(names)
        return config.codec, config.codec_level

    assert level() == level(compression_type="producer") == (None, None)
    assert level(compression_type="gzip") == (Codec.GZIP, None)
    assert level(compression_type="gzip", compression_gzip_level="2") == (Codec.GZIP, 2)
    assert level(compression_type="lz4") == (Codec.LZ4, None)
    assert level(compression_type="lz4", compression_lz4_level="17") == (Codec.LZ4, 12)
    assert level(compression_type="lz4", compression_lz4_level="1") == (Codec.LZ4, 3)
    assert level(compression_type="zstd", compression_zstd_level="-9") == (Codec.ZSTD, -9)
    assert level(compression_type="snappy", compression_zstd_level="9") == (Codec.SNAPPY, None)
    with pytest.raises(InvalidConfig, match="must be one of"):
        level(compression_type="brotli")


def test_only_topics_with_a_codec_of_their_own_leave_the_short_way() -> None:
    assert LogConfig().plain_batch_bytes == LogConfig(compression_type="uncompressed").plain_batch_bytes > 0
    assert LogConfig(compression_type="zstd").plain_batch_bytes == 0
