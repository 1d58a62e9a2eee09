"""The offsets of a stream as those of a consumer group, so that tools for lag show the query, too.

Progress itself is in the checkpoint: nothing is ever read from the group, and nothing fails where it cannot
be written. What Spark gives as the start of the next batch is what it has committed: it asks for the next
end only when the batch before is through, also after the last one of a stream that ends. Commits go on beside
the stream; of those that wait, only the newest is sent.
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
    """Writes to one group. Of one loop."""

    def __init__(self, admin: Admin, clock: Clock, group_id: str) -> None:
        self._admin, self._clock, self._group_id = admin, clock, group_id
        self._noted: Offsets = {}
        self._written: Offsets = {}
        self._is_late = False  # the group does not take it, or takes its time: nobody waits for that
        self._work: asyncio.Task[None] | None = None

    def note(self, offsets: Offsets) -> None:
        """Write these in a moment, if they are not written yet."""
        self._noted = offsets
        is_at_work = self._work is not None and not self._work.done()
        if not is_at_work and offsets != self._written:
            self._work = asyncio.get_running_loop().create_task(self._write())

    async def settle(self) -> None:
        """Wait for what is being written, but not for long."""
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
