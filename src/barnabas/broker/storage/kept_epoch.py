"""The broker epoch of the last registration: `barnabas-broker-epoch.json`, in the metadata directory.

A process that dies loses nothing that it has written: the page cache belongs to the kernel, and survives
until the next boot. So a broker that restarts within one boot registers with its previous epoch, as after a
clean stop, and keeps its place in the ELR. The file has the boot id for each log directory. Written data may
be lost after another boot, with a directory that is not in the file, without one that is, or after a disk
failure (`forget`): then the epoch does not count, and the shutdown was unclean.

Apache Kafka does not read the file. When it ran on the directory in between, the controller knows a later
epoch than the one in the file, and treats the shutdown as unclean.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from uuid import UUID

from barnabas.core.disk import Disk
from barnabas.core.errors import StorageError
from barnabas.log.checkpoints import read_whole, uuid_to_text, write_atomically
from barnabas.log.turn import Turn

logger = logging.getLogger("barnabas.node")

BROKER_EPOCH = "barnabas-broker-epoch.json"
_VERSION = 0

Boots = Mapping[UUID, str | None]


class EpochKeeper:
    """The file in the metadata directory. Boot ids are stored by the ids of the log directories."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._turn = Turn()
        self._forgetting: asyncio.Task[None] | None = None

    async def misses_none(self, directories: Iterable[UUID]) -> bool:
        """Whether all directories of the last registration are still there, as far as it is known: the data
        of a directory that was replaced, or is not used any more, is lost."""
        data = await read_whole(self._disk, BROKER_EPOCH)
        found = None if data is None else _parse(data)
        return found is None or set(found[1]) <= {uuid_to_text(each) for each in directories}

    async def read(self, boots: Boots) -> int | None:
        """The previous epoch, if these directories have lost nothing since."""
        data = await read_whole(self._disk, BROKER_EPOCH)
        found = None if data is None else _parse(data)
        if found is None:
            return None
        epoch, kept = found
        told = {each: kept.get(uuid_to_text(each)) for each in boots}
        is_whole = all(boot is not None and told[each] == boot for each, boot in boots.items())
        return epoch if is_whole else None

    async def keep(self, epoch: int, boots: Boots) -> None:
        """Store the epoch for a restart after a crash. Where it cannot be written, as on a full disk, a crash
        counts as an unclean shutdown."""
        directories = {uuid_to_text(each): boot for each, boot in boots.items()}
        content = {"version": _VERSION, "brokerEpoch": epoch, "bootIds": directories}
        async with self._turn:
            if self._forgetting is None:
                try:
                    await write_atomically(self._disk, BROKER_EPOCH, json.dumps(content).encode())
                except StorageError as error:
                    logger.warning("a crash will count as an unclean shutdown: %s", error)

    def forget(self) -> None:
        """Remove the file after a disk failure: the last writes may be lost, whatever the boot id."""
        if self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().create_task(self._remove())

    async def _remove(self) -> None:
        async with self._turn:
            try:
                await self._disk.remove(BROKER_EPOCH)
                await self._disk.sync_dir("")
            except StorageError as error:
                logger.error("remove %s before the next start: %s", self._disk.describe(BROKER_EPOCH), error)

    async def close(self) -> None:
        """Wait for a removal that has begun."""
        if self._forgetting is not None:
            await self._forgetting


def _parse(data: bytes) -> tuple[int, dict[str, object]] | None:
    """The epoch and the boot ids in the file; None where it is unusable, which counts as an unclean
    shutdown."""
    try:
        content = json.loads(data)
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        return None
    epoch, boots = content.get("brokerEpoch"), content.get("bootIds")
    return (epoch, boots) if type(epoch) is int and isinstance(boots, dict) else None
