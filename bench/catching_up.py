"""A follower that has lost its files: how fast it gets them back from the leaders, beside a bare copy.

A node that is not the active controller is stopped, the directories of one topic are removed, and it is
started again. What is timed is from the first bytes in its files to the last, so that neither the start of a
process nor its way back into the cluster counts. The copy is of the same files, from the same page cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from bench.proc import cpu_seconds
from tests.support.combined_cluster import CombinedCluster

DEADLINE_S = 180.0
POLL_S = 0.002


class CaughtUp(NamedTuple):
    """How it went."""

    size_bytes: int
    seconds: float
    copy_seconds: float
    cpu_seconds: float

    @property
    def mb_a_second(self) -> float:
        return self.size_bytes / self.seconds / 1e6

    @property
    def copied_mb_a_second(self) -> float:
        return self.size_bytes / self.copy_seconds / 1e6

    @property
    def cpu_seconds_a_gb(self) -> float:
        return self.cpu_seconds / self.size_bytes * 1e9


class NotCaughtUp(AssertionError):
    """The follower did not get all bytes in time."""


def catch_up(cluster: CombinedCluster, topic: str, partitions: int, copied: Path) -> CaughtUp:
    """Empty a follower and wait until it holds everything again; the copy is made at `copied`."""
    victim = next(each for each in cluster.voter_ids if each != cluster.leader())
    mine = _directories(cluster, victim, topic, partitions)
    theirs = _directories(
        cluster, next(each for each in cluster.voter_ids if each != victim), topic, partitions
    )
    size_bytes = _size(theirs)
    cluster.stop(victim)
    copy_seconds = _copy(theirs, copied)
    for directory in mine:
        shutil.rmtree(directory)
    cluster.spawn(victim)
    deadline = time.monotonic() + DEADLINE_S
    began, cpu_before = time.monotonic(), _cpu(cluster)
    while not _is_there(mine, 1, deadline):
        began, cpu_before = time.monotonic(), _cpu(cluster)
    while not _is_there(mine, size_bytes, deadline):
        pass
    seconds, spent = time.monotonic() - began, _cpu(cluster) - cpu_before
    cluster.wait_until_active(len(cluster.ids))
    return CaughtUp(size_bytes, seconds, copy_seconds, spent)


def _directories(cluster: CombinedCluster, node_id: int, topic: str, partitions: int) -> list[Path]:
    return [cluster.data(node_id) / f"{topic}-{partition}" for partition in range(partitions)]


def _size(directories: list[Path]) -> int:
    """Bytes of batches in them."""
    return sum(file.stat().st_size for each in directories if each.is_dir() for file in each.glob("*.log"))


def _is_there(directories: list[Path], size_bytes: int, deadline: float) -> bool:
    """Whether they hold so many bytes; if not, not looked at again at once."""
    size = _size(directories)
    if size < size_bytes:
        if time.monotonic() > deadline:
            raise NotCaughtUp(f"{size:,} of {size_bytes:,} bytes after {DEADLINE_S:.0f} s")
        time.sleep(POLL_S)
    return size >= size_bytes


def _cpu(cluster: CombinedCluster) -> float:
    return sum(map(cpu_seconds, cluster.pids))


def _copy(directories: list[Path], to: Path) -> float:
    """Seconds that cp takes for the batches' files; what it wrote goes at once."""
    os.sync()
    to.mkdir()
    began = time.monotonic()
    for each in directories:
        files = [str(file) for file in each.glob("*.log")]
        (to / each.name).mkdir()
        subprocess.run(["cp", "--reflink=never", *files, str(to / each.name)], check=True)
    seconds = time.monotonic() - began
    shutil.rmtree(to)
    return seconds
