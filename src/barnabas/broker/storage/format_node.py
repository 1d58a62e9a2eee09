"""Formats all directories of a node, as Kafka's storage tool does it for the nodes of a cluster.

Each directory gets the ids and the cluster's initial features. The metadata directory comes first and gets
the voters, too. A node that is only a broker has a metadata log as well: it follows the quorum and does not
vote. The metadata directory of a voter gets the directory id that the other voters know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from barnabas.broker.storage.formatting import (
    DirectoryRefused,
    InitialVoter,
    check_directory,
    format_directory,
)
from barnabas.broker.storage.storage import Layout, directory_settings, refuse_overlaps
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.random import Random, random_id
from barnabas.log.checkpoints import MetaProperties

MakeProperties = Callable[[Mapping[str, str]], Mapping[str, str]]


class AlreadyFormatted(DirectoryRefused):
    """The directory is formatted already."""


class FormattedDirectory(NamedTuple):
    """A directory that belongs to this node; `is_new` if it was formatted now."""

    where: str
    directory_id: UUID
    holds_metadata: bool
    is_new: bool


async def format_node(
    layout: Layout,
    disk_of: Callable[[str], Disk],
    *,
    node_id: int,
    cluster_id: str,
    levels: Mapping[str, int],
    voters: Sequence[InitialVoter],
    listener: str,
    clock: Clock,
    random: Random,
    ignore_formatted: bool = False,
    properties: MakeProperties | None = None,
) -> list[FormattedDirectory]:
    """Format new directories. Others are refused, or left alone if they are this node's and
    `ignore_formatted`.

    `levels` are the feature levels, `voters` and `listener` as in `format_directory`; `properties` makes the
    `server.properties` from the settings that name the directories.
    """
    disks = {path: disk_of(path) for path in dict.fromkeys((layout.metadata_dir, *layout.log_dirs))}
    refuse_overlaps(disks)
    found = {path: await _owner(disk, node_id, cluster_id) for path, disk in disks.items()}
    for path, meta in found.items():
        if meta is not None and not ignore_formatted:
            raise AlreadyFormatted(
                f"{disks[path].describe('')} is formatted already, for node {meta.node_id} of cluster "
                f"{meta.cluster_id}: --ignore-formatted formats only those that are not"
            )
    formatted = []
    for path, disk in disks.items():
        is_first = path == layout.metadata_dir
        meta = found[path]
        if meta is None:
            own = [voter.directory_id for voter in voters if is_first and voter.node_id == node_id]
            meta = await format_directory(
                disk,
                MetaProperties(cluster_id, node_id, own[0] if own else random_id(random)),
                bootstrap=bootstrap_records(levels),
                voters=voters if is_first else (),
                listener=listener,
                properties=properties(directory_settings(layout, disks)) if properties and is_first else None,
                now_ms=clock.wall_ms(),
            )
        assert meta.directory_id is not None
        formatted.append(
            FormattedDirectory(
                disk.describe("").rstrip("/"), meta.directory_id, is_first, found[path] is None
            )
        )
    return formatted


async def _owner(disk: Disk, node_id: int, cluster_id: str) -> MetaProperties | None:
    meta = await check_directory(disk, node_id)
    if meta is not None and meta.cluster_id != cluster_id:
        raise DirectoryRefused(
            f"{disk.describe('')} belongs to cluster {meta.cluster_id}, this is cluster {cluster_id}: "
            "give the node an empty directory in its place"
        )
    return meta
