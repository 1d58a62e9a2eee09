"""The broker that users have in their tests: what it keeps, what it refuses, and what it costs."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from barnabas.core.settings.definition import InvalidSetting
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.testing import Broker, BrokerFailed
from tests.support.raw_client import RawClient, fetch_request, metadata_request, produce_request, wait_until
from tests.support.serve_process import acknowledge_one


@pytest.mark.parametrize("module", ["barnabas.testing.broker", "barnabas.broker.coordinators.produced"])
def test_pytest_does_not_rewrite_barnabas(module: str) -> None:
    assert isinstance(importlib.import_module(module).__loader__, SourceFileLoader)


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill], ids=["stop", "kill"])
@pytest.mark.parametrize("is_in_memory", [True, False], ids=["memory", "directory"])
def test_data_and_port_stay_from_one_life_to_the_next(
    end: object, is_in_memory: bool, tmp_path: Path
) -> None:
    assert callable(end)
    broker = Broker(None if is_in_memory else tmp_path / "data")
    ports = set()
    for life in range(3):
        with broker:
            assert acknowledge_one(broker.port) == life
            ports.add(broker.port)
            end(broker)
    assert len(ports) == 1


def test_what_cannot_be_done_is_told() -> None:
    broker = Broker()
    broker.stop()  # harmless
    with pytest.raises(BrokerFailed, match="not running"):
        _ = broker.node
    with broker, pytest.raises(BrokerFailed, match="already running"):
        broker.start()
    with pytest.raises(InvalidSetting, match=r"num\.partitions"):
        Broker(settings={"num.partitions": "many"}).start()


def test_it_is_there_at_once() -> None:
    """From nothing to the first acknowledged record in a few milliseconds of work, and without a wait.

    A busy machine has three tries. Real time has a wide margin: it is there to find a timer on the way.
    """

    def seconds() -> tuple[float, float]:
        began, worked = time.perf_counter(), time.process_time()
        with Broker() as broker:
            acknowledge_one(broker.port)
            return time.process_time() - worked, time.perf_counter() - began

    tries = [seconds() for _ in range(3)]
    assert min(work for work, _ in tries) < 0.15
    assert min(elapsed for _, elapsed in tries) < 2


def test_pytest_does_not_load_it_for_tests_that_do_not_use_it() -> None:
    """The plugin is loaded wherever Barnabas is installed: it must cost next to nothing."""
    code = "import sys, barnabas.testing.plugin; print(*(name for name in sys.modules if 'barnabas' in name))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["barnabas", "barnabas.testing", "barnabas.testing.plugin"]


def test_a_stop_leaves_nothing_open_of_a_client_that_does_not_read() -> None:
    with Broker() as broker, RawClient(broker.port) as client:
        client.ask(metadata_request("t"), 9, MetadataResponse)
        for _ in range(20):
            client.ask(produce_request("t", [b"x" * 900_000]), 9, ProduceResponse)
        for _ in range(20):
            client.send(fetch_request("t", max_bytes=20_000_000), 12)

        async def unsent() -> int:
            sessions = broker.node.broker.connections._sessions
            return sum(session.connection.unsent_bytes for session in sessions)

        wait_until(lambda: broker.run(unsent()) > 0, "answers wait")
        broker.stop()
        gc.collect()  # what was left open is complained of now
