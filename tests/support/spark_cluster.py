"""A standalone Spark cluster of processes: a master and workers, from the jars in PySpark's wheel.

    with SparkCluster(directory, workers=2) as cluster:
        ... cluster.master          as spark://127.0.0.1:40123

None of them outlives the `with` block: each leads a group of processes, which ends with it, executors and
their Python included.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyspark

from barnabas.spark.java import find_java

HOME = Path(pyspark.__file__).parent
# a JVM that starts quickly, and no server of REST at a fixed port
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false"
START_DEADLINE_S = 120.0
POLL_S = 0.02


class SparkCluster:
    """What they write is in files of the directory."""

    def __init__(self, directory: Path, workers: int) -> None:
        self.master = ""
        self._directory = directory
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        directory.mkdir(parents=True)

    def __enter__(self) -> SparkCluster:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def executor_logs(self) -> list[Path]:
        """The logs of the executors that ran, in the directory of their worker."""
        return sorted(self._directory.glob("worker-*/app-*/*/stderr"))

    def _start(self) -> None:
        log = self._spawn("master", "master.Master", "--port", "0")
        self.master = self._wait_for(log, r"Starting Spark master at (spark://\S+)")
        arguments = ("--cores", "1", "--memory", "1g", self.master)
        names = [f"worker-{number}" for number in range(self._workers)]
        logs = [
            self._spawn(name, "worker.Worker", "--work-dir", str(self._directory / name), *arguments)
            for name in names
        ]
        for log in logs:
            self._wait_for(log, r"Successfully registered with (master)")

    def _spawn(self, name: str, kind: str, *arguments: str) -> Path:
        log_file = self._directory / f"{name}.log"
        home = find_java().home
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            **({} if home is None else {"JAVA_HOME": home}),
        }
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        return log_file

    def _wait_for(self, log_file: Path, pattern: str) -> str:
        deadline = time.monotonic() + START_DEADLINE_S
        while (found := re.search(pattern, log_file.read_text(errors="replace"))) is None:
            if time.monotonic() > deadline or any(each.poll() is not None for each in self._processes):
                raise AssertionError(f"no {pattern!r} in:\n{log_file.read_text(errors='replace')[-4000:]}")
            time.sleep(POLL_S)
        return found[1]

    def _stop(self) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
