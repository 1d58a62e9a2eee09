"""The pages about Spark: what they tell to run is run, and prints what they show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import Broker
from tests.support.console import comparable
from tests.support.spark_pages import CONSOLE, DOCS, PAGES, rewritten
from tests.support.targets import NO_RETENTION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200), pytest.mark.slow]  # whole pages are run


@pytest.mark.parametrize("page", PAGES)
def test_blocks_print_what_the_page_shows(page: str, spark: SparkSession, tmp_path: Path) -> None:
    shown = (DOCS / page).read_text()
    with Broker(settings=NO_RETENTION) as broker:
        printed = rewritten(page, spark, broker.bootstrap, tmp_path)
    assert CONSOLE.sub("", printed) == CONSOLE.sub("", shown)
    assert list(map(comparable, CONSOLE.findall(printed))) == list(map(comparable, CONSOLE.findall(shown)))
