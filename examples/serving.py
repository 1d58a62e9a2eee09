"""What the examples share: a broker, and a pipeline, as processes of their own."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 60.0


def free_port() -> int:
    """A port that nobody uses, with one for the controller 1000 above; none that a system would give to an
    outgoing connection while the broker is away."""
    while True:
        port = random.randrange(10_000, 30_000)
        try:
            for each in (port, port + 1000):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        return port


def start(directory: Path, port: int, *settings: str) -> tuple[subprocess.Popen[bytes], float]:
    """`barnabas serve` with these settings (name=value) once it answers, and how long that took."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "barnabas", "serve", "--dir", str(directory)]
    command += ["--listen", f"127.0.0.1:{port}", "--log-level", "warning"]
    process = subprocess.Popen([*command, *(part for each in settings for part in ("--set", each))])
    while time.perf_counter() - began < START_SECONDS:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process, time.perf_counter() - began
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.005)
    process.kill()
    raise SystemExit("the broker did not start; its words are above")


def start_pipeline(bootstrap: str, directory: Path) -> subprocess.Popen[bytes]:
    """pipeline.py with its JVM, in a process group of their own; what they say is kept in the directory."""
    script = Path(__file__).with_name("pipeline.py")
    command = [sys.executable, str(script), "--bootstrap", bootstrap, "--dir", str(directory)]
    temporary = directory / "tmp"  # who is killed cannot clean up: it should not be in everybody's /tmp
    temporary.mkdir(parents=True, exist_ok=True)
    places = {"TMPDIR": str(temporary), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}"}
    with (directory / "pipeline.log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env=os.environ | places
        )


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for a process and those that it started: nobody gets to say a last word.

    Spark's Python workers are a group of their own, and go when they see that their JVM is gone.
    """
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and wait until it has."""
    process.terminate()
    process.wait(STOP_SECONDS)
