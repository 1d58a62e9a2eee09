"""Small histories of transactions: an output "o" of one partition, times in seconds, records by marks."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.sim.checkers import Violation
from barnabas.sim.history import Event, History
from barnabas.sim.transaction_events import (
    LifeBegan,
    OutputFinal,
    OutputMade,
    OutputRead,
    TxnBegan,
    TxnEnded,
    TxnEnding,
    TxnWriting,
    TxnWritten,
)


class Tale:
    """Every method adds events and gives the tale back; the records of "x" are "x/0", "x/1" ..."""

    def __init__(self, partitions: int = 1) -> None:
        self.events: list[Event] = [OutputMade(0.0, "o", partitions)]

    def add(self, *events: Event) -> Tale:
        self.events += events
        return self

    def life(self, at: float, life: str, epoch: int, *, producer_id: int = 7) -> Tale:
        return self.add(LifeBegan(at, at - 0.1, "id", life, producer_id, epoch))

    def began(self, at: float, txn: str, life: str = "life", epoch: int = 0) -> Tale:
        return self.add(TxnBegan(at, txn, "id", life, 7, epoch))

    def sends(self, at: float, mark: str, source: str = "", partition: int = 0) -> Tale:
        return self.add(TxnWriting(at, mark.partition("/")[0], mark, source, "o", partition))

    def writes(self, at: float, mark: str, offset: int, source: str = "", partition: int = 0) -> Tale:
        """Sent then, and acknowledged a tenth of a second later."""
        written = TxnWritten(at + 0.1, at, mark.partition("/")[0], "o", partition, offset, (mark,))
        return self.sends(at, mark, source, partition).add(written)

    def asks(self, at: float, txn: str, is_commit: bool) -> Tale:
        return self.add(TxnEnding(at, txn, is_commit))

    def ends(self, at: float, txn: str, is_commit: bool) -> Tale:
        """Asked for then, and acknowledged a tenth of a second later."""
        return self.asks(at, txn, is_commit).add(TxnEnded(at + 0.1, at, txn, is_commit))

    def reads(
        self, at: float, start: int, position: int, marks: dict[int, str], *, is_committed: bool = True
    ) -> Tale:
        given = tuple(marks.items())
        return self.add(OutputRead(at, at - 0.1, "r#1", is_committed, "o", 0, start, position, given))

    def final(
        self, at: float, committed: dict[int, str], everything: dict[int, str], end: int, partition: int = 0
    ) -> Tale:
        for is_committed, marks in ((True, committed), (False, everything)):
            given = tuple(marks.items())
            self.add(OutputFinal(at, at - 0.1, is_committed, "o", partition, 0, end, given))
        return self

    def judged(self, check: Callable[[History], list[Violation]]) -> list[Violation]:
        return check(History(events=self.events))
