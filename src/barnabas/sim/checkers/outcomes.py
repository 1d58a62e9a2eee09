"""How transactions ended, as far as anybody knows. Not a checker: what some of them have in common."""

from __future__ import annotations

from barnabas.sim.history import History
from barnabas.sim.transaction_events import TxnBegan, TxnEnded, TxnEnding, TxnWriting

NEVER = float("inf")


class Outcomes:
    """What was asked for and what was answered, by transaction; NEVER: it was not."""

    def __init__(self, history: History) -> None:
        self.began = {event.txn: event for event in history.of(TxnBegan)}
        self.writing = {event.mark: event for event in history.of(TxnWriting)}
        self._commit_sent: dict[str, float] = {}
        self._abort_sent: dict[str, float] = {}
        self._ended: dict[str, TxnEnded] = {}
        for event in history.events:
            if isinstance(event, TxnEnding):
                sent = self._commit_sent if event.is_commit else self._abort_sent
                sent.setdefault(event.txn, event.at)
            elif isinstance(event, TxnEnded):
                self._ended.setdefault(event.txn, event)

    def commit_sent_at(self, txn: str) -> float:
        """When its commit was first asked for."""
        return self._commit_sent.get(txn, NEVER)

    def committed_at(self, txn: str) -> float:
        """When its commit was acknowledged."""
        ended = self._ended.get(txn)
        return ended.at if ended is not None and ended.is_commit else NEVER

    def aborted_at(self, txn: str) -> float | None:
        """When it was certain that it never commits; None: it may have."""
        ended = self._ended.get(txn)
        return ended.at if ended is not None and not ended.is_commit else None
