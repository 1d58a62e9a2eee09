"""The pages about Spark, run: their blocks of Python one after another, as one program of one session.

A page is written for a broker at 127.0.0.1:9092, a session `spark` and files in /tmp; it gets others. What a
block of Python prints stands in a block of text right behind it, to the letter. What commands print stands
in blocks marked `console`, but for what is another with every run (console).

    python -m tests.support.spark_pages docs/spark.md     run the page, and write what was printed into it
"""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from barnabas.testing import Broker
from tests.support.console import Session
from tests.support.targets import NO_RETENTION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("spark.md", "spark-source.md", "spark-sink.md", "spark-pipelines.md", "spark-from-kafka.md")
ADDRESS = "127.0.0.1:9092"
FILES = "/tmp/"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(python|text|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Program:
    """A page while it runs."""

    def __init__(self, name: str, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._name, self._bootstrap, self._folder = name, bootstrap, folder
        self._names: dict[str, Any] = {"spark": spark}
        self._printed = ""
        self._session = Session(folder, BARNABAS_BOOTSTRAP=bootstrap)

    def run(self, text: str) -> str:
        """The page with what its blocks print now."""
        shown = _BLOCK.sub(self._block, text)
        assert not self._printed, f"{self._name} does not show what was printed last: {self._printed}"
        return shown

    def _block(self, block: re.Match[str]) -> str:
        kind, body = block[1], block[2]
        if kind == "text":
            body, self._printed = self._printed or body, ""
        assert not self._printed, f"{self._name} does not show this, before {body}: {self._printed}"
        if kind == "python":
            self._execute(body)
        elif kind == "console":
            commands = re.findall(r"^\$ (.*)\n", body, re.MULTILINE)
            body = "".join(f"$ {each}\n{self._as_written(self._session.run(each))}" for each in commands)
        return f"```{kind}\n{body}```"

    def _execute(self, code: str) -> None:
        here = code.replace(ADDRESS, self._bootstrap).replace(FILES, f"{self._folder}/")
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(here, self._name, "exec"), self._names)
        self._printed = self._as_written(printed.getvalue())

    def _as_written(self, printed: str) -> str:
        printed = printed.replace(self._bootstrap, ADDRESS).replace(f"{self._folder}/", FILES)
        return re.sub(r"[ ]+$", "", printed, flags=re.MULTILINE)


def rewritten(name: str, spark: SparkSession, bootstrap: str, folder: Path) -> str:
    """A page with what its blocks print now; its session is this one, and no stream goes on."""
    program = Program(name, spark, bootstrap, folder)
    try:
        with patch("barnabas.spark.session.local_session", return_value=spark):
            return program.run((DOCS / name).read_text())
    finally:
        for query in spark.streams.active:
            query.stop()


def main(pages: list[str]) -> None:
    from barnabas.spark.session import local_session

    with TemporaryDirectory() as place:
        spark = local_session("pages", cores=2, log_file=Path(place) / "spark.log")
        for page in map(Path, pages):
            with TemporaryDirectory() as folder, Broker(settings=NO_RETENTION) as broker:
                page.write_text(rewritten(page.name, spark, broker.bootstrap, Path(folder)))
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
