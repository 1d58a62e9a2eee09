"""Mirrors the offsets of a stream to a consumer group, so that tools for lag show the query, too.

Progress itself is in the checkpoint: nothing is ever read from the group, and a failed write fails nothing.
The start of the next batch is what Spark has committed: it asks for the next end only after the previous
batch is complete, also after the last one of a stream that ends. Commits run beside the stream; of those that
wait, only the newest is sent.
"""

from __future__ import annotations

import asyncio
import logging

from barnabas.client.admin import Admin
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.spark.offsets import Offsets

logger = logging.getLogger("barnabas.spark")

RETRY_S = 30.0
SETTLE_S = 5.0


class Mirror:
    """Writes to one group. For use on one loop."""

    def __init__(self, admin: Admin, clock: Clock, group_id: str) -> None:
        self._admin, self._clock, self._group_id = admin, clock, group_id
        self._noted: Offsets = {}
        self._written: Offsets = {}
        self._is_late = False  # the group refuses it, or is slow: do not wait
        self._work: asyncio.Task[None] | None = None

    def note(self, offsets: Offsets) -> None:
        """Write these soon, if they are not written yet."""
        self._noted = offsets
        is_at_work = self._work is not None and not self._work.done()
        if not is_at_work and offsets != self._written:
            self._work = asyncio.get_running_loop().create_task(self._write())

    async def settle(self) -> None:
        """Wait for a write under way, for a limited time."""
        if self._work is not None and not self._is_late:
            _, late = await asyncio.wait((self._work,), timeout=SETTLE_S)
            self._is_late = bool(late)

    async def _write(self) -> None:
        while self._noted != self._written:
            offsets = self._noted
            try:
                await self._admin.alter_group_offsets(self._group_id, offsets)
            except BarnabasError as error:
                logger.warning(
                    "offsets are not mirrored to group %r: %s; the stream goes on, and mirrorOffsets=false "
                    "ends these attempts",
                    self._group_id,
                    error,
                )
                self._is_late = True
                await self._clock.sleep(RETRY_S)
            else:
                self._written, self._is_late = offsets, False
