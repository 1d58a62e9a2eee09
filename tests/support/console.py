"""What the documents show of a terminal: blocks marked `console`, in which every line behind a `$` is run.

A page is one session in one folder. `barnabas serve` goes on beside the other commands, shown up to the line
that says where it serves; `kill` is sent to the last one that was started, whatever number the page shows,
and what that said to its end stands behind it. Outputs are compared without what is another with every run.

    python -m tests.support.console docs/operate.md     run the page, and write what was printed into it
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from tests.support.apache_kafka import free_ports

TIMEOUT_S = 120.0
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
# what is another with every run
_VARYING = (
    (r"(?:127\.0\.0\.1|localhost):\d+", "ADDRESS"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "TIME"),
    (r"\d{4}-\d\d-\d\d [\d:,]+", "TIME"),
    (r"(?<![\w-])[\w-]{22}(?![\w-])", "ID"),
    (r"/\S*/(?=barnabas-data|data|more|backup)", "FOLDER/"),
    (r"\d[\d.]* ms\b", "MILLISECONDS"),
    (r"\d[\d.]* (?:B|KiB|MiB|GiB|TiB)\b", "SIZE"),
    (r"process \d+", "PROCESS"),
    (r"\b\d{2,}\b", "NUMBER"),
    (r"[ ]{2,}", "  "),
)


def steps(text: str) -> list[tuple[str, str]]:
    """The commands of a page and what it says they print."""
    found = [re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in BLOCK.findall(text)]
    return [(command, output) for each in found for command, output in (one.split("\n", 1) for one in each)]


def comparable(text: str) -> str:
    """A text without what is another with every run."""
    for pattern, name in _VARYING:
        text = re.sub(pattern, name, text)
    return text


class Session:
    """A folder, and the commands of a page one after another; nothing outlives the `with` block."""

    def __init__(self, folder: Path, **environment: str) -> None:
        broker, controller = (f"127.0.0.1:{port}" for port in free_ports(2))
        self._folder = folder
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "BARNABAS_BOOTSTRAP": broker,
            "KAFKA_LISTENERS": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "TZ": "UTC",
            **environment,
        }
        self._address = broker
        self._serving: subprocess.Popen[str] | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._serving is not None:
            self._end(signal.SIGKILL)

    def run(self, command: str) -> str:
        """What it prints, complaints included."""
        words = command.replace("127.0.0.1:9092", self._address)
        if killing := re.fullmatch(r"kill -(\w+) \d+", command):
            return self._end(signal.SIGKILL if killing[1] == "9" else signal.Signals[f"SIG{killing[1]}"])
        if command.startswith("barnabas serve") and self._serving is None:
            return self._serve(words)
        done = subprocess.run(
            ["sh", "-c", words],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.stdout.replace(self._address, "127.0.0.1:9092")

    def _serve(self, command: str) -> str:
        self._serving = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._serving.stderr is not None
        said = ""
        for line in self._serving.stderr:
            said += line
            if " serves at " in line:
                break
        return said.replace(self._address, "127.0.0.1:9092")

    def _end(self, number: signal.Signals) -> str:
        assert self._serving is not None, "nothing is running"
        serving, self._serving = self._serving, None
        serving.send_signal(number)
        _, said = serving.communicate(timeout=TIMEOUT_S)
        return said


def rewritten(text: str, folder: Path) -> str:
    """The page with what its commands print now."""
    with Session(folder) as session:

        def run_block(block: re.Match[str]) -> str:
            commands = re.findall(r"^\$ (.*)\n", block[1], re.MULTILINE)
            printed = (f"$ {command}\n{session.run(command)}" for command in commands)
            return f"```console\n{''.join(printed)}```"

        return BLOCK.sub(run_block, text).replace(f"{folder}/", "/var/lib/barnabas/")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with TemporaryDirectory() as place:
            page = Path(name)
            page.write_text(rewritten(page.read_text(), Path(place)))
