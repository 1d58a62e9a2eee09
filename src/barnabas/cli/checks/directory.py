"""A log directory, looked at as it lies there: nothing is written, opened for writing, or locked.

Whether a node is using it is asked of the operating system, for taking the lock would be in that node's way,
and a node in this very process would lose it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from barnabas.broker.storage.kept_epoch import BROKER_EPOCH
from barnabas.cli.checks.findings import Finding, Section, ok, problem, warning
from barnabas.cli.checks.metadata_log import check_metadata
from barnabas.cli.checks.partitions import PartitionsSeen, look_at_partitions
from barnabas.cli.checks.settings_file import check_settings_file
from barnabas.cli.dump.segments import Survey
from barnabas.cli.dump.side_files import offset_checkpoint
from barnabas.cli.output import bytes_text, counted
from barnabas.core.errors import BarnabasError
from barnabas.core.settings.properties import parse_properties
from barnabas.log import names
from barnabas.log.checkpoints import TEMPORARY, uuid_from_text
from barnabas.log.names import DirectoryKind, parse_partition_directory
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.raft.snapshot import BOOTSTRAP_CHECKPOINT

_LOOKS = 5
_FREE_WARNING = 0.10
_FREE_PROBLEM = 0.02
_FREE_WARNING_BYTES = 1 << 30
_PLENTY_BYTES = 100 << 30
_LOCKS = Path("/proc/locks")
_MOUNTS = Path("/proc/self/mounts")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")
_SERVER_PROPERTIES = "server.properties"
_CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.REPLICATION_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)
_KNOWN = {
    *_CHECKPOINTS,
    names.CLEAN_SHUTDOWN,
    names.META_PROPERTIES,
    names.LOCK,
    BOOTSTRAP_CHECKPOINT,
    BROKER_EPOCH,
    _SERVER_PROPERTIES,
    "lost+found",
}


def _unheard(_: Survey) -> None:
    """Nobody wants to know how far it has come."""


def check_directory(
    path: Path,
    *,
    verify: bool,
    node_id: int | None = None,
    surveyed: Callable[[Survey], None] = _unheard,
) -> list[Section]:
    """All there is to say of a log directory, which is to be that node's; every byte is read if `verify`."""
    section = Section(f"directory {path}", [])
    sections = [section]
    try:
        if not path.exists():
            section.findings.append(problem("is not there", "name a log directory: log.dirs in the settings"))
            return sections
        if not (path / names.META_PROPERTIES).exists() and (what := _what_else(path)) is not None:
            section.findings.append(what)
            return sections
        section.findings.extend(_look(lambda: _findings(path, node_id, surveyed, verify=verify)))
        if (path / _SERVER_PROPERTIES).exists():
            sections.append(check_settings_file(path / _SERVER_PROPERTIES).section)
    except OSError as error:
        section.findings.append(
            problem(
                f"{error.filename} cannot be read: {error.strerror}", "look as the user that runs the node"
            )
        )
    return sections


def _look(findings: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """Look, and once more where a node that runs here took something away meanwhile."""
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):
            return list(findings())
    return list(findings())


def _findings(
    path: Path, node_id: int | None, surveyed: Callable[[Survey], None], *, verify: bool
) -> Iterator[Finding]:
    yield from _owner(path, node_id)
    holder = lock_holder(path / names.LOCK)
    is_used = holder is not None
    if holder is not None:
        yield ok(f"a node is running on it (process {holder})" if holder else "a node is running on it")
    yield from _last_stop(path, is_used=is_used)
    yield from _place(path)
    metadata = path / f"{CLUSTER_METADATA}-0"
    image = None
    if metadata.is_dir():
        told, image = check_metadata(metadata)
        yield from told
    recovery_points: dict[tuple[str, int], int] = {}
    for name in _CHECKPOINTS:
        if (path / name).exists():
            finding = _checkpoint(path / name, recovery_points)
            if finding is not None:
                yield finding
    seen = look_at_partitions(path, recovery_points, image, verify=verify, surveyed=surveyed)
    yield from seen.findings(
        is_used=is_used, was_clean=(path / names.CLEAN_SHUTDOWN).exists(), verified=verify
    )
    yield from _leftovers(path, seen, is_used=is_used)


# ---- whose it is -----------------------------------------------------------------------------------------


def _what_else(path: Path) -> Finding | None:
    """What is wrong with a place that is no log directory; None where it may become one."""
    if not path.is_dir():
        return problem("is no directory", "name a log directory, or use `barnabas log dump`")
    if parse_partition_directory(path.name) is not None:
        return problem("is a partition's directory, not a log directory", "name the one it lies in")
    others = sorted(each.name for each in path.iterdir() if each.name not in (names.LOCK, "lost+found"))
    if others:
        return problem(
            f"has no {names.META_PROPERTIES} but is not empty (it holds {others[0]})",
            "a node refuses it: name the directory it had, or an empty one",
        )
    return None


def _owner(path: Path, node_id: int | None) -> Iterator[Finding]:
    file = path / names.META_PROPERTIES
    if not file.exists():
        yield ok("is empty: the first start formats it")
        return
    try:
        meta = parse_properties(file.read_text(encoding="latin-1"))
    except BarnabasError as error:
        yield problem(f"{names.META_PROPERTIES} cannot be read: {error}", "restore it from a copy")
        return
    wrong = [name for name, fits in _META.items() if not _fits(fits, meta.get(name))]
    if meta.get("version") == "0":
        yield problem(
            f"{names.META_PROPERTIES} is of version 0: that of a broker with ZooKeeper",
            "migrate the cluster to KRaft with Apache Kafka 3.9 first",
        )
    elif wrong:
        yield problem(
            f"{names.META_PROPERTIES}: {', '.join(wrong)} missing or malformed",
            "restore it from a copy; directory.id alone is added by a start of Apache Kafka 4.3",
        )
    else:
        yield ok(
            f"of node {meta['node.id']} in cluster {meta['cluster.id']}, directory {meta['directory.id']}"
        )
        if node_id is not None and meta["node.id"] != str(node_id):
            yield problem(
                f"the settings are those of node {node_id}",
                f"start with node.id={meta['node.id']}, or with another directory",
            )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield problem(
            "may not be written to by this user", "look as the user that runs the node, or chown it"
        )


