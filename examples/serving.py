"""What the examples share: a broker as a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

START_SECONDS = 20.0


def free_port() -> int:
    """A port that nobody uses, with one for the controller 1000 above."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port if port < 64000 else free_port()


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


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and wait until it has."""
    process.terminate()
    process.wait(START_SECONDS)
