"""The log of `barnabas serve`: objects that machines read, levels by logger, and no secrets."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import datetime
from pathlib import Path

import pytest

from barnabas.cli import serve
from barnabas.cli.log_format import JsonFormatter, levels_of
from tests.support.serve_process import ServeProcess


def formatted(message: str, *arguments: object, **more: object) -> dict[str, object]:
    logger = logging.getLogger("barnabas.tests.log_format")
    record = logger.makeRecord(
        logger.name, logging.WARNING, "file.py", 1, message, arguments, None, extra=more
    )
    text = JsonFormatter().format(record)
    assert "\n" not in text
    fields: dict[str, object] = json.loads(text)
    return fields


def test_a_record_is_an_object_on_one_line() -> None:
    fields = formatted("a letter\nfor %s", "Kä", topic="letters", partition=3, path=Path("/castle"))
    time = fields.pop("time")
    assert fields == {
        "level": "WARNING",
        "logger": "barnabas.tests.log_format",
        "message": "a letter\nfor Kä",
        "topic": "letters",
        "partition": 3,
        "path": "/castle",
    }
    assert isinstance(time, str)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert abs(datetime.fromisoformat(time).timestamp() - datetime.now().timestamp()) < 60


def test_fields_do_not_replace_what_every_object_has() -> None:
    fields = formatted("a letter", level="none", time=0)
    assert fields["level"] == "WARNING"
    assert fields["time"] != 0


def test_an_exception_is_a_field() -> None:
    try:
        raise ZeroDivisionError("a mistake")
    except ZeroDivisionError:
        record = logging.LogRecord("barnabas", logging.ERROR, "", 1, "it failed", (), sys.exc_info())
    fields = json.loads(JsonFormatter().format(record))
    assert fields["message"] == "it failed"
    assert fields["exception"].endswith("ZeroDivisionError: a mistake")


def test_levels_of_single_loggers() -> None:
    text = "kafka.server=INFO, barnabas.connections=warn,=DEBUG,nothing,x=LOUD,"
    assert list(levels_of(text)) == [("kafka.server", 20), ("barnabas.connections", 30)]


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_a_node_that_logs_objects(tmp_path: Path, by: str) -> None:
    flags = ["--metrics", "127.0.0.1:0"] + (["--log-format", "json"] if by == "flag" else [])
    environment = {
        "KAFKA_LOG4J_LOGGERS": "barnabas.quorum=ERROR",
        **({"KAFKA_BARNABAS_LOG_FORMAT": "json"} if by == "environment" else {}),
    }
    with ServeProcess(tmp_path / "data", *flags, environment=environment) as node:
        assert node.stop() == 0
    lines = [json.loads(line) for line in node.log().splitlines()]
    (ready,) = [line for line in lines if " serves at " in line["message"]]
    assert ready["logger"] == "barnabas.serve"
    assert ready["node_id"] == 1
    assert ready["ready_ms"] >= 0
    assert any(line["message"].startswith("metrics at http://127.0.0.1:") for line in lines)
    assert lines[-1]["message"] == "stopped cleanly"
    assert not any(line["logger"] == "barnabas.quorum" for line in lines)


def test_why_it_cannot_start_is_an_object_too(tmp_path: Path) -> None:
    flags = [
        "--log-format",
        "json",
        "--set",
        "ssl.keystore.password=hush",
        "--set",
        "ssl.truststore.type=JKS",
    ]
    node = ServeProcess(tmp_path / "data", *flags)
    node.spawn()
    assert node.wait() == 1
    (line,) = [json.loads(each) for each in node.log().splitlines()]
    assert line["level"] == "CRITICAL"
    assert "ssl.keystore.password" in line["message"]
    assert "hush" not in node.log()


def test_a_wrong_address_for_metrics_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.main(["--dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--metrics", "here"]) == 1
    assert "barnabas.metrics.listen=here" in capsys.readouterr().err
