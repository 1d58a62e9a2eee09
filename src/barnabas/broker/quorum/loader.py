"""Loads the metadata log into the published image, on a node that is not the active controller.

The active controller publishes its decisions. Every other node, and every start, loads: first the newest
snapshot, then the committed batches of the log behind it, one after another. At the start everything that is
committed makes one change; after that each batch makes one. A snapshot that was fetched from the leader
replaces the image, and is published as its difference.

`position` is the offset up to which the log was read. It is ahead of the image's offset only inside a
metadata transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.broker.quorum.files import batches
from barnabas.core.errors import InvariantViolation, StorageError
from barnabas.log.partition import PartitionLog
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.records import UnknownRecord, decode_record
from barnabas.metadata.replay import Change, Replayer, difference, replay_all
from barnabas.protocol.schema import Message
from barnabas.raft.snapshot import Snapshot, SnapshotId
from barnabas.records.batch import BatchHeader


def snapshot_image(snapshot_id: SnapshotId, snapshot: Snapshot) -> ClusterImage:
    """The image of a snapshot."""
    empty = ClusterImage(snapshot_id.end_offset, snapshot_id.epoch)
    return replay_all(empty, map(decode_record, snapshot.values))


class MetadataLoader:
    """`advance` is called with the high watermark. `pause` comes before the active controller publishes, or
    before the log is replaced, and `resume` or `install` after it."""

    def __init__(
        self,
        log: PartitionLog,
        metadata: MetadataPublisher,
        fail: Callable[[BaseException], object],
        base: ClusterImage,
    ) -> None:
        """`base` is the image of the newest snapshot."""
        self._log = log
        self._metadata = metadata
        self._fail = fail
        self._replayer = Replayer(base)
        self.position = base.offset
        self._target = base.offset
        self._has_published = False
        self._is_paused = False
        self._loading: asyncio.Task[None] | None = None
        # called with size and timestamp of each published batch, and when `position` has moved
        self.on_published: Callable[[int, int], None] = lambda size_bytes, timestamp_ms: None
        self.on_moved: Callable[[], None] = lambda: None

    @property
    def in_transaction(self) -> bool:
        return self._replayer.in_transaction

    @property
    def is_loading(self) -> bool:
        return self._loading is not None and not self._loading.done()

    def advance(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is committed."""
        self._target = max(self._target, high_watermark)
        if (
            not self._is_paused
            and not self.is_loading
            and (self.position < self._target or not self._has_published)
        ):
            self._loading = asyncio.get_running_loop().create_task(self._load())
            self._loading.add_done_callback(lambda _: self.on_moved())

    async def pause(self) -> None:
        """Publish nothing from now on."""
        self._is_paused = True
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

    def stand_by(self) -> None:
        """The same as `pause`, while nothing is being loaded: the active controller publishes from now on."""
        if self.is_loading:
            raise InvariantViolation("the controller becomes active while metadata is loaded")
        self._is_paused = True

    def resume(self) -> None:
        """Go on behind the published image, which the active controller may have moved; if nothing was
        published since the start, go on at the last position."""
        if self._has_published:
            image = self._metadata.image
            self._replayer = Replayer(image)
            self.position = image.offset
        self._is_paused = False
        self.advance(self._target)

    def install(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Replace the image with a snapshot that was fetched; the log goes on behind it."""
        image = snapshot_image(snapshot_id, snapshot)
        self._replayer = Replayer(image)
        self.position = self._target = image.offset
        self._is_paused = False
        self._has_published = True
        self._publish(Change(image, difference(self._metadata.image, image)))
        self.on_moved()

    async def _load(self) -> None:
        try:
            if not self._has_published:
                await self._load_at_once()
            while self.position < self._target:
                began = self.position
                async for header, records in batches(self._log, began, self._target):
                    self._take(header, records)
                self._check_moved(began)
                self.on_moved()
        except (StorageError, UnknownRecord, InvariantViolation) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - a record that cannot be replayed, on any node
            self._fail(InvariantViolation(f"the metadata could not be followed: {error!r}"))

    async def _load_at_once(self) -> None:
        """Load everything that is committed, in one change."""
        replayer, timestamp_ms = self._replayer, 0
        while self.position < self._target:
            began = self.position
            async for header, records in batches(self._log, began, self._target):
                base_offset = _base_offset(header)
                replayer.load(base_offset, header.leader_epoch, records)
                self.position = header.next_offset
                timestamp_ms = header.max_timestamp
            self._check_moved(began)
        replayer.finish()
        self._has_published = True
        self._publish(Change(replayer.image, difference(self._metadata.image, replayer.image)))
        if timestamp_ms:
            self.on_published(0, timestamp_ms)  # its bytes were counted at the start
        self.on_moved()

    def _check_moved(self, began: int) -> None:
        """Raise if a read has made no progress: it would be repeated for ever."""
        if self.position == began:
            raise InvariantViolation(f"the metadata log has nothing at {began}, of {self._target} committed")

    def _take(self, header: BatchHeader, records: list[Message]) -> None:
        changes = self._replayer.replay(_base_offset(header), header.leader_epoch, records)
        self.position = header.next_offset
        for change in changes:
            self._publish(change)
        self.on_published(header.size_bytes, header.max_timestamp)

    def _publish(self, change: Change) -> None:
        self._metadata.publish(*change)


def _base_offset(header: BatchHeader) -> int:
    """The offset before a batch's records. A control batch has none, and the image's offset is behind it."""
    return header.next_offset if header.is_control else header.base_offset
