"""Other processes. Since the system reuses ids, a process is identified by its id and its start.

`start_of` differs between any two processes that ever had the same id, those of another boot included. A
signal reaches the identified process, or none.
"""

from __future__ import annotations

import os
import signal
import subprocess

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_DEAD = (b"Z", b"X")
_PS_TIMEOUT_S = 10.0


def start_of(pid: int) -> str | None:
    """The start of a process, as the system reports it; None if there is no such process, or it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the name of the program stands in parentheses, and may contain anything
            fields = file.read().rpartition(b")")[2].split()
        with open(_BOOT_ID, encoding="ascii") as file:
            boot_id = file.read().strip()
    except FileNotFoundError:
        return None if os.path.exists("/proc/self/stat") else _told_by_ps(pid)
    except ProcessLookupError:  # it ended during the read
        return None
    return None if fields[0] in _DEAD else f"{fields[19].decode()} {boot_id}"


def _told_by_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=_PS_TIMEOUT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def send_signal(pid: int, start: str, number: signal.Signals) -> bool:
    """Send a signal to the process with that id and start; returns False if it is gone."""
    try:
        if not hasattr(os, "pidfd_open"):
            if start_of(pid) != start:
                return False
            os.kill(pid, number)
            return True
        descriptor = os.pidfd_open(pid)  # from here on this descriptor identifies one process
    except ProcessLookupError:
        return False
    try:
        if start_of(pid) != start:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
