"""Pay only for what is used: a partition on disk loads neither Arrow, nor a terminal, nor a web framework."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

COSTLY = {"numpy", "prometheus_client", "pyarrow", "pyspark", "rich", "starlette", "typer", "uvicorn"}
LOADED = "import sys, {module}; print(*sorted(sys.modules))"


@pytest.mark.parametrize("module", ["barnabas.records.kernel", "barnabas.log.directory"])
def test_importing_it_loads_nothing_that_an_extra_brings(module: str) -> None:
    command = [sys.executable, "-c", LOADED.format(module=module)]
    loaded = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert module in loaded
    assert not loaded & COSTLY


def test_only_spark_imports_pyspark() -> None:
    source = Path(__file__).parents[2] / "src"
    importing = re.compile(r"^\s*(?:from|import) pyspark\b", re.MULTILINE)
    found = {path.parent for path in source.rglob("*.py") if importing.search(path.read_text())}
    assert found == {source / "barnabas" / "spark"}
