"""kcat, as Debian has it (librdkafka 2.0): an older client, driven from the command line."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.support.clients import CLIENTS, Message, create_topic, values

KCAT = shutil.which("kcat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt install kcat)")


def kcat(bootstrap: str, *arguments: str, given: bytes = b"") -> bytes:
    """What it prints."""
    command = [KCAT or "kcat", "-b", bootstrap, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(bootstrap: str, topic: str, codec: str) -> None:
    create_topic(bootstrap, topic)
    lines = b"".join(b"key%d\tvalue %d\n" % (number, number) for number in range(100))
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K", "\t", "-z", codec, "-H", "from=kcat", given=lines)
    shown = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-K", "\t")
    assert shown == lines
    for reader in CLIENTS:
        found = reader.consume(bootstrap, topic, 100)
        assert [(one.key, one.value) for one in found[98:]] == [
            (b"key98", b"value 98"),
            (b"key99", b"value 99"),
        ]
        assert found[0].headers == (("from", b"kcat"),)


def test_what_others_wrote(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, len(CLIENTS))
    for partition, writer in enumerate(CLIENTS):
        writer.produce(bootstrap, topic, [Message(None, b"k", partition=partition)], codec="lz4")
        writer.produce(
            bootstrap, topic, [one._replace(partition=partition) for one in values(9)], codec="zstd"
        )
    shown = kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J")
    found = [json.loads(line) for line in shown.splitlines()]
    assert sorted((one["partition"], one["offset"]) for one in found) == [
        (partition, offset) for partition in range(len(CLIENTS)) for offset in range(10)
    ]
    assert [one["payload"] for one in found if one["offset"] == 0] == [None] * len(CLIENTS)


def test_metadata_and_offsets(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    times = [Message(b"x", timestamp_ms=1_750_000_000_000 + number) for number in range(10)]
    CLIENTS[0].produce(bootstrap, topic, times)
    everything = json.loads(kcat(bootstrap, "-L", "-J"))
    assert [one["name"] for one in everything["brokers"]] == [bootstrap]
    assert {topic: 2}.items() <= {
        one["topic"]: len(one["partitions"]) for one in everything["topics"]
    }.items()
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1").split()[-1] == b"10"
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:1750000000004").split()[-1] == b"4"


def test_an_idempotent_producer(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    given = b"".join(b"%d\n" % number for number in range(1000))
    kcat(bootstrap, "-P", "-t", topic, "-X", "enable.idempotence=true", given=given)
    found = CLIENTS[0].consume(bootstrap, topic, 1000)
    assert [one.value for one in found] == given.split()
