"""DescribeTransactions and ListTransactions: one transactional id, or all that match a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.messages.describe_transactions import TopicData, TransactionState
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.list_transactions import TransactionState as Listed
from barnabas.transactions.states import NAMES
from barnabas.transactions.transaction import Transaction, by_topic


class InvalidPattern(BarnabasError):
    """A pattern that is not a valid regular expression of RE2."""

    wire = wire_error("INVALID_REGULAR_EXPRESSION")


def described(transactional_id: str, transaction: Transaction | None) -> TransactionState:
    """The state of a transactional id."""
    if not transactional_id:
        return failed(transactional_id, "INVALID_REQUEST")
    if transaction is None:
        return failed(transactional_id, "TRANSACTIONAL_ID_NOT_FOUND")
    return TransactionState(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=NAMES[transaction.state],
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[
            TopicData(topic=one.topic, partitions=one.partition_ids)
            for one in by_topic(transaction.partitions)
        ],
    )


def failed(transactional_id: str, error_name: str) -> TransactionState:
    """The response for a transactional id with an error."""
    return TransactionState(
        error_code=wire_error(error_name).code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


class Filter(NamedTuple):
    """The filter of a ListTransactions request; None matches all states."""

    states: frozenset[int] | None
    producer_ids: frozenset[int]
    min_duration_ms: int
    matches: Callable[[str], object] | None

    def listed(self, transactions: Mapping[str, Transaction], now_ms: int) -> Iterator[Listed]:
        """The matching transactions."""
        for transactional_id, transaction in transactions.items():
            if self._passes(transactional_id, transaction, now_ms):
                yield Listed(
                    transactional_id=transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=NAMES[transaction.state],
                )

    def _passes(self, transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states is not None and transaction.state not in self.states:
            return False
        if self.min_duration_ms >= 0 and now_ms - transaction.started_ms <= self.min_duration_ms:
            return False
        return self.matches is None or bool(self.matches(transactional_id))


def filter_of(request: ListTransactionsRequest) -> tuple[Filter, list[str]]:
    """The filter of a request, and its unknown states."""
    names = dict.fromkeys(request.state_filters)
    known = frozenset(NAMES.index(name) for name in names if name in NAMES)
    pattern = request.transactional_id_pattern
    asked = Filter(
        known if names else None,
        frozenset(request.producer_id_filters),
        request.duration_filter,
        _matcher(pattern) if pattern else None,
    )
    return asked, [name for name in names if name not in NAMES]


def _matcher(pattern: str) -> Callable[[str], object]:
    """Matches whole ids, by RE2: a client's pattern must not take the broker more than linear time."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        matcher: Callable[[str], object] = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        said = error.args[0] if error.args else error
        told = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise InvalidPattern(f"{pattern!r} is no regular expression: {told}") from error
    return matcher
