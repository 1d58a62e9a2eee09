"""Run the tests in two lanes at a time: `python -m tools.lanes "java or node or go or spark"`.

The tests with one of these marks run other people's programs and spend much of their time waiting for them;
the others run meanwhile. What the second lane prints comes when both are done, so that neither's lines get
lost among the other's. Ends with 0 only if both lanes do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile


def run(marks: str) -> int:
    """The exit code of the lane that failed, or 0."""
    pytest = [sys.executable, "-m", "pytest", "--durations=25", "-m"]
    with tempfile.TemporaryFile() as printed:
        second = subprocess.Popen(
            [*pytest, marks], stdout=printed, stderr=subprocess.STDOUT, preexec_fn=_stand_back
        )
        try:
            first = subprocess.run([*pytest, f"not ({marks})"], check=False)
            second.wait()
        except BaseException:
            second.kill()
            second.wait()
            raise
        printed.seek(0)
        sys.stdout.write(f"\n== and those marked {marks}:\n\n")
        sys.stdout.write(printed.read().decode(errors="replace"))
    return first.returncode or second.returncode


def _stand_back() -> None:
    """What waits for others has time; what is measured in milliseconds has not."""
    os.nice(10)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
