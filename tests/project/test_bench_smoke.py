"""Benchmarks rot when nobody runs them: each runs here, on tiny input."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

from bench import __main__ as bench
from bench.options import Options
from bench.report import Pair, Row, Section, as_json, at_least, at_most, number, page, tables, value_at_most

BARNABAS = Options(small=True, systems=("barnabas",), clients=("confluent",))
KAFKA = Options(small=True, systems=("kafka",), clients=("confluent", "java"))


@pytest.mark.parametrize("name", bench.ALONE)
def test_it_runs(name: str) -> None:
    rows = measured(name, BARNABAS)
    for row in rows:
        assert isinstance(row, Row)
        assert math.isfinite(row.value)
        assert row.value >= 0
        assert row.ratio is None or row.ratio > 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=(pytest.mark.spark, pytest.mark.java) if each == "spark" else ())
        for each in bench.SIDE_BY_SIDE
    ],
)
def test_it_runs_against_barnabas(name: str) -> None:
    for pair in measured(name, BARNABAS):
        assert isinstance(pair, Pair)
        assert pair.kafka is None
        assert pair.barnabas is not None
        assert math.isfinite(pair.barnabas)


@pytest.mark.java
@pytest.mark.slow  # starts Apache Kafka, and a JVM for every workload of its own client
@pytest.mark.parametrize("name", ["produce", pytest.param("consume", marks=pytest.mark.long)])
def test_it_runs_against_kafka_with_its_own_client(name: str) -> None:
    pairs = measured(name, KAFKA)
    assert {pair.name.partition(",")[0] for pair in pairs} == {"confluent", "java"}
    for pair in pairs:
        assert isinstance(pair, Pair)
        assert pair.kafka is not None
        # CPU time is told in hundredths of a second, and tiny input may take less than one
        assert pair.kafka > 0 or "CPU" in pair.name


def measured(name: str, options: Options) -> Sequence[Row] | Sequence[Pair]:
    (section,) = bench.measure([name], options)
    assert section.title == name
    assert section.rows
    assert len({row.name for row in section.rows}) == len(section.rows)
    return section.rows


SECTIONS = [
    Section("log", [Row("append", 1234567.8, "batches/s", "of os.write", 0.72), Row("open", 0.12345, "s")]),
    Section("latency", [Pair("p50", "ms", 0.5, 0.8, at_most(0.5), floor=0.2, note="floor 0.2")]),
]
ORDER = ("kernel", "log", "latency")


def test_the_page_gives_the_circumstances_and_every_row() -> None:
    text = page("", SECTIONS, {"commit": "abc"}, ORDER)
    assert text.count("- commit: abc") == 2
    assert "| append | 1,234,568 | batches/s | 0.72 | of os.write |" in text
    assert "| open | 0.123 | s |  |  |" in text
    assert "| p50 | 0.5 | 0.8 | ms | 0.5 | ≤ 0.5 | yes | floor 0.2 |" in text


def test_a_section_that_was_not_measured_stays_as_it_was() -> None:
    old = page("", [Section("kernel", [Row("crc", 1.0, "GB/s")]), *SECTIONS], {"commit": "old"}, ORDER)
    new = page(old, [Section("log", [Row("append", 2.0, "batches/s")])], {"commit": "new"}, ORDER)
    assert [line for line in new.splitlines() if line.startswith("## ")] == [
        "## kernel",
        "## log",
        "## latency",
    ]
    assert new.count("- commit: old") == 2
    assert new.count("- commit: new") == 1
    assert "1,234,568" not in new
    assert page(new, [], {}, ORDER) == new


def test_the_page_in_the_docs_has_this_form() -> None:
    text = bench.PAGE.read_text()
    assert page(text, [], {}, bench.MODULES) == text


def test_json_and_tables_hold_the_same_rows() -> None:
    rows = json.loads(json.dumps(as_json(SECTIONS, {})))["rows"]
    assert rows[0] == {
        "bench": "log",
        "name": "append",
        "value": 1234567.8,
        "unit": "batches/s",
        "note": "of os.write",
        "ratio": 0.72,
    }
    assert (rows[2]["ratio"], rows[2]["target"], rows[2]["reached"]) == (pytest.approx(0.5), "≤ 0.5", True)
    assert [table.row_count for table in tables(SECTIONS)] == [3, 2]


@pytest.mark.parametrize(
    ("pair", "ratio", "reached"),
    [
        (Pair("", "MB/s", 90, 100, at_least(1.0)), 0.9, False),
        (Pair("", "MB/s", 100, 100, at_least(1.0)), 1.0, True),
        (Pair("", "s/GB", 1, 4, at_most(0.5)), 0.25, True),
        (Pair("", "ms", 3, 5, at_most(0.5), floor=2), 1 / 3, True),
        (Pair("", "MB", 200, 800, value_at_most(150)), 0.25, False),
        (Pair("", "MB", 100, None, value_at_most(150)), None, True),
        (Pair("", "MB/s", 100, None, at_least(1.0)), None, None),
        (Pair("", "MB/s", 100, 50), 2.0, None),
    ],
)
def test_targets_are_judged(pair: Pair, ratio: float | None, reached: bool | None) -> None:
    assert pair.ratio == (None if ratio is None else pytest.approx(ratio))
    assert pair.reached is reached


@pytest.mark.parametrize(
    "more", [["--small"], ["--system", "barnabas"], ["--client", "java"], ["--match", "1"]]
)
def test_half_a_run_is_not_written_to_the_docs(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.parse(["--write", *more])
    assert "full run" in capsys.readouterr().err


def test_benchmarks_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.parse(["--only", "produce,consume", "--only", "log"]).only == ["produce", "consume", "log"]
    with pytest.raises(SystemExit):
        bench.parse(["--only", "produce,nonsense"])
    assert "no such benchmark: nonsense" in capsys.readouterr().err


def test_the_circumstances_name_machine_and_commit() -> None:
    facts = bench.circumstances(["--small"])
    assert facts["command"] == "python -m bench --small"
    assert facts["commit"]
    assert "cores" in facts["machine"]


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (0.00123456, "0.00123"), (99.95, "100"), (1e6, "1,000,000")]
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown
