"""What all commands share: help, errors with a next step, exit statuses, pipes, JSON."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli import asking, output
from barnabas.cli.failures import CommandFailed, explained
from barnabas.cli.main import COMMANDS, main
from barnabas.cli.options import naturals
from barnabas.cli.running import joined
from barnabas.cli.times import duration_text, parse_duration, parse_time
from barnabas.client.errors import BrokerError
from barnabas.core.errors import wire_error
from barnabas.testing import Broker
from tests.cli.records import write
from tests.cli.running import DEADLINE_S, start

ACTIONS = [
    *(("topic", action) for action in ("list", "create", "describe", "alter", "delete", "offsets", "trim")),
    *(("config", action) for action in ("list", "describe", "set", "unset")),
    ("cluster", "describe"),
    *(("group", action) for action in ("list", "describe", "reset", "delete", "delete-offsets")),
    *(("txn", action) for action in ("list", "producers", "hanging")),
]
# what can only be done where somebody is in a group, or has a transaction open
MORE_ACTIONS = [
    ("group", "remove-members"),
    *(("txn", action) for action in ("describe", "abort", "terminate")),
]
# of brokers, a topic or a file that are not there; or never done
NOT_TRIED = {"--replicas", "--assign", "--id", "--broker", "--from-file", "--watch"}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: barnabas {command}" in text
    assert re.search(rf"^examples:\n(  .*\n)*  .*barnabas {command}", text, re.MULTILINE)


@pytest.mark.parametrize("words", ACTIONS + MORE_ACTIONS, ids=" ".join)
def test_every_action_has_help_with_examples(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    text = capsys.readouterr().out
    assert f"usage: barnabas {' '.join(words)}" in text
    assert f"examples:\n  barnabas {' '.join(words)}" in text
    assert all(option in text for option in ("--bootstrap", "--timeout", "--json"))


@pytest.mark.parametrize(("command", "action"), ACTIONS)
def test_examples_do_what_they_say(
    command: str,
    action: str,
    broker: Broker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.root, "level", logging.root.level)  # an example alters it
    with pytest.raises(SystemExit):
        main([command, action, "--help"])
    examples = capsys.readouterr().out.partition("examples:")[2].strip().splitlines()
    common = ["--bootstrap", broker.bootstrap]
    for example in examples:
        words = shlex.split(re.split(r"\s{2,}| > ", example.strip())[0])
        assert words[:3] == ["barnabas", command, action]
        if NOT_TRIED & {*words} and command != "config":
            continue
        if action == "create":
            main(["topic", "delete", words[3], *common])
        else:
            partitions = "4" if command in ("group", "txn") else "1"
            made = ["orders", "payments", "--partitions", partitions, "--if-not-exists"]
            main(["topic", "create", *made, *common])
            if command == "group":
                reset = ["billing", "audit", "--topic", "orders", "--to-latest", "--execute"]
                main(["group", "reset", *reset, *common])
            if action == "trim":
                write(broker.bootstrap, "orders", [b"x"] * 1000, partition=0)
        assert main([*words[1:], *common]) == 0, example


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_where_nothing_listens_the_next_step_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{closed_port()}"
    assert main(["topic", "list", "--bootstrap", address]) == 1
    said = capsys.readouterr().err
    first, second = said.splitlines()
    assert first == f"barnabas topic list: no Kafka answers at {address} (Connection refused)"
    assert "`barnabas serve`" in second
    assert "--bootstrap" in second
    # the options may stand before the action, too
    assert main(["topic", "--json", "--bootstrap", address, "list"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert set(json.loads(captured.err)) == {"error", "next"}


@pytest.mark.parametrize("address", ["host:port", "host:0", "host:65536", ":9092"])
def test_an_address_that_is_none(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "--bootstrap", address]) == 1
    assert f"{address!r} is no address; write host:port" in capsys.readouterr().err


def test_names_that_are_no_text(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """What a shell hands over is bytes; those that are no UTF-8 come as lone surrogates."""
    name = os.fsdecode(b"\xff")
    assert main(["topic", "describe", name, "--bootstrap", broker.bootstrap]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == r"barnabas topic describe: '\udcff' is no text"
    assert "UTF-8" in second


def test_a_terminal_that_cannot_show_a_value(make_broker: type[Broker]) -> None:
    broker = make_broker(settings={"broker.rack": "Zürich"})
    command = [sys.executable, "-m", "barnabas", "cluster", "describe", "--bootstrap", broker.bootstrap]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ascii_only)
    assert done.returncode == 1
    assert r"'\xfc' cannot be written in ascii" in done.stderr
    assert "Traceback" not in done.stderr


def test_somebody_who_speaks_no_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert main(["topic", "list", "--bootstrap", address, "--timeout", "0.3"]) == 1
    assert f"no Kafka answers at {address}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic"],
        ["topic", "lst"],
        ["topic", "create"],
        ["topic", "create", "x", "--partitions", "0"],
        ["topic", "create", "x", "--set", "novalue"],
        ["topic", "create", "x", "--assign", "a:b"],
        # more than requests have room for
        ["topic", "create", "x", "--partitions", str(2**31)],
        ["topic", "create", "x", "--replicas", str(2**15)],
        ["topic", "create", "x", "--assign", f"1:{2**31}"],
        ["topic", "alter", "x", "--partitions", str(2**31)],
        ["topic", "trim", "x", "--before", str(2**63)],
        ["topic", "offsets", "x", "--partitions", "0-99999999999"],
        ["topic", "list", "--timeout", "1e300"],
        ["topic", "delete", "--id", "short"],
        ["topic", "trim", "x"],
        ["topic", "list", "--timeout", "-1"],
        ["config", "set", "--topic", "x", "novalue"],
        ["config", "describe"],
        ["config", "describe", "--topic", "x", "--broker", "1"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: barnabas" in capsys.readouterr().err


def test_the_environment_names_the_cluster(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", f"127.0.0.1:{closed_port()},{broker.bootstrap}")
    assert main(["topic", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_an_address_that_the_cluster_names_and_that_does_not_work(
    make_broker: type[Broker], capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{closed_port()}"}
    address = make_broker(settings=elsewhere).bootstrap
    common = ["--bootstrap", address, "--timeout", "1"]
    assert main(["topic", "create", "far", "--partitions", "1", *common]) == 0
    assert main(["topic", "offsets", "far", *common]) == 1
    assert "advertised.listeners" in capsys.readouterr().err
    # whoever looks at the cluster sees all the same what it tells, and which broker it is
    assert main(["cluster", "describe", *common]) == 0
    shown = capsys.readouterr().out
    assert "does not answer" in shown
    assert "node 1 leads" in shown
    assert "log directories: not told" in shown


def test_a_reader_that_has_seen_enough(broker: Broker) -> None:
    with start(broker.bootstrap, "config", "describe", "--broker", "1", "--all", "--docs") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdin is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_an_interrupt_is_quiet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with start(address, "topic", "list") as running:
            connected, _ = silent.accept()
            with connected:
                assert connected.recv(1)  # it has asked, and waits
                running.send_signal(signal.SIGINT)
                out, err = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, out, err) == (130, b"", b"")


def test_at_a_terminal_tables_are_drawn_and_deletion_is_asked_for(broker: Broker, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "barnabas"]
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap, "COLUMNS": "80", "TERM": "xterm"}
    subprocess.run([*run, "topic", "create", "seen"], env=environment, check=True, capture_output=True)
    outer, inner = pty.openpty()
    try:
        for answer, expected in ((b"n\n", 1), (b"y\n", 0)):
            os.write(outer, answer)
            command = [*run, "topic", "delete", "seen"]
            ended = subprocess.run(
                command, env=environment, stdin=inner, stderr=inner, stdout=subprocess.PIPE
            )
            assert ended.returncode == expected
            assert (ended.stdout == b"deleted seen\n") == (expected == 0)
        assert b"Delete seen and all records there? [y/N]" in os.read(outer, 10_000)
        subprocess.run([*run, "config", "list"], env=environment, stdout=inner, check=True)
        assert "─" in os.read(outer, 10_000).decode()
    finally:
        os.close(outer)
        os.close(inner)


def test_a_question_can_be_interrupted(broker: Broker) -> None:
    assert main(["topic", "create", "kept", "--bootstrap", broker.bootstrap]) == 0
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "barnabas", "topic", "delete", "kept", "--bootstrap", broker.bootstrap]
    try:
        with subprocess.Popen(command, stdin=inner, stderr=inner, stdout=subprocess.PIPE) as running:
            said = b""
            while b"[y/N]" not in said:
                said += os.read(outer, 1000)
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 130
    finally:
        os.close(outer)
        os.close(inner)
    assert main(["topic", "describe", "kept", "--bootstrap", broker.bootstrap]) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_an_error(broker: Broker) -> None:
    command = [sys.executable, "-m", "barnabas", "cluster", "describe", "--bootstrap", broker.bootstrap]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "barnabas cluster describe: cannot write the output: No space left on device\n"


def test_nobody_is_asked_where_nobody_sits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    asking.be_sure("Really?", is_sure=False)


def test_values_that_look_like_options() -> None:
    assert joined(["offsets", "x", "--at", "-2h", "--json"]) == ["offsets", "x", "--at=-2h", "--json"]
    assert joined(["--at=-2h", "-3", "--all"]) == ["--at=-2h", "-3", "--all"]


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("-2h", 10**13 - 7_200_000),
        ("-99999999999999999999w", 0),
        (f"-{'9' * 400}w", 0),
        ("2026-01-31T12:00:00Z", 1769860800000),
        ("1969-12-31T23:59:59.999Z", 0),  # not -1, which stands for the end
        ("0001-01-01T00:00+10:00", None),
        ("9999-12-31T23:59-10:00", None),
        ("20260131", None),
        ("tomorrow", None),
    ],
)
def test_times(text: str, time_ms: int | None) -> None:
    assert parse_time(text, now_ms=10**13) == time_ms


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [
        ("90m", 5_400_000),
        ("1.5s", 1500),
        ("PT1H30M", 5_400_000),
        ("P1DT0.25S", 86_400_250),
        ("P2D", 172_800_000),
        (f"{'9' * 400}w", 253_402_214_400_000),
        ("P", None),
        ("PT", None),
        ("P1D2H", None),
        ("1 h", None),
        ("-1h", None),
        ("soon", None),
    ],
)
def test_lengths_of_time(text: str, length_ms: int | None) -> None:
    assert parse_duration(text) == length_ms


def test_lengths_of_time_are_told_by_one_number() -> None:
    told = [duration_text(each) for each in (0, 59_900, 60_000, 5_400_000, 90_000_000)]
    assert told == ["0.0 s", "59.9 s", "1.0 m", "1.5 h", "1.0 d"]


def test_lists_of_numbers() -> None:
    assert naturals("0,3,5-7,3") == [0, 3, 5, 6, 7]


def test_a_plain_table_is_aligned_and_never_cut() -> None:
    wide = "x" * 300
    text = output.plain_table(("name", "count"), [["a", "1"], [wide, "1000"]], [False, True])
    assert [len(line) for line in text.splitlines()] == [307, 307, 307]
    assert text.splitlines()[0].startswith("NAME")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB"), (5 << 50, "5120.0 TiB")],
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert output.bytes_text(count) == text


@pytest.mark.parametrize(
    ("error", "step"),
    [("MISMATCHED_ENDPOINT_TYPE", "--bootstrap names brokers"), ("REQUEST_TIMED_OUT", "a controller leads")],
)
def test_errors_about_controllers_come_with_a_next_step(error: str, step: str) -> None:
    failure = explained(BrokerError(wire_error(error), "cannot"))
    assert failure.next_step is not None
    assert failure.next_step.endswith(step)


def test_a_failure_without_a_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    output.tell_failure("barnabas x", CommandFailed("it broke"), as_json=False)
    assert capsys.readouterr().err == "barnabas x: it broke\n"


def test_nothing_is_loaded_that_is_not_needed(broker: Broker) -> None:
    script = (
        "import sys; from barnabas.cli.main import main;"
        "main(['topic', 'list', '--json']); print(*sys.modules)"
    )
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {
        "rich",
        "barnabas.broker.node",
        "barnabas.client.producer",
        "barnabas.client.consumer",
    }


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(own_cluster: str, closed: str) -> None:
    command = [sys.executable, "-m", "barnabas", "produce", "closed", "--bootstrap", own_cluster]
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(command)} {closed}"], stdin=subprocess.DEVNULL, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
