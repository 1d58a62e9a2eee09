"""Run the tests in several lanes at a time: `python -m tools.lanes "java or node or go" spark`.

The first lane has the tests with none of these marks; every further one has those with its marks, and with
none of a later lane's. They run other people's programs and spend much of their time waiting for them; the
first runs meanwhile. What the others print comes when all are done, so that no lane's lines get lost among
another's. Ends with 0 only if all lanes do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack


def run(marks: Sequence[str]) -> int:
    """The exit code of a lane that failed, or 0."""
    pytest = [sys.executable, "-m", "pytest", "--durations=25", "-m"]
    chosen = [_without(marks[number + 1 :], f"({each})") for number, each in enumerate(marks)]
    with ExitStack() as stack:
        lanes = []
        for each in chosen:
            printed = stack.enter_context(tempfile.TemporaryFile())
            lane = subprocess.Popen(
                [*pytest, each], stdout=printed, stderr=subprocess.STDOUT, preexec_fn=_stand_back
            )
            stack.callback(lane.wait)
            stack.callback(lane.kill)  # harmless once it has ended
            lanes.append((each, lane, printed))
        codes = [subprocess.run([*pytest, _without(marks)], check=False).returncode]
        for each, lane, printed in lanes:
            codes.append(lane.wait())
            printed.seek(0)
            sys.stdout.write(f"\n== and those marked {each}:\n\n")
            sys.stdout.write(printed.read().decode(errors="replace"))
    return next((code for code in codes if code), 0)


def _without(marks: Sequence[str], *chosen: str) -> str:
    return " and ".join([*chosen, *(f"not ({each})" for each in marks)])


def _stand_back() -> None:
    """What waits for others has time; what is measured in milliseconds has not."""
    os.nice(10)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