def _fits(fits: Callable[[str], object], text: str | None) -> bool:
    try:
        return text is not None and fits(text) is not None
    except ValueError:
        return False


_META: dict[str, Callable[[str], object]] = {
    "version": lambda text: 1 if text == "1" else None,
    "cluster.id": lambda text: text or None,
    "node.id": lambda text: int(text) if text.isdecimal() else None,
    "directory.id": uuid_from_text,
}


def lock_holder(lock: Path) -> int | None:
    """The process that holds a directory's lock, 0 where it cannot be told; None where none does."""
    try:
        inode = lock.stat().st_ino
        listed = _LOCKS.read_text()
    except OSError:
        return None
    for line in listed.splitlines():
        fields = line.split()
        if "POSIX" in fields and any(field.endswith(f":{inode}") for field in fields):
            holder = fields[fields.index("POSIX") + 3]
            return int(holder) if holder.isdecimal() else 0
    return None


def _last_stop(path: Path, *, is_used: bool) -> Iterator[Finding]:
    if is_used or not (path / names.META_PROPERTIES).exists():
        return
    if (path / names.CLEAN_SHUTDOWN).exists():
        yield ok("the last stop was clean")
    elif any(parse_partition_directory(each.name) for each in path.iterdir()):
        yield warning(
            "the last stop was not clean, or never was",
            "nothing: the next start reads and mends what it must",
        )


# ---- where it lies ---------------------------------------------------------------------------------------


def _place(path: Path) -> Iterator[Finding]:
    usage = shutil.disk_usage(path)
    share = usage.free / usage.total
    text = f"{bytes_text(usage.free)} of {bytes_text(usage.total)} free"
    advice = "make room: shorter retention.ms or retention.bytes, or a larger disk; a full disk stops writes"
    if share < _FREE_PROBLEM:
        yield problem(text, advice)
    elif usage.free < _FREE_WARNING_BYTES or (share < _FREE_WARNING and usage.free < _PLENTY_BYTES):
        yield warning(text, advice)
    else:
        yield ok(text)
    inodes = os.statvfs(path)
    if inodes.f_files and inodes.f_favail < 10_000:
        yield warning(
            f"only {inodes.f_favail:,} more files can be made on this disk", "a partition takes about ten"
        )
    kind = _file_system(path)
    if kind in _REMOTE:
        yield warning(
            f"lies on a network file system ({kind})",
            "locks and syncs may not mean there what a node relies on: use a local disk",
        )


def _file_system(path: Path) -> str | None:
    try:
        mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return None
    resolved = path.resolve()
    on = [(len(fields[1]), fields[2]) for fields in mounts if resolved.is_relative_to(fields[1])]
    return max(on)[1] if on else None


# ---- what is in it ---------------------------------------------------------------------------------------


def _checkpoint(path: Path, recovery_points: dict[tuple[str, int], int]) -> Finding | None:
    try:
        entries = offset_checkpoint(path)
    except BarnabasError as error:
        return warning(str(error), "nothing: it is made anew, at the price of a longer start")
    if path.name == names.RECOVERY_POINT_CHECKPOINT:
        recovery_points |= {(each["topic"], each["partition"]): each["offset"] for each in entries}
    return None


def _leftovers(path: Path, seen: PartitionsSeen, *, is_used: bool) -> Iterator[Finding]:
    by_kind: dict[DirectoryKind, list[Path]] = {}
    strangers = list(seen.strangers)
    for each in sorted(path.iterdir()):
        parsed = parse_partition_directory(each.name) if each.is_dir() else None
        if parsed is not None:
            by_kind.setdefault(parsed.kind, []).append(each)
        elif each.name.removesuffix(TEMPORARY) not in _KNOWN:
            strangers.append(each)
    when = "in a moment" if is_used else "at the next start"
    if deleted := by_kind.get(DirectoryKind.DELETE):
        yield ok(f"{counted(len(deleted), 'deleted partition')} ({_size(deleted)}), to be removed {when}")
    if future := by_kind.get(DirectoryKind.FUTURE):
        yield warning(
            f"{counted(len(future), 'partition')} on the way here from another directory ({_size(future)})",
            "Apache Kafka goes on with the move; or remove the ...-future directories",
        )
    if stray := by_kind.get(DirectoryKind.STRAY):
        yield warning(
            f"{counted(len(stray), 'partition')} set aside as stray ({_size(stray)}), as {stray[0].name}",
            "the cluster does not know them: remove the directories once you are sure",
        )
    if seen.leftover_files:
        size = bytes_text(sum(each.stat().st_size for each in seen.leftover_files if each.exists()))
        yield ok(
            f"{counted(len(seen.leftover_files), 'file')} ({size}) of deletions and compactions, "
            f"to be removed {when}"
        )
    if strangers:
        shown = ", ".join(str(each.relative_to(path)) for each in strangers[:5])
        more = f" and {len(strangers) - 5} more" if len(strangers) > 5 else ""
        yield warning(f"not Kafka's: {shown}{more}", "a node leaves them alone; move them elsewhere")


def _size(directories: list[Path]) -> str:
    sizes = (file.stat().st_size for each in directories for file in each.iterdir() if file.is_file())
    return bytes_text(sum(sizes))
