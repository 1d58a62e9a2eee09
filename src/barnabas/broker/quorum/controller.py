"""The active controller of this node: decides ahead of the disk, and answers when a decision is committed.

There are three references to images. A command decides on the *decided* image, which runs ahead; its records
get their offsets at that moment and are proposed to the quorum, and the next command is decided at once on
the image with them. When the high watermark covers a decision, its image becomes the *published* one and its
answer is sent: after any crash, a client finds again what it was told. An answer that wrote nothing (an
error, a heartbeat) waits for the decisions that it may have seen, so that nothing uncommitted is ever told.

The loss of the lead drops the decided image for the published one, and all answers that wait become
NOT_CONTROLLER. A failed append goes the same way back, as far as the last decision that is in the log: other
voters may have that already.
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
    """An answer on its way. `change` is to be published, None where nothing was written; its records begin
    at `base_offset`."""

    end_offset: int
    answer: asyncio.Future[None]
    base_offset: int = -1
    change: Change | None = None
    size_bytes: int = 0
    wall_ms: int = 0
    decided_at: float = 0.0  # monotonic


class ActiveController:
    """Commands of this node's quorum. `activate` begins, with the image of all that is committed."""

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
        # called with size and timestamp of what was published
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
        """The image with everything that was decided, committed or not."""
        return self._decided

    @property
    def next_offset(self) -> int:
        """To a command, the offset of the first record that it returns."""
        return self._driver.next_offset

    @property
    def kraft_version(self) -> int:
        return self._driver.kraft_version

    def kraft_version_problem(self, version: int) -> str:
        """Why the quorum cannot go to that kraft.version now; empty where it can."""
        return self._driver.core.raise_problem(version)

    async def submit(self, command: Callable[[ClusterImage], Decision[R]]) -> R:
        """Decide a command now; returns its response once its records are committed and published.

        A caller that is cancelled does not take the decision back.
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
        """Commit records that no command decided: those with which a controller begins."""
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
        if end_offset <= self._decided.offset:  # it was asked for before, and other decisions came behind it
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
        """Propose records and decide on from them; done when they are published."""
        version, now_ms = self._decided.metadata_version, self._clock.wall_ms()
        batches = self._batches(records, version, now_ms)
        if len(batches) > 1:
            # a crash could leave some of them: in a transaction they count together or not at all
            framed = [BeginTransactionRecord(), *records, EndTransactionRecord()]
            batches = self._batches(framed, version, now_ms)
        if version < LATEST_METADATA_VERSION:
            # fields that an older version cannot write are not replayed here, either
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
        """Decide on from that change; done when it is published."""
        self._decided = change.image._replace(offset=end_offset, epoch=self._driver.epoch)
        change = change._replace(image=self._decided)
        decided_at = self._clock.monotonic()
        return self._wait(
            _Pending(end_offset, _future(), base_offset, change, size_bytes, now_ms, decided_at)
        )

    async def _told(self) -> None:
        """Wait until everything that was decided so far is committed."""
        if self._pending:
            end_offset = self._pending[-1].end_offset
            await self._wait(_Pending(end_offset, _future()))

    def _wait(self, pending: _Pending) -> asyncio.Future[None]:
        self._pending.append(pending)
        return pending.answer

    # --- told by the quorum

    def committed(self, high_watermark: int) -> None:
        """Publish and answer what was decided below that offset."""
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
        """Nothing that is pending will be committed by this node: go back to the published image."""
        self._refuse_behind(-1, "the decision was not committed in time, and may count or not", reason)

    def withdrawn(self, reason: BarnabasError) -> bool:
        """What could not be written is taken back. This node leads on, and what is in its log will be
        committed: go back to the last decision that is.

        True: of a decision only the first batches are in the log, so this node must not lead on. Who leads
        next loads them, and aborts their metadata transaction."""
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
        """Take no more commands; those that were given are finished."""
        self._is_closed = True

    @property
    def is_deciding(self) -> bool:
        """Whether answers wait for a commit."""
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
