"""What runs while `kills` kills: the broker, a feeder of numbers, and the query with all its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from confluent_kafka import Producer

from barnabas.spark.home import quick_home
from tests.spark.kills_judge import Checkpoint
from tests.spark.kills_query import INPUT, last_run
from tests.support.apache_kafka import free_ports
from tests.support.marked_processes import MARK, Process, Victim, family, kill_family
from tests.support.serve_process import ServeProcess

ROOT = Path(__file__).parents[2]
IN_PARTITIONS, OUT_PARTITIONS, KEYS = 4, 3, 12
AHEAD = 1200  # records that the feeder is ahead of the query, at most
LOCAL, CLUSTER = "local[2,8]", "local-cluster[2,1,1024]"

WORDS = {  # by which a process is known: a word of its command
    "task": "pyspark.worker",
    "tasks": "pyspark.worker",
    "committer": "pyspark.sql.worker.python_streaming_sink_runner",
    "reader": "pyspark.sql.streaming.python_streaming_source_runner",
    "executor": "CoarseGrainedExecutorBackend",
    "jvm": "SparkSubmit",
}
FORKS = {"task": True, "tasks": False, "committer": True}  # or the one that has forked them


@contextmanager
def served(directory: Path) -> Iterator[tuple[ServeProcess, str]]:
    (port,) = free_ports(1)
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
    with ServeProcess(directory / "data", "--set", listeners, listen=None) as serve:
        yield serve, f"127.0.0.1:{port}"


class Query:
    """The process of the driver, and all that it starts."""

    def __init__(self, bootstrap: str, directory: Path, sink: str, random: Random, executors: float) -> None:
        self.lives = 0
        self._bootstrap, self._directory, self._sink = bootstrap, directory, sink
        self._random, self._executors = random, executors
        self._process: subprocess.Popen[bytes] | None = None
        self._sleeping: list[Victim] = []
        (directory / "tmp").mkdir()
        home = quick_home({"XDG_CACHE_HOME": str(directory)})  # executors write beside it
        self._environment = {
            **os.environ,
            MARK: str(directory),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",  # as it is there, whatever is installed
            "SPARK_LOCAL_IP": "127.0.0.1",
            **({} if home is None else {"SPARK_HOME": home}),
        }

    def ensure(self) -> None:
        """Start it if it does not run."""
        if self._process is None or self._process.poll() is not None:
            master = CLUSTER if self._random.random() < self._executors else LOCAL
            self._process = self._spawn(master)
            self.lives += 1

    def _spawn(self, master: str) -> subprocess.Popen[bytes]:
        tasks = str(self._random.randint(2, 4))
        arguments = (master, self._bootstrap, str(self._directory), self._sink, tasks)
        with (self._directory / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kills_query", *arguments],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def processes(self, kind: str) -> list[Process]:
        """Those of a kind."""
        word = WORDS[kind]
        found = [each for each in family(str(self._directory)) if each.has(word)]
        pids = {each.pid for each in found}
        if kind in FORKS:
            return [each for each in found if (each.parent in pids) == FORKS[kind]]
        return found

    def kill(self) -> None:
        """All of it."""
        self.kill_sleeper()
        kill_family(str(self._directory))
        if self._process is not None:
            self._process.wait()
            self._process = None

    def fall_asleep(self) -> None:
        """All of its processes stop where they are: whoever looks takes it for dead, and starts another."""
        assert self._process is not None
        (self._directory / last_run(self._process.pid)).touch()  # when it wakes, it goes on, but not again
        for each in family(str(self._directory)):
            with suppress(ProcessLookupError):
                self._sleeping.append(Victim(each))
                self._sleeping[-1].signal(signal.SIGSTOP)
        self._process = None

    def wake(self) -> None:
        """The one that slept goes on, beside the other."""
        for each in self._sleeping:
            each.signal(signal.SIGCONT)

    def kill_sleeper(self) -> None:
        """It slept, or was woken."""
        while self._sleeping:
            with self._sleeping.pop() as victim:
                victim.kill()


class Feeder:
    """Writes numbers, a little ahead of the query; the numbers of a key go to one partition."""

    def __init__(self, bootstrap: str, checkpoint: Checkpoint) -> None:
        self.fed = 0
        self._checkpoint = checkpoint
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
        }
        self._producer = Producer({**settings, "reconnect.backoff.max.ms": 100})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            taken = sum(self._checkpoint.ends(self._checkpoint.begun()).values())
            while self.fed < taken + AHEAD:
                key = self.fed % KEYS
                self._producer.produce(INPUT, b"%d" % self.fed, b"%d" % key, key % IN_PARTITIONS)
                self.fed += 1
            self._producer.poll(0)

    def finish(self) -> None:
        """Stop, and wait for what was sent."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "input was never acknowledged"
