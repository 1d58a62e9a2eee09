"""`barnabas produce`: lines, keys, JSON, files; what is refused and why; and what `consume` gives back."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as for_any
from hypothesis import strategies as st

from barnabas.cli.records.formats import json_line
from barnabas.cli.records.inputs import Defaults, NewRecord, json_parser, lines
from barnabas.client.fetched import ConsumerRecord
from barnabas.records.record import Record
from barnabas.testing import Broker
from tests.cli.records import make_topic, write
from tests.cli.running import DEADLINE_S, Commands, start, until
from tests.client.real import Clients


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def barnabas(running: Broker, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Commands:
    return Commands(running.bootstrap, capfdbinary, tmp_path)


@pytest.fixture
def topic(running: Broker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z_]", "", request.node.name)[:60] + f".{id(request)}"
    return make_topic(running.bootstrap, name)


def written(running: Broker, topic: str, partitions: int = 1) -> list[Record]:
    """What stands in a topic now; the partition is in the place of the offset."""

    async def read() -> list[Record]:
        found: list[Record] = []
        async with Clients(running.bootstrap).consumer() as consumer:
            wanted = [(topic, partition) for partition in range(partitions)]
            ends = await consumer.end_offsets(*wanted)
            consumer.assign(wanted)
            while len(found) < sum(ends.values()):
                for r in await consumer.poll(10_000):
                    found.append(Record(r.partition, r.timestamp_ms, r.key, r.value, r.headers))
        return found

    return asyncio.run(read())


def pairs(running: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in written(running, topic)]


# ---- lines -----------------------------------------------------------------------------------------------


def test_a_line_is_a_record(running: Broker, barnabas: Commands, topic: str) -> None:
    out = barnabas.ok("produce", topic, stdin=b"dear sir\n\n\xff\nyours").decode()
    assert pairs(running, topic) == [(None, b"dear sir"), (None, b""), (None, b"\xff"), (None, b"yours")]
    assert re.fullmatch(rf"{topic}: 4 records, 14 B in \d+\.\d s \(\S+ records/s\)\n", out)


def test_keys_headers_and_nulls(running: Broker, barnabas: Commands, topic: str) -> None:
    barnabas.ok(
        *("produce", topic, "--key-separator", "::", "--null", "-", "--header", "a=1", "--header", "b="),
        stdin=b"K.::hello::there\ngone::-\n-::lost\n",
    )
    assert pairs(running, topic) == [(b"K.", b"hello::there"), (b"gone", None), (None, b"lost")]
    assert {record.headers for record in written(running, topic)} == {(("a", b"1"), ("b", b""))}


def test_files_in_their_order(running: Broker, barnabas: Commands, topic: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1\n2\n")
    two.write_text("3\n")
    barnabas.ok("produce", topic, one, "--key", "k", two, "--quiet")
    assert pairs(running, topic) == [(b"k", b"1"), (b"k", b"2"), (b"k", b"3")]


def test_whole_files(running: Broker, barnabas: Commands, topic: str, tmp_path: Path) -> None:
    photo = bytes(range(256)) * 400
    (tmp_path / "photo").write_bytes(photo)
    barnabas.ok("produce", topic, "--whole", tmp_path / "photo", "--compression", "zstd", "--acks", "1")
    assert pairs(running, topic) == [(None, photo)]


def test_a_partition_of_ones_own(running: Broker, barnabas: Commands) -> None:
    topic = make_topic(running.bootstrap, "parted", 3)
    barnabas.ok("produce", topic, "--partition", 2, stdin=b"a\nb\n")
    assert [record.offset for record in written(running, topic, 3)] == [2, 2]
    out = barnabas.ok(
        "produce", topic, "--key-separator", ":", stdin=b"".join(b"%d:x\n" % n for n in range(30))
    )
    assert re.search(r"; by partition 0: \d+, 1: \d+, 2: \d+\n", out.decode())


def test_a_rate_is_kept(running: Broker, barnabas: Commands, topic: str) -> None:
    document = barnabas.ok("produce", topic, "--json", "--rate", 50, stdin=b'{"value":1}\n' * 11)
    assert 0.2 <= json.loads(document)["seconds"] < 5


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_a_long_input_is_not_held_in_memory(running: Broker, topic: str) -> None:
    # not getrusage: its peak counts in what this process held when it forked
    code = (
        "import re, sys; from barnabas.cli.main import main; status = main(sys.argv[1:]);"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]); sys.exit(status)"
    )
    process = start(running.bootstrap, "produce", topic, "-q", "--acks", "0", command=("-c", code))
    line = b"x" * 99_999 + b"\n"
    assert process.stdin is not None
    for _ in range(1500):
        process.stdin.write(line)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert int(out) < 130_000  # KiB; the input has 150,000


# ---- JSON, and back --------------------------------------------------------------------------------------


def test_json_with_everything(running: Broker, barnabas: Commands, topic: str) -> None:
    line = {"key": "K.", "value": {"state": "ö"}, "headers": {"a": "b", "n": None}, "timestamp": 1000}
    document = json.loads(barnabas.ok("produce", topic, "--json", stdin=json.dumps(line).encode()))
    (record,) = written(running, topic)
    assert record == Record(0, 1000, b"K.", '{"state":"ö"}'.encode(), (("a", b"b"), ("n", None)))
    assert (document["records"], document["failed"], document["partitions"]) == (1, 0, {"0": 1})


def test_a_topic_copied_through_a_pipe_is_the_same(running: Broker, barnabas: Commands) -> None:
    source, copy = make_topic(running.bootstrap, "source", 2), make_topic(running.bootstrap, "copy", 2)
    for partition in (0, 1):
        records = [
            Record(
                0, 1000 + n, b"\xff%d" % n, None if n % 2 else bytes([n]) * n, (("h", b"\x80"), ("h", b"b"))
            )
            for n in range(20)
        ]
        write(running.bootstrap, source, records, partition=partition)
    dumped = barnabas.ok("consume", source, "--json")
    barnabas.ok("produce", copy, "--json", stdin=dumped)
    assert sorted(written(running, copy, 2)) == sorted(written(running, source, 2))
    again = barnabas.ok(
        "produce", copy, "--json", "--repartition", "--key", "z", stdin=b'{"value":1,"partition":7}'
    )
    assert json.loads(again)["failed"] == 0


any_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


@settings(suppress_health_check=[HealthCheck.too_slow])
@for_any(
    any_bytes,
    any_bytes,
    st.lists(st.tuples(st.text(max_size=5), any_bytes), max_size=3),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**53),
)
def test_every_record_survives_json(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], partition: int, time: int
) -> None:
    line = json_line(ConsumerRecord("t", partition, 5, time, key, value, tuple(headers), 0))
    assert line.count(b"\n") == 1
    assert json_parser(Defaults())(line) == NewRecord(key, value, tuple(headers), partition, time)


# ---- what goes wrong -------------------------------------------------------------------------------------


def test_bad_lines_are_named_and_the_rest_is_sent(running: Broker, barnabas: Commands, topic: str) -> None:
    bad = [
        b"no json",
        b"[1]",
        b'{"key":"k"}',
        b'{"value":1,"partition":-1}',
        b'{"value":1,"timestamp":"now"}',
        b'{"value_base64":"?"}',
        b'{"value":1,"headers":3}',
        b'{"value":1,"partition":9}',
        b'{"value":"\\ud800"}',
        b'{"value":1,"timestamp":9223372036854775808}',
        b'{"value":1,"headers":{"\\ud800":"x"}}',
    ]
    done = barnabas(
        "produce", topic, "--json", stdin=b'{"value":"good"}\n' + b"\n".join(bad) + b'\n{"value":"end"}'
    )
    assert done.status == 1
    assert pairs(running, topic) == [(None, b"good"), (None, b"end")]
    document = json.loads(done.out)
    assert (document["records"], document["failed"]) == (2, len(bad))
    told = {
        int(failure["where"].removeprefix("standard input, line ")): failure["records"]
        for failure in document["failures"]
    }
    numbers = range(2, 2 + len(bad))
    assert told == {number: 1 for number in numbers if number != 4} | {3: 2}  # 3 and 4 lack the same
    for said in (
        "no JSON",
        '"value"',
        "partition is no",
        "timestamp is no",
        "base64",
        "headers",
        "no number 9",
    ):
        assert said in done.err


def test_a_record_without_a_time_gets_one(running: Broker, barnabas: Commands, topic: str) -> None:
    barnabas.ok("produce", topic, "--json", stdin=b'{"value":"as consume --json prints it","timestamp":-1}\n')
    assert [record.timestamp > 0 for record in written(running, topic)] == [True]


def test_what_the_broker_refuses_is_told(running: Broker, barnabas: Commands) -> None:
    topic = make_topic(running.bootstrap, "compacted", cleanup_policy="compact")
    done = barnabas("produce", topic, stdin=b"x\n" * 15)
    assert done.status == 1
    assert "INVALID_RECORD" in done.err
    assert "standard input, line 1, and 14 more: " in done.err
    assert done.err.count("\n") == 1  # what is wrong with all of them is told once
    assert "0 records" in done.out.decode()
    assert "15 failed" in done.out.decode()


def test_a_full_disk_is_told_once(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    with Broker() as broker:
        topic = make_topic(broker.bootstrap, "full")
        assert broker._memory is not None
        broker._memory.fail("append", errno.ENOSPC, path_glob="full-0/*")
        done = Commands(broker.bootstrap, capfdbinary, tmp_path)(
            "produce", topic, "--timeout", 1, stdin=b"x\ny\n"
        )
    assert done.status == 1
    assert done.err.startswith(
        "barnabas produce: standard input, line 1, and 1 more: 2 records for full-0 were not"
    )
    assert "refused with KAFKA_STORAGE_ERROR" in done.err
    assert "make room if it is full" in done.err
    assert done.err.count("\n") == 1


def test_different_reasons_are_told_up_to_a_number(barnabas: Commands, topic: str) -> None:
    lines = b"".join(b'{"value":1,"timestamp":"%d"}\n' % number for number in range(15))
    done = barnabas("produce", topic, "--json", stdin=lines)
    assert "and 5 more failed, for other reasons" in done.err


def test_too_long(running: Broker, barnabas: Commands, topic: str) -> None:
    long = b"x" * 600_000
    done = barnabas("produce", topic, "--max-bytes", 1000, stdin=b"short\n" + long + b"\nmore\n" + long)
    assert done.status == 1
    assert "standard input, line 2, and 1 more: longer than 1000 bytes; raise --max-bytes" in done.err
    assert pairs(running, topic) == [(None, b"short"), (None, b"more")]
    assert b"2 records, 9 B" in done.out
    assert b"2 failed" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere/at/all"], "cannot read /nowhere/at/all"),
        (["/"], "cannot read /: it is a directory"),
        (["--key-separator", ""], "--key-separator is empty"),
        (["--key-separator", ":", "--json"], "--key-separator is for plain lines"),
    ],
)
def test_failures_say_what_to_do(barnabas: Commands, topic: str, arguments: list[str], said: str) -> None:
    done = barnabas("produce", topic, *arguments)
    assert done.status == 1
    assert said in done.err


def test_a_topic_that_is_not_made_by_itself(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        make_topic(broker.bootstrap, "letters")
        done = Commands(broker.bootstrap, capfdbinary, tmp_path)(
            "produce", "leters", "--timeout", 0.5, stdin=b"x"
        )
    assert done.status == 1
    assert "did you mean letters?" in done.err


def test_lines_do_not_depend_on_how_they_are_read(tmp_path: Path) -> None:
    """A pipe that is filled in awkward pieces gives the lines that a file gives."""
    data = b"".join(b"%d\n" % n * (n % 3) for n in range(2000)) + b"end"

    async def read_pipe() -> list[bytes | None]:
        return [line async for line, _ in lines("-", 1 << 20)]

    reader, writer = os.pipe()

    def fill() -> None:
        for start_at in range(0, len(data), 7):
            os.write(writer, data[start_at : start_at + 7])
        os.close(writer)

    filling = threading.Thread(target=fill)
    filling.start()
    with open(reader) as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        found = asyncio.run(read_pipe())
    filling.join()
    assert found == data.split(b"\n")


def test_an_interrupt_sends_what_was_taken(running: Broker, topic: str) -> None:
    process = start(running.bootstrap, "produce", topic)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\n")
    process.stdin.flush()
    until(lambda: len(pairs(running, topic)) == 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=DEADLINE_S) == 130
    assert process.stdout is not None
    assert process.stdout.read().startswith(f"{topic}: 2 records, 6 B".encode())
    process.communicate()
