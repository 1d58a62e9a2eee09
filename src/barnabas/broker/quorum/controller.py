"""The active controller of this node: decides ahead of the disk, and answers when a decision is committed.

There are three references to images. A command decides on the *decided* image, which runs ahead; its records
get their offsets at that moment and are proposed to the quorum, and the next command is decided at once on
the image with them. When the high watermark covers a decision, its image becomes the *published* one and its
response is sent: after any crash, the metadata has what a client was told. A response without records (an
error, a heartbeat) waits for the decisions that it may depend on, so that nothing uncommitted is ever told.

When the lead is lost, the decided image falls back to the published one, and all waiting responses become
NOT_CONTROLLER. After a failed append the decided image falls back to the last decision that is in the log:
other voters may have that already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.quorum.driver import RaftDriver
from barnabas.broker.storage.formatting import KRAFT_VERSION
from barnabas.controller.contacts import BrokerContacts
from barnabas.controller.decisions import Decision, NotController
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.publisher import MetadataNotApplied, MetadataPublisher
from barnabas.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    decode_record,
    encode_record,
)
from barnabas.metadata.replay import Change
from barnabas.metadata.versions import LATEST_METADATA_VERSION, record_version
from barnabas.protocol.schema import Message
from barnabas.raft.batches import MAX_BATCH_BYTES, data_batches

logger = logging.getLogger("barnabas.controller")

R = TypeVar("R")


class _Pending(NamedTuple):
    """A response that waits. `change` is to be published, None where nothing was written; its records begin
    at `base_offset`."""

    end_offset: int
    answer: asyncio.Future[None]
    base_offset: int = -1
    change: Change | None = None
    size_bytes: int = 0
    wall_ms: int = 0
    decided_at: float = 0.0  # monotonic


class ActiveController:
    """The controller's commands on this node. `activate` begins, with the image of all that is committed."""

    def __init__(
        self,
        driver: RaftDriver,
        metadata: MetadataPublisher,
        clock: Clock,
        max_batch_bytes: int = MAX_BATCH_BYTES,
    ) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._driver = driver
        self._metadata = metadata
        self._clock = clock
        self._decided = metadata.image
        self._pending: deque[_Pending] = deque()
        self._is_active = False
        self._is_closed = False
        self.contacts = BrokerContacts()
        # called with size and timestamp of each published change
        self.on_published: Callable[[int, int], None] = lambda size_bytes, timestamp_ms: None

    def activate(self) -> None:
        """The lead was gained: decide from the published image on, with soft state that heartbeats fill."""
        self._decided = self._metadata.image
        self.contacts = BrokerContacts()
        self._is_active = True

    def deactivate(self) -> None:
        """The lead was lost: decide nothing any more."""
        self._is_active = False

    @property
    def is_active(self) -> bool:
        return self._is_active

    @property
    def decided(self) -> ClusterImage:
        """The image with all decisions, committed or not."""
        return self._decided

    @property
    def next_offset(self) -> int:
        """For a command: the offset of the first record that it returns."""
        return self._driver.next_offset

    @property
    def kraft_version(self) -> int:
        return self._driver.kraft_version

    def kraft_version_problem(self, version: int) -> str:
        """The reason why the quorum cannot change to that kraft.version now; empty if it can."""
        return self._driver.core.raise_problem(version)

    async def submit(self, command: Callable[[ClusterImage], Decision[R]]) -> R:
        """Decide a command now; returns its response once its records are committed and published.

        Cancelling the caller does not take the decision back.
        """
        self._check()
        try:
            decision = command(self._decided)
        except BarnabasError:
            await self._told()
            raise
        if decision.records:
            await self._append(decision.records)
        else:
            await self._told()
        return decision.response

    async def write(self, records: Sequence[Message]) -> None:
        """Commit records without a command: the first records of a controller."""
        self._check()
        await self._append(records)

    async def raise_kraft_version(self) -> None:
        """Keep the voters in the log from now on (kraft.version 1), and not in the settings."""
        self._check()
        driver = self._driver
        if driver.kraft_version >= KRAFT_VERSION:
            await self._told()
            return
        base_offset, end_offset = driver.next_offset, driver.raise_kraft_version(KRAFT_VERSION)
        if end_offset <= self._decided.offset:  # asked for before, and decided on since
            await self._told()
            return
        change = Change(self._decided, Delta(self._decided))
        await self._proposed(base_offset, end_offset, change, self._clock.wall_ms())

    def _check(self) -> None:
        if self._driver.failure is not None:
            raise self._driver.failure
        if self._is_closed or not self._is_active or not self._driver.is_leader:
            raise NotController("this node is stopping, or does not lead the metadata quorum")

    def _append(self, records: Sequence[Message]) -> asyncio.Future[None]:
        """Propose records and replay them into the decided image; done when they are published."""
        version, now_ms = self._decided.metadata_version, self._clock.wall_ms()
        batches = self._batches(records, version, now_ms)
        if len(batches) > 1:
            # after a crash the log could have only some batches: in a metadata transaction all of them count
            # or none
            framed = [BeginTransactionRecord(), *records, EndTransactionRecord()]
            batches = self._batches(framed, version, now_ms)
        if version < LATEST_METADATA_VERSION:
            # fields that the older version cannot write must not be replayed here either
            records = [decode_record(_encode(record, version)) for record in records]
        delta = Delta(self._decided)
        try:
            for record in records:
                if not isinstance(record, _FRAMES):
                    delta.replay(record)
            image = delta.apply(0, 0)
        except Exception as error:
            raise self._driver.fail(error) from error
        base_offset, end_offset = self._driver.next_offset, self._driver.propose(batches)
        return self._proposed(base_offset, end_offset, Change(image, delta), now_ms, sum(map(len, batches)))

    def _batches(self, records: Sequence[Message], version: int, now_ms: int) -> list[bytearray]:
        values = (_encode(record, version) for record in records)
        return data_batches(values, now_ms, max_bytes=self._max_batch_bytes)

    def _proposed(
        self, base_offset: int, end_offset: int, change: Change, now_ms: int, size_bytes: int = 0
    ) -> asyncio.Future[None]:
        """Make the change's image the decided one; done when it is published."""
        self._decided = change.image._replace(offset=end_offset, epoch=self._driver.epoch)
        change = change._replace(image=self._decided)
        decided_at = self._clock.monotonic()
        return self._wait(
            _Pending(end_offset, _future(), base_offset, change, size_bytes, now_ms, decided_at)
        )

    async def _told(self) -> None:
        """Wait until all decisions so far are committed."""
        if self._pending:
            end_offset = self._pending[-1].end_offset
            await self._wait(_Pending(end_offset, _future()))

    def _wait(self, pending: _Pending) -> asyncio.Future[None]:
        self._pending.append(pending)
        return pending.answer

    # --- called by the quorum

    def committed(self, high_watermark: int) -> None:
        """Publish the decisions below that offset, and answer them."""
        while self._pending and self._pending[0].end_offset <= high_watermark:
            pending = self._pending.popleft()
            if pending.change is not None:
                self._publish(pending, pending.change)
            if not pending.answer.done():
                pending.answer.set_result(None)

    def _publish(self, pending: _Pending, change: Change) -> None:
        if self._driver.failure is not None:
            return  # a subscriber that has missed a change must not see the next one
        now = self._clock.monotonic()
        self._driver.totals.commits.observe(now - pending.decided_at, now)
        try:
            self._metadata.publish(*change)
        except MetadataNotApplied as error:
            self._driver.totals.apply_errors += 1
            self._driver.fail(error)
        self.on_published(pending.size_bytes, pending.wall_ms)

    def lost(self, reason: BarnabasError) -> None:
        """The lead was lost, and pending decisions fail: go back to the published image."""
        self._refuse_behind(-1, "the decision was not committed in time, and may count or not", reason)

    def withdrawn(self, reason: BarnabasError) -> bool:
        """An append has failed, and its records are withdrawn. This node leads on, and what is in its log
        will be committed: go back to the last decision in the log. Returns True if only the first batches of
        a decision are in the log. Then this node must not lead on: the next leader loads them, and aborts
        their metadata transaction."""
        end_offset = self._driver.end_offset
        is_torn = any(0 <= each.base_offset < end_offset < each.end_offset for each in self._pending)
        self._refuse_behind(end_offset, "the decision could not be committed, and does not count", reason)
        return is_torn

    def _refuse_behind(self, end_offset: int, told: str, reason: BarnabasError) -> None:
        pending, self._pending = self._pending, deque()
        self._decided = self._metadata.image
        for each in pending:
            if each.end_offset <= end_offset:
                self._pending.append(each)
                self._decided = each.change.image if each.change is not None else self._decided
            elif not each.answer.done():
                each.answer.set_exception(self._driver.failure or _not_committed(told, reason))

    def close(self) -> None:
        """Take no more commands; commands under way are finished."""
        self._is_closed = True

    @property
    def is_deciding(self) -> bool:
        """Whether responses wait for a commit."""
        return bool(self._pending)


_FRAMES = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


def _not_committed(told: str, reason: BarnabasError) -> NotController:
    error = NotController(f"{told}: {reason}")
    error.__cause__ = reason
    return error


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _encode(record: Message, metadata_version: int) -> bytes:
    return encode_record(record, record_version(type(record), metadata_version))
