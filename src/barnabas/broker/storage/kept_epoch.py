"""The epoch of a broker, kept from its registration on: `barnabas-broker-epoch.json`, beside the metadata.

A process that dies loses nothing that it has written: the page cache is the kernel's, and lives until the
next boot. So a broker that comes back within one boot registers with the epoch that it had, as after a clean
stop, and stays in the ISR. The file names the boot for each log directory. After another boot, with a
directory that is not in it or without one that is, or when a disk has failed (`forget`), what was written may
be lost: then the epoch does not count, and the shutdown was an unclean one.

Apache Kafka does not look at the file. When it ran on the directory in between, the controller knows a later
epoch than the one in the file, and takes the stop for an unclean one.
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
    """The file in the directory of the metadata. Boots are named by the ids of the log directories."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._turn = Turn()
        self._forgetting: asyncio.Task[None] | None = None

    async def misses_none(self, directories: Iterable[UUID]) -> bool:
        """Whether all directories are still there with which the broker registered last, as far as that is
        known: what was in one that was replaced, or is not used any more, is lost."""
        data = await read_whole(self._disk, BROKER_EPOCH)
        found = None if data is None else _parse(data)
        return found is None or set(found[1]) <= {uuid_to_text(each) for each in directories}

    async def read(self, boots: Boots) -> int | None:
        """The epoch that was kept, if these directories have lost nothing since."""
        data = await read_whole(self._disk, BROKER_EPOCH)
        found = None if data is None else _parse(data)
        if found is None:
            return None
        epoch, kept = found
        told = {each: kept.get(uuid_to_text(each)) for each in boots}
        is_whole = all(boot is not None and told[each] == boot for each, boot in boots.items())
        return epoch if is_whole else None

    async def keep(self, epoch: int, boots: Boots) -> None:
        """From now on a crash of the process comes back with this epoch; with none where that cannot be
        written, as on a full disk."""
        directories = {uuid_to_text(each): boot for each, boot in boots.items()}
        content = {"version": _VERSION, "brokerEpoch": epoch, "bootIds": directories}
        async with self._turn:
            if self._forgetting is None:
                try:
                    await write_atomically(self._disk, BROKER_EPOCH, json.dumps(content).encode())
                except StorageError as error:
                    logger.warning("a crash will count as an unclean shutdown: %s", error)

    def forget(self) -> None:
        """A disk has failed: what was written to it last may be lost, whatever the boot."""
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
        """Wait for what was begun."""
        if self._forgetting is not None:
            await self._forgetting


def _parse(data: bytes) -> tuple[int, dict[str, object]] | None:
    """The epoch and the boots in the file; None where it says nothing: that is an unclean shutdown."""
    try:
        content = json.loads(data)
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        return None
    epoch, boots = content.get("brokerEpoch"), content.get("bootIds")
    return (epoch, boots) if type(epoch) is int and isinstance(boots, dict) else None
