"""One command while it is being decided: its time, and its effects so far."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.coordination.effects import NOTHING, Effects, Now, Reply, Write
from barnabas.coordination.records import KeyedRecord
from barnabas.protocol.schema import Message


class Turn:
    """The records and replies of one command, collected from its handlers."""

    __slots__ = ("_replies", "generations", "now", "records")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.generations = 0  # generations begun by the command
        self.records: list[KeyedRecord] = []
        self._replies: list[tuple[Reply, Message]] = []

    def write(self, *records: KeyedRecord) -> None:
        self.records.extend(records)

    def answer(self, reply: Reply, response: Message) -> None:
        self._replies.append((reply, response))

    def effects(self) -> Effects:
        """The collected effects; the records are one batch."""
        if not self.records and not self._replies:
            return NOTHING
        writes: Sequence[Write] = (Write(self.records),) if self.records else ()
        return Effects(writes, self._replies)
