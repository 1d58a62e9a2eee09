"""A page that shows a terminal with several nodes: docs/cluster.md.

Blocks marked `properties` that begin with `# name.properties` are files of the folder. A command that ends in
`& echo $! > name.pid` starts a node in the background; before the next command that asks something, every
node that runs serves. After a `kill` the process is waited for. `kafka-*.sh` are Apache Kafka's own tools.
Addresses of the page stand for free ones. Which node leads is another with every run.

    python -m tests.support.cluster_console docs/cluster.md     run the page, and write what it prints into it
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from tests.support.apache_kafka import free_ports, java
from tests.support.console import BLOCK, comparable
from tests.support.kafka_tools import TOOLS

TIMEOUT_S = 120.0
POLL_S = 0.02
_FILE = re.compile(r"^```properties\n# (\S+\.properties)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_START = re.compile(r"barnabas serve .* > (\S+\.log) 2>&1 & echo \$! > (\S+\.pid)")
_VARYING = (
    (r"node \d leads in epoch \d+", "A NODE LEADS"),
    (r"(?m)^( +\d+) +(?:leader|voter)( +\S+) .*$", r"\1 VOTER \2"),
    (r"(?m)^( +\d+) +observer( +\S+) .*$", r"\1 OBSERVER \2"),
)


def comparable_cluster(text: str) -> str:
    """A text without what is another with every run, and without who leads."""
    for pattern, name in _VARYING:
        text = re.sub(pattern, name, text)
    return comparable(text)


def free_addresses(page: str) -> dict[str, str]:
    """A free address for each that the page names."""
    shown = sorted(set(_ADDRESS.findall(page)))
    return dict(zip(shown, (f"127.0.0.1:{port}" for port in free_ports(len(shown))), strict=True))


class _Job:
    """A node in the background."""

    def __init__(self, pid: int, log: Path, log_start: int) -> None:
        self.pid = pid
        self._log = log
        self._log_start = log_start

    @property
    def said(self) -> str:
        return self._log.read_bytes()[self._log_start :].decode(errors="replace")

    @property
    def is_running(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        stat = Path(f"/proc/{self.pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


class ClusterSession:
    """A folder, and the commands of a page one after another; no node outlives the `with` block."""

    def __init__(self, folder: Path, page: str, addresses: Mapping[str, str]) -> None:
        self._folder = folder
        self._real = addresses
        self._shown = {real: shown for shown, real in addresses.items()}
        self._jobs: list[_Job] = []
        for name, text in _FILE.findall(page):
            (folder / name).write_text(self._mapped(text, self._real))
        tools = folder / "bin"
        tools.mkdir()
        for name in set(re.findall(r"kafka-([a-z-]+)\.sh", page)):
            script = tools / f"kafka-{name}.sh"
            command = " ".join(f"'{part}'" for part in java(TOOLS[name]))
            script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            script.chmod(0o755)
        self._environment = {
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", str(folder)),
            "BARNABAS_BOOTSTRAP": addresses["127.0.0.1:9092"],
            "TZ": "UTC",
        }

    def __enter__(self) -> ClusterSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = [job for job in self._jobs if job.is_running]
        for job in running:
            os.kill(job.pid, signal.SIGKILL)
        for job in running:
            _wait(lambda job=job: not job.is_running, "a node that was killed ends")

    @staticmethod
    def _mapped(text: str, addresses: Mapping[str, str]) -> str:
        return _ADDRESS.sub(lambda found: addresses.get(found[0], found[0]), text)

    def run(self, command: str) -> str:
        """What it prints, complaints included."""
        start = _START.fullmatch(command)
        if start is not None:
            return self._start(command, self._folder / start[1], self._folder / start[2])
        if not command.startswith("kill "):
            self._settle()
            return self._shell(command)
        said = self._shell(command)
        ended = [job for job in self._jobs if f"{job.pid}" in self._pids(command)]
        for job in ended:
            _wait(lambda job=job: not job.is_running, "a node ends")
            self._jobs.remove(job)
        return said

    def _pids(self, command: str) -> list[str]:
        names = re.findall(r"\S+\.pid", command.replace("$(cat ", " ").replace(")", " "))
        return [(self._folder / name).read_text().strip() for name in names]

    def _start(self, command: str, log: Path, pid: Path) -> str:
        said = self._shell(command)
        self._jobs.append(_Job(int(pid.read_text()), log, 0))
        return said

    def _settle(self) -> None:
        """Wait until every node serves."""
        for job in self._jobs:
            _wait(lambda job=job: " serves at " in job.said or not job.is_running, "a node serves")
            assert job.is_running, f"a node has ended:\n{job.said}"

    def _shell(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", self._mapped(command, self._real)],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return self._mapped(done.stdout, self._shown)


def _wait(condition: object, what: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s: {what}"
        time.sleep(POLL_S)


def rewritten(text: str, folder: Path) -> str:
    """The page with what its commands print now, at the addresses that it names."""
    addresses = {each: each for each in _ADDRESS.findall(text)}
    with ClusterSession(folder, text, addresses) as session:

        def run_block(block: re.Match[str]) -> str:
            commands = re.findall(r"^\$ (.*)\n", block[1], re.MULTILINE)
            printed = (f"$ {command}\n{session.run(command)}" for command in commands)
            return f"```console\n{''.join(printed)}```"

        return BLOCK.sub(run_block, text).replace(f"{folder}/", "/srv/")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        with TemporaryDirectory() as place:
            path = Path(argument)
            path.write_text(rewritten(path.read_text(), Path(place)))
