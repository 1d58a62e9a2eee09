"""A topic copied to another by a Spark of its own with little memory: `spark_small.py bootstrap from to`.

The last line it prints is a JSON list: the largest resident size, in bytes, of each of its Python workers.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from barnabas.spark.session import local_session

HEAP = "512m"


def peaks_bytes() -> list[int]:
    """Of the processes below this one that run Python, but the one that only forks the others."""
    parents: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:  # it has ended
            continue
        fields = dict(re.findall(r"^(\w+):\s+(\S+)", text, re.MULTILINE))
        parents[int(fields["Pid"])] = int(fields["PPid"])
        if fields["Name"].startswith("python") and "VmHWM" in fields:
            peaks[int(fields["Pid"])] = int(fields["VmHWM"]) * 1024
    return [
        peak
        for pid, peak in peaks.items()
        if pid != os.getpid() and _is_below(pid, parents) and pid not in parents.values()
    ]


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def main(bootstrap: str, source: str, target: str) -> None:
    with TemporaryDirectory() as scratch:
        settings = {"spark.driver.memory": HEAP}
        spark = local_session("small", cores=2, log_file=Path(scratch) / "spark.log", settings=settings)
        try:
            rows = (
                spark.read.format("barnabas")
                .option("kafka.bootstrap.servers", bootstrap)
                .option("subscribe", source)
                .option("columns", "value")
                .load()
            )
            (
                rows.write.format("barnabas")
                .option("kafka.bootstrap.servers", bootstrap)
                .option("kafka.compression.type", "zstd")
                .option("topic", target)
                .mode("append")
                .save()
            )
            print(json.dumps(peaks_bytes()))
        except BaseException:
            print((Path(scratch) / "spark.log").read_text()[-2000:], file=sys.stderr)
            raise
        finally:
            spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
