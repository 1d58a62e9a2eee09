"""Benchmarks rot when nobody runs them: each runs here, on tiny input."""

from __future__ import annotations

import json
import math

import pytest

from bench import __main__ as bench
from bench.report import Row, Section, as_json, markdown, number, table


@pytest.mark.parametrize("name", bench.MODULES)
def test_it_runs(name: str) -> None:
    (section,) = bench.measure([name], small=True)
    assert section.title == name
    assert section.rows
    for row in section.rows:
        assert row.name
        assert math.isfinite(row.value)
        assert row.value >= 0
        assert row.ratio is None or row.ratio > 0
    assert len({row.name for row in section.rows}) == len(section.rows)


SECTIONS = [
    Section("log", [Row("append", 1234567.8, "batches/s", "of os.write", 0.72), Row("open", 0.12345, "s")])
]


def test_the_page_gives_the_circumstances_and_every_row() -> None:
    page = markdown(SECTIONS, {"commit": "abc"})
    assert "- commit: abc" in page
    assert "| log: append | 1,234,568 | batches/s | 0.72 | of os.write |" in page
    assert "| log: open | 0.123 | s |  |  |" in page


def test_json_and_table_hold_the_same_rows() -> None:
    rows = json.loads(json.dumps(as_json(SECTIONS, {})))["rows"]
    assert rows[0] == {
        "bench": "log",
        "name": "append",
        "value": 1234567.8,
        "unit": "batches/s",
        "note": "of os.write",
        "ratio": 0.72,
    }
    assert table(SECTIONS).row_count == len(rows) + len(SECTIONS) == 3


def test_a_partial_run_is_not_written_to_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.parse(["--write", "--small"])
    assert "full run" in capsys.readouterr().err


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
