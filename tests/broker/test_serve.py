"""`barnabas serve` as a process: how it starts, what it refuses, how it stops, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.dump.batches import FoundBatch, walk
from barnabas.metadata.records import EndTransactionRecord, encode_record
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.raft.batches import data_batches
from barnabas.records import kernel
from tests.support.apache_kafka import free_ports
from tests.support.raw_client import RawClient, metadata_request, produce_request, wait_until
from tests.support.serve_process import ServeProcess, acknowledge_one

# As Kafka's own file sets it up, without its comments; the last lines are of this test.
SERVER_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller}
listeners=PLAINTEXT://:{port},CONTROLLER://:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=3
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
log.dirs={directory}
"""


def serve(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `barnabas serve` to its end, which is expected to come at once."""
    return subprocess.run(
        [sys.executable, "-m", "barnabas", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def metadata_of(port: int, *topics: str) -> MetadataResponse:
    with RawClient(port) as client:
        return client.ask(metadata_request(*topics), 9, MetadataResponse)


# ---- start and stop -------------------------------------------------------------------------------------


def test_a_fresh_directory_is_formatted_and_served(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    data.parent.mkdir()
    with ServeProcess(data) as process:
        assert acknowledge_one(process.port) == 0
        meta = dict(
            line.split("=", 1) for line in (data / "meta.properties").read_text().splitlines() if "=" in line
        )
        assert meta["node.id"] == "1"
        assert meta["version"] == "1"
        assert f"cluster {meta['cluster.id']}" in process.log()
        assert (data / "bootstrap.checkpoint").exists()
        assert (data / "__cluster_metadata-0").is_dir()
        assert (data / "probe-0" / "00000000000000000000.log").stat().st_size > 61


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    with ServeProcess(data) as process:
        for _ in range(3):
            acknowledge_one(process.port)
        process.signal(number)
        assert process.wait() == 0
        assert "stopped cleanly" in process.log()
        assert "Traceback" not in process.log()
    mark = json.loads((data / ".kafka_cleanshutdown").read_text())
    assert mark["version"] == 0
    assert "probe 0 3" in (data / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert "probe 0 3" in (data / "replication-offset-checkpoint").read_text().splitlines()
    with ServeProcess(data) as process:
        assert not (data / ".kafka_cleanshutdown").exists()  # it is believed once
        assert acknowledge_one(process.port) == 3


def test_a_stop_does_not_wait_for_clients(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data") as process:
        acknowledge_one(process.port)
        with RawClient(process.port) as idle, RawClient(process.port, receive_bytes=4096) as stuck:
            idle.ask(metadata_request(), 9, MetadataResponse)
            stuck.ask(produce_request("probe", [bytes(500_000)]), 9, ProduceResponse)
            stuck.send_what_fits(_fetches("probe", 40))
            assert process.stop() == 0  # which gives up after a minute; an idle client may stay for ten
            assert "Traceback" not in process.log()


def _fetches(topic: str, count: int) -> bytes:
    from tests.support.raw_client import fetch_request, frame, payload

    return frame(payload(fetch_request(topic), 12)) * count


def test_a_signal_while_it_starts_stops_it_as_well(tmp_path: Path) -> None:
    process = ServeProcess(tmp_path / "data")
    try:
        process.spawn()
        wait_until(lambda: "a new directory" in process.log(), "it has begun")
        assert process.stop() == 0
        assert "Traceback" not in process.log()
    finally:
        process.kill()
    with ServeProcess(tmp_path / "data") as process:
        assert acknowledge_one(process.port) == 0


def test_after_kill_9_everything_is_there(tmp_path: Path) -> None:
    process = ServeProcess(tmp_path / "data")
    with process:
        assert [acknowledge_one(process.port) for _ in range(3)] == [0, 1, 2]
        cluster = re.search(r"cluster (\S+),", process.log())
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with process:
        assert acknowledge_one(process.port) == 3
        assert cluster is not None
        assert f"cluster {cluster[1]}," in process.log()


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data") as process:
        acknowledge_one(process.port)
        second = serve("--dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
        assert second.returncode == 1
        assert "Traceback" not in second.stderr
        last = second.stderr.splitlines()[-1]
        assert last.startswith("barnabas serve: ")
        assert "data" in last
        assert re.search("lock|another|in use", last), last
        assert acknowledge_one(process.port) == 1  # and the first goes on


def test_a_port_that_is_taken_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
        done = serve("--dir", str(tmp_path / "data"), "--set", listeners)
        assert done.returncode == 1
        assert f"127.0.0.1:{port}" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
    with ServeProcess(tmp_path / "data") as process:  # nothing is left locked or half made
        assert acknowledge_one(process.port) == 0


def test_a_directory_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("to Klamm")
    done = serve("--dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "meta.properties" in done.stderr
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["letters.txt"]


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServeProcess(data) as process:
        process.stop()
    done = serve("--dir", str(data), "--listen", "127.0.0.1:0", "--set", "node.id=2")
    assert done.returncode == 1
    assert re.search(r"\b1\b.*\b2\b|\b2\b.*\b1\b", done.stderr.splitlines()[-1])


def test_metadata_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServeProcess(data) as process:
        process.stop()
    log = data / "__cluster_metadata-0" / "00000000000000000000.log"
    *_, last = walk(log, bodies=False)
    assert isinstance(last, FoundBatch)
    impossible = data_batches(
        [encode_record(EndTransactionRecord())],
        0,
        base_offset=last.header.last_offset + 1,
        leader_epoch=last.header.leader_epoch,
    )
    with log.open("ab") as file:
        file.writelines(impossible)
    done = serve("--dir", str(data), "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == "barnabas serve: a metadata transaction ends that never began"


# ---- settings -------------------------------------------------------------------------------------------


def test_kafkas_own_file_of_settings_is_understood(tmp_path: Path) -> None:
    port, controller = free_ports(2)
    file = tmp_path / "server.properties"
    file.write_text(SERVER_PROPERTIES.format(port=port, controller=controller, directory=tmp_path / "data"))
    process = ServeProcess(tmp_path / "data", "--config", str(file), "--strict", listen=None)
    with process:
        assert process.port == port
        metadata = metadata_of(port, "three")
        assert len(metadata.topics[0].partitions) == 3
        assert [(broker.host, broker.port) for broker in metadata.brokers] == [("localhost", port)]
        log = process.log()
        assert "beyond this machine" in log  # it listens on every interface
        assert "num.io.threads" in log  # accepted without effect
        assert "is not a setting" not in log
        assert process.stop() == 0


def test_what_it_leaves_for_kafka_is_a_file_it_starts_with(tmp_path: Path) -> None:
    port, controller = free_ports(2)
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    with ServeProcess(tmp_path / "data", "--set", listeners, listen=None) as process:
        acknowledge_one(process.port)
        process.stop()
    (left,) = (tmp_path / "data").glob("*server.properties")
    process = ServeProcess(tmp_path / "data", "--config", str(left), "--strict", listen=None)
    with process:
        assert process.port == port
        assert acknowledge_one(process.port) == 1


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "some.properties"
    file.write_text("num.partitions=2\ndefault.replication.factor=1\n")
    environment = {"KAFKA_NUM_PARTITIONS": "3"}
    arguments = ("--config", str(file))
    for more, expected in (((), 3), (("--set", "num.partitions=4"), 4)):
        process = ServeProcess(tmp_path / f"data-{expected}", *arguments, *more, environment=environment)
        with process:
            assert len(metadata_of(process.port, "t").topics[0].partitions) == expected


def test_an_unknown_setting_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data", "--set", "log.retention.hour=1") as process:
        (line,) = [line for line in process.log().splitlines() if "log.retention.hour " in line]
        assert "WARNING" in line
        assert "did you mean log.retention.hours?" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "log.retention.hour=1", "--strict"), "did you mean log.retention.hours?"),
        (("--set", "num.partitions=many"), "num.partitions"),
        (("--set", "num.partitions=0"), "num.partitions"),
        (("--set", "num.partitions"), "name=value"),
        (("--listen", "nowhere"), "--listen nowhere"),
        (("--listen", "127.0.0.1:70000"), "--listen 127.0.0.1:70000"),
        (("--config", "there-is-no-such-file"), "there-is-no-such-file"),
        (("--set", "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:SSL"), "TLS"),
        (
            ("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
            "authorizer",
        ),
        (("--set", "ssl.keystore.location=/keys"), "TLS"),
        (("--set", "process.roles=broker"), "process.roles"),
        (("--set", "log.dirs=a,./a"), "log.dirs"),
        (("--set", "listeners=SSL://127.0.0.1:0"), "TLS"),
        (("--set", "controller.quorum.voters=1@a:1,2@b:1,3@c:1"), "controller.quorum.voters"),
        (("--set", "controller.quorum.bootstrap.servers=a:1,b:1"), "controller.quorum.bootstrap.servers"),
        (("--set", "controller.quorum.bootstrap.servers=other:9999"), "controller.quorum.bootstrap.servers"),
    ],
)
def test_what_it_cannot_be_is_refused_before_anything_is_done(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    given = ["--set", f"log.dirs={tmp_path / 'data'}", *arguments]
    if not any(one.startswith(("listeners=", "--listen")) for one in arguments):
        given = ["--listen", "127.0.0.1:0", *given]
    done = serve(*given)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.splitlines()[-1].strip()
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("arguments", [("--no-such-flag",), ("--dir",), ("--log-level", "loud")])
def test_a_wrong_command_line_is_status_2(arguments: tuple[str, ...]) -> None:
    done = serve(*arguments)
    assert done.returncode == 2
    assert "usage: barnabas serve" in done.stderr


def test_it_warns_only_where_others_can_reach_it(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "inside") as process:
        assert "beyond this machine" not in process.log()
    with ServeProcess(tmp_path / "outside", listen="0.0.0.0:0") as process:
        warnings = [line for line in process.log().splitlines() if "beyond this machine" in line]
        assert len(warnings) == 2  # of both listeners, clients' and controller's
        assert all("WARNING" in line for line in warnings)
        (told,) = metadata_of(process.port).brokers
        assert told.host == os.uname().nodename  # whoever asks from outside could not reach 127.0.0.1


def test_each_listener_tells_its_own_address(tmp_path: Path) -> None:
    inner, outer, controller = free_ports(3)
    process = ServeProcess(
        tmp_path / "data",
        "--set",
        f"listeners=INNER://127.0.0.1:{inner},OUTER://127.0.0.1:{outer},CONTROLLER://127.0.0.1:{controller}",
        "--set",
        f"advertised.listeners=INNER://127.0.0.1:{inner},OUTER://kafka.example.org:19092",
        "--set",
        "listener.security.protocol.map=INNER:PLAINTEXT,OUTER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "--set",
        "inter.broker.listener.name=INNER",
        listen=None,
    )
    with process:
        for port, told in ((inner, ("127.0.0.1", inner)), (outer, ("kafka.example.org", 19092))):
            metadata = metadata_of(port, "t")
            assert [(broker.host, broker.port) for broker in metadata.brokers] == [told]
            assert metadata.topics[0].partitions[0].leader_id == 1


# ---- what it costs --------------------------------------------------------------------------------------

WATCHED = """
import sys, threading, time, pathlib
asked, told = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
def watch():
    while not asked.exists():
        time.sleep(0.01)
    told.with_suffix(".half").write_text("\\n".join(sorted(sys.modules)))
    told.with_suffix(".half").rename(told)
threading.Thread(target=watch, daemon=True).start()
from barnabas.cli.main import main
sys.exit(main(["serve", *sys.argv[3:]]))
"""

# Each would cost every start tens of milliseconds, or is for somebody who did not ask yet.
NOT_NEEDED = (
    *("typer", "rich", "click", "kio", "pyarrow", "numpy", "prometheus_client", "starlette", "uvicorn"),
    *("confluent_kafka", "aiokafka", "kafka", "pytest", "hypothesis", "pyspark", "google", "crc32c"),
    *("importlib.metadata", "email", "zipfile", "tempfile", "multiprocessing", "http", "difflib"),
    *("barnabas.client", "barnabas.testing", "barnabas.records._pure", "barnabas.core.memory_disk"),
    *("barnabas.core.memory_network", "barnabas.broker.handlers.fetch", "barnabas.log.compaction"),
    *("barnabas.broker.handlers.describe_configs", "barnabas.broker.handlers.list_offsets"),
    *("barnabas.broker.metrics", "barnabas.core.metrics", "barnabas.core.process"),
    *("barnabas.raft.messages", "barnabas.raft.stepping", "barnabas.raft.following", "barnabas.raft.serving"),
    *("barnabas.raft.voter_changes", "barnabas.raft.voting"),
    *("barnabas.transport", "barnabas.broker.cluster.peers", "barnabas.broker.cluster.remote_controller"),
    *("barnabas.broker.cluster.broker_watch", "barnabas.broker.quorum.links", "barnabas.broker.quorum.wire"),
)


@pytest.mark.skipif(kernel.NAME != "c", reason="the pure kernel needs more")
def test_what_is_loaded_at_the_first_ack(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
    asked, told, log = tmp_path / "asked", tmp_path / "told", tmp_path / "log"
    arguments = [str(asked), str(told), "--dir", str(tmp_path / "data"), "--set", listeners]
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", WATCHED, *arguments], stdout=out, stderr=out)
    try:
        wait_until(lambda: " serves at " in log.read_text(), "it serves")
        acknowledge_one(port)
        asked.touch()
        wait_until(told.exists, "it tells")
    finally:
        process.kill()
        process.wait()
    loaded = told.read_text().split("\n")
    assert {"barnabas.broker.handlers.produce", "barnabas.broker.handlers.metadata", "uvloop"} <= set(loaded)
    found = [name for name in NOT_NEEDED if any(m == name or m.startswith(name + ".") for m in loaded)]
    assert not found
    own = [name for name in loaded if name.startswith("barnabas.")]
    folders = {name.rpartition(".")[0] for name in own}  # a docstring each, 0.2 ms
    # some 25 of them are the quorum's: a cluster of one runs what a cluster of several does
    assert len(set(own) - folders) < 180, own
