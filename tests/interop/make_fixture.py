"""Makes fixtures/kafka-4.3.0.tar.xz anew: python -m tests.interop.make_fixture (needs Java and Maven).

It is what workload.py keeps of one run of Apache Kafka, so that the tests which read it need no Java.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from tests.interop.workload import KafkaDirectories, make
from tests.support.apache_kafka import VERSION, missing

FIXTURE = Path(__file__).resolve().parent / "fixtures" / f"kafka-{VERSION}.tar.xz"


def pack(root: Path) -> None:
    """The three directories into one archive, without who made it and when."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(FIXTURE, "w:xz", preset=9) as archive:
        for name in ("clean", "killed", "recovered"):
            archive.add(root / name, name, filter=anonymous)


def unpack(root: Path) -> KafkaDirectories:
    with tarfile.open(FIXTURE) as archive:
        # early patch releases of Python 3.11 have no filters; the archive is our own
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(root, **safely)  # type: ignore[arg-type]
    return KafkaDirectories.at(root)


def main() -> None:
    lacking = missing()
    if lacking is not None:
        sys.exit(f"cannot run Apache Kafka here: {lacking}")
    with tempfile.TemporaryDirectory() as root:
        make(Path(root))
        FIXTURE.parent.mkdir(exist_ok=True)
        pack(Path(root))
    print(f"{FIXTURE}: {FIXTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
