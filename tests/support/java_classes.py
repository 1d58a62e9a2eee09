"""Classes that a JVM neither compiles nor loads anew each time it is started.

A single source file is compiled once. The classes that a program has loaded are written to an archive (class
data sharing, as OpenJDK has it since 13): with it Apache Kafka starts in half the CPU time. Both are kept in
the user's cache. A JVM that cannot use an archive, say one of another class path, starts as it does without.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.fetched import FetchFailed, cache, made_once, run

ARCHIVE, LIST = "archive", "classes"


@functools.cache
def compiled(source: Path, against: Path) -> Path:
    """A folder with the classes of a single source file, compiled once for these jars."""
    text = hashlib.sha256(source.read_bytes() + against.name.encode()).hexdigest()[:16]
    folder = cache() / "java-classes" / f"{source.stem}-{text}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            run(["javac", "-d", str(made), "-cp", f"{against}/*", str(source)])
            made.rename(folder)
        except FetchFailed:
            shutil.rmtree(made)
            raise
        except OSError:  # another process was as quick
            shutil.rmtree(made)
    return folder


def archive(jars: Path, record: Callable[[Path], None]) -> Path | None:
    """An archive of the classes in the lists that `record` puts into a folder, for these jars.

    Made once for each Java, and None where it cannot be made.
    """

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as lists:
            record(Path(lists))
            (folder / LIST).write_text(_merged(Path(lists).iterdir()))
        dump = ["-Xshare:dump", f"-XX:SharedClassListFile={folder / LIST}"]
        try:
            run(["java", *dump, f"-XX:SharedArchiveFile={folder / ARCHIVE}", "-cp", f"{jars}/*"])
        except FetchFailed:
            (folder / ARCHIVE).unlink(missing_ok=True)

    wanted = f"{_version(jars)}, for {_version(Path(shutil.which('java') or 'java').resolve())}"
    found = made_once(f"{jars.name}-archive", wanted, make) / ARCHIVE
    return found if found.exists() else None


def listing_classes(folder: Path) -> str:
    """The option of a JVM that puts a list of the classes it loads into a folder."""
    return f"-XX:DumpLoadedClassList={folder}/%p"


def _merged(lists: Iterable[Path]) -> str:
    """Each class once, without the numbers that some lists give them, and without comments."""
    lines = (line.partition(" id: ")[0] for each in lists for line in each.read_text().splitlines())
    return "".join(f"{line}\n" for line in dict.fromkeys(lines) if not line.startswith("#"))


def _version(file: Path) -> str:
    return f"{file} of {file.stat().st_mtime_ns}"
