"""Classes that a JVM neither compiles nor loads anew each time it is started.

A single source file is compiled once. The classes that a program has loaded are written to an archive (class
data sharing, as OpenJDK has it since 13): with it Apache Kafka starts in half the CPU time. Both are kept in
the user's cache, an archive for each Java. A JVM that cannot use an archive, say of another class path,
starts as it does without. It says nothing of that: its own log, which goes to the program's output, is off.
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
OLDEST = ("--release", "17")  # that tests are run with


@functools.cache
def compiled(source: Path, against: Path) -> Path:
    """A folder with the classes of a single source file, compiled once for these jars and every Java."""
    made_from = [source.read_bytes(), against.name.encode(), *map(str.encode, OLDEST)]
    folder = cache() / "java-classes" / f"{source.stem}-{_hash(b' '.join(made_from))}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            run(["javac", *OLDEST, "-d", str(made), "-cp", f"{against}/*", str(source)])
            made.rename(folder)
        except FetchFailed:
            shutil.rmtree(made)
            raise
        except OSError:  # another process was as quick
            shutil.rmtree(made)
    return folder


def archive(jars: Path, record: Callable[[Path], None]) -> Path | None:
    """An archive of the classes in the lists that `record` puts into a folder, for these jars.

    Made once for each Java, None where that Java cannot. Where `record` raises an exception, nothing is kept,
    and another process tries again.
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

    java = Path(shutil.which("java") or "java").resolve()
    name = f"{jars.name}-archive-{_hash(str(java).encode())}"
    found = made_once(name, f"{_version(jars)}, for {_version(java)}", make) / ARCHIVE
    return found if found.exists() else None


def using(archived: Path | None) -> list[str]:
    """The options of a JVM that uses an archive where there is one."""
    return [] if archived is None else [f"-XX:SharedArchiveFile={archived}", "-Xlog:disable"]


def listing_classes(folder: Path) -> str:
    """The option of a JVM that puts a list of the classes it loads into a folder."""
    return f"-XX:DumpLoadedClassList={folder}/%p"


def _merged(lists: Iterable[Path]) -> str:
    """Each class once, without the numbers that some lists give them, and without comments."""
    lines = (line.partition(" id: ")[0] for each in lists for line in each.read_text().splitlines())
    return "".join(f"{line}\n" for line in dict.fromkeys(lines) if not line.startswith("#"))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _version(file: Path) -> str:
    return f"{file} of {file.stat().st_mtime_ns}"
