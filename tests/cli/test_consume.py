"""`barnabas consume`: ranges, forms, filters, following, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.failures import CommandFailed
from barnabas.cli.records.formats import Readable, template
from barnabas.client.fetched import ConsumerRecord
from barnabas.log.producers import Origin
from barnabas.records.builder import build_batch
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.record import Record
from barnabas.testing import Broker
from tests.cli.records import make_topic, write
from tests.cli.running import DEADLINE_S, Commands, start
from tests.support.targets import NO_RETENTION

NOON = 1_767_268_800_000  # 2026-01-01T12:00Z
MINUTE = 60_000


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker(settings=NO_RETENTION) as broker:
        make_topic(broker.bootstrap, "minutes", 2)
        for partition in (0, 1):
            records = [
                Record(0, NOON + n * MINUTE, b"k%d" % (n % 3), b"%d-%d" % (partition, n)) for n in range(10)
            ]
            write(broker.bootstrap, "minutes", records, partition=partition)
        make_topic(broker.bootstrap, "shapes")
        write(
            broker.bootstrap,
            "shapes",
            [
                Record(0, NOON, b"K.", b'{"state":"open","tags":["a",1,null]}', (("trace", b"abc"),)),
                Record(0, NOON, None, b"two\nlines"),
                Record(0, NOON, b"\xff\x00", b"\x00\xfe", (("h", None), ("h", b"\xff"))),
                Record(0, NOON, b"gone", None),
                Record(0, NOON, b"", b""),
            ],
        )
        yield broker


@pytest.fixture
def barnabas(running: Broker, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Commands:
    return Commands(running.bootstrap, capfdbinary, tmp_path)


# ---- what is read ----------------------------------------------------------------------------------------


def values(barnabas: Commands, *arguments: object) -> list[str]:
    return sorted(barnabas.ok("consume", "minutes", "--values", *arguments).decode().splitlines())


def minutes(first: int, last: int, partitions: tuple[int, ...] = (0, 1)) -> list[str]:
    """What partitions hold from one minute to another, inclusive."""
    return [f"{partition}-{n}" for partition in partitions for n in range(first, last + 1)]


def test_everything_unless_told_otherwise(barnabas: Commands) -> None:
    assert values(barnabas) == minutes(0, 9)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--partition", "1"], minutes(0, 9, (1,))),
        (["--partition", "0-1", "--from", "8"], minutes(8, 9)),
        (["--from", "3", "--until", "5"], minutes(3, 4)),
        (["--from", "-2"], minutes(8, 9)),
        (["--from=-2"], minutes(8, 9)),
        (["--from", "latest"], []),
        (["--from", "earliest", "--until", "-8"], minutes(0, 1)),
        (["--from", "2026-01-01T12:05Z"], minutes(5, 9)),
        (["--from", "2026-01-01T13:04:30.000+01:00", "--until", "2026-01-01T12:07Z"], minutes(5, 6)),
        (["--until", "2026-01-01T12:01Z"], minutes(0, 0)),
        (["--from", "2030-01-01"], []),
        (["--from", "-1h"], []),
        (["--from", "1000"], []),
        (["--until", "1000"], minutes(0, 9)),
    ],
)
def test_ranges(barnabas: Commands, arguments: list[str], expected: list[str]) -> None:
    assert values(barnabas, *arguments) == expected


def test_a_count_ends_it(barnabas: Commands) -> None:
    assert values(barnabas, "--count", 3, "--partition", 1) == minutes(0, 2, (1,))
    assert values(barnabas, "--count", 2, "--partition", 1, "--filter", "key=k2") == ["1-2", "1-5"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("key=K.", [0]),
        ("key!=K.", [1, 2, 3, 4]),
        ("key=null", [1]),
        ("value=null", [3]),
        ("value~^two", [1]),
        ("value.state=open", [0]),
        ("value.tags.1=1", [0]),
        ("value.tags.7=1", []),
        ("header.trace=abc", [0]),
        ("header.h=null", [2]),
        ("header.h~.", [2]),
    ],
)
def test_filters(barnabas: Commands, wanted: str, expected: list[int]) -> None:
    out = barnabas.ok("consume", "shapes", "--filter", wanted, "--format", "{offset}")
    assert [int(line) for line in out.split()] == expected


def test_read_committed(running: Broker, barnabas: Commands) -> None:
    topic = make_topic(running.bootstrap, "committed")

    async def fill() -> None:
        replicas = running.node.services.replicas
        replica = await replicas.leader(replicas.topic(topic, b"", by_id=False), 0)
        log, epoch = replica.log, replica.leader_epoch
        for number, kind in enumerate((ControlType.ABORT, ControlType.COMMIT)):
            producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
            record = Record(0, NOON, None, kind.name.encode())
            batch = build_batch([record], base_sequence=number, transactional=True, **producer)
            marker = build_end_transaction(kind, coordinator_epoch=0, timestamp=NOON, **producer)
            await log.append_as_leader(batch, epoch)
            await log.append_as_leader(marker, epoch, Origin.COORDINATOR)
        log.advance_high_watermark(log.end_offset)

    running.run(fill())
    assert barnabas.ok("consume", topic, "--values").split() == [b"ABORT", b"COMMIT"]
    assert barnabas.ok("consume", topic, "--values", "--isolation", "read_committed").split() == [b"COMMIT"]


# ---- how it is printed -----------------------------------------------------------------------------------


def test_for_people(barnabas: Commands) -> None:
    text = barnabas.ok("consume", "shapes").decode()
    time = r"20\S+T\S+:00\.000[+-]\d\d:\d\d"
    expected = (
        rf"0@0  {time}  key=K\.  headers: trace=abc\n"
        r'    \{\n      "state": "open",\n      "tags": \[\n'
        r'        "a",\n        1,\n        null\n      \]\n    \}\n'
        rf"0@1  {time}\n    two\n    lines\n"
        rf"0@2  {time}  key=0xff00  headers: h=null, h=0xff\n    0x00fe\n"
        rf"0@3  {time}  key=gone\n    null\n"
        rf"0@4  {time}  key=\n    \n"
    )
    assert re.fullmatch(expected, text)


def test_headers_stay_on_their_line() -> None:
    record = ConsumerRecord("t", 0, 0, 0, None, b"v", (("two\nlines", b"a\nb"), ("\x1b[2J", b"x")), -1)
    first, second, rest = Readable(is_coloured=False)(record).split(b"\n")
    assert first.endswith(rb"headers: two\nlines=a\nb, \x1b[2J=x")
    assert (second, rest) == (b"    v", b"")


def test_half_of_a_surrogate_pair_for_people() -> None:
    record = ConsumerRecord("t", 0, 0, 0, None, rb'{"a":"\ud800"}', (), -1)
    assert rb'"a": "\ud800"' in Readable(is_coloured=False)(record)


def test_for_machines(barnabas: Commands) -> None:
    lines = [json.loads(line) for line in barnabas.ok("consume", "shapes", "--json").splitlines()]
    assert lines[0] == {
        "topic": "shapes",
        "partition": 0,
        "offset": 0,
        "timestamp": NOON,
        "key": "K.",
        "value": '{"state":"open","tags":["a",1,null]}',
        "headers": [{"key": "trace", "value": "abc"}],
    }
    assert (lines[1]["key"], lines[1]["value"]) == (None, "two\nlines")
    assert (lines[2]["key_base64"], lines[2]["value_base64"]) == ("/wA=", "AP4=")
    assert lines[2]["headers"] == [{"key": "h", "value": None}, {"key": "h", "value_base64": "/w=="}]
    assert (lines[3]["key"], lines[3]["value"]) == ("gone", None)
    assert (lines[4]["key"], lines[4]["value"]) == ("", "")


RECORD = ConsumerRecord("t", 3, 14, NOON, b"\xff", None, (("a", b"b"),), 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{topic}-{partition}@{offset}", b"t-3@14\n"),
        ("{key}{value}|", b"\xffNULL|\n"),
        (r"{timestamp}\t{headers}\c", b"%d\ta=b" % NOON),
        (r"{{{key_size}}} {value_size}\0\c", b"{1} -1\0"),
        (r"a\\b", b"a\\b\n"),
    ],
)
def test_templates(text: str, expected: bytes) -> None:
    assert template(text, "NULL")(RECORD) == expected


@pytest.mark.parametrize("text", ["{nothing}", "{", "a}", r"\q"])
def test_templates_that_mean_nothing(text: str) -> None:
    with pytest.raises(CommandFailed, match="--format"):
        template(text)


def test_into_a_file(barnabas: Commands, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert barnabas.ok("consume", "minutes", "--partition", 0, "--values", "--output", out) == b""
    assert out.read_text().split() == minutes(0, 9, (0,))


def test_a_bar_where_somebody_watches(running: Broker) -> None:
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "barnabas", "consume", "minutes", "--values", "--until", "10"]
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": running.bootstrap, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=end, env=environment, timeout=60, check=True
    )
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # which is how a terminal says that nobody writes any more
        while data := os.read(terminal, 1 << 16):
            shown += data
    os.close(terminal)
    assert len(done.stdout.split()) == 20
    assert "━".encode() in shown
    assert re.search(rb"20 records, 100 B in \d+\.\d s", shown)


# ---- what cannot be --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["minute"], "did you mean minutes?"),
        (["minutes", "--partition", "2"], "it has 2, counted from 0"),
        (["minutes", "--json", "--values"], "exclude each other"),
        (["minutes", "--output", "/nowhere/at/all"], "cannot write /nowhere/at/all"),
    ],
)
def test_failures_say_what_to_do(barnabas: Commands, arguments: list[str], said: str) -> None:
    done = barnabas("consume", *arguments)
    assert done.status == 1
    assert said in done.err


def test_nobody_answers(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    done = Commands("127.0.0.1:1", capfdbinary, tmp_path)("consume", "minutes")
    assert done.status == 1
    assert "no Kafka answers at 127.0.0.1:1" in done.err


@pytest.mark.parametrize("option", [["--from", "yesterday"], ["--filter", "key"], ["--filter", "colour=1"]])
def test_a_wrong_command_line(barnabas: Commands, option: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        barnabas("consume", "minutes", *option)
    assert ended.value.code == 2


# ---- following -------------------------------------------------------------------------------------------


def test_it_follows_until_interrupted(running: Broker) -> None:
    topic = make_topic(running.bootstrap, "followed")
    write(running.bootstrap, topic, [b"zero", b"one"])
    process = start(running.bootstrap, "consume", topic, "--follow", "--from", "-1", "--values")
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n"
    write(running.bootstrap, topic, [b"two"])
    assert process.stdout.readline() == b"two\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (0, b"")
    assert re.fullmatch(rb"2 records, 6 B in \d+\.\d s \(\S+ records/s\)\n", err)


def test_it_follows_a_broker_that_comes_back(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        make_topic(broker.bootstrap, "letters")
        process = start(broker.bootstrap, "consume", "letters", "-f", "--from", "earliest", "--values")
        assert process.stdout is not None
        write(broker.bootstrap, "letters", [b"before"])
        assert process.stdout.readline() == b"before\n"
        broker.restart()
        write(broker.bootstrap, "letters", [b"after"])
        assert process.stdout.readline() == b"after\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0


def test_it_follows_up_to_an_offset(running: Broker) -> None:
    topic = make_topic(running.bootstrap, "bounded")
    process = start(running.bootstrap, "consume", topic, "-f", "--from", "1", "--until", "3", "--values")
    write(running.bootstrap, topic, [b"0", b"1", b"2", b"3"])
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (0, b"1\n2\n", b"")


def test_it_follows_partitions_that_are_added(running: Broker, barnabas: Commands) -> None:
    topic = make_topic(running.bootstrap, "growing")
    quick = "import sys; from barnabas.cli import consume; consume._NEW_PARTITIONS_MS = 50; "
    command = ("-c", quick + "sys.exit(consume.main(sys.argv[1:]))")
    process = start(running.bootstrap, topic, "--follow", "--from", "earliest", "--values", command=command)
    assert process.stdout is not None
    write(running.bootstrap, topic, [b"old"])
    assert process.stdout.readline() == b"old\n"
    barnabas.ok("topic", "alter", topic, "--partitions", 3)
    write(running.bootstrap, topic, [b"new"], partition=2)
    assert process.stdout.readline() == b"new\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


@pytest.mark.parametrize("until", ["latest", "-0", "2026-01-02", "-1s"])
def test_an_end_that_is_there_already_ends_following(barnabas: Commands, until: str) -> None:
    assert values(barnabas, "--follow", "--from", "earliest", "--until", until) == minutes(0, 9)


def test_following_ends_before_the_first_record_of_a_time(barnabas: Commands) -> None:
    arguments = ["--follow", "--from", "earliest", "--until", "2026-01-01T12:03Z"]
    assert values(barnabas, *arguments) == minutes(0, 2)


def test_a_reader_that_has_seen_enough(running: Broker) -> None:
    process = start(running.bootstrap, "consume", "minutes", "--follow", "--from", "earliest", "--values")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    write(running.bootstrap, "minutes", [b"late"], partition=0)
    assert process.wait(timeout=DEADLINE_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()
