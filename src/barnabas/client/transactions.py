"""The state of a producer's transaction, and what an error means for it. Pure.

    NEW -> READY -> OPEN -> COMMITTING -> READY      one transaction after another
                    OPEN -> ABORTING -> READY
                    OPEN -> PREPARED                 all is acknowledged: may be ended from any process
                    OPEN, COMMITTING -> FAILED       it can only be aborted: FAILED -> ABORTING -> READY
    any -> DEAD                                      the producer cannot be used any more

COMMITTING and ABORTING last until the coordinator has answered. Until then only the same request may be
repeated: the opposite one is not sent while the outcome is unknown.

The coordinator assigns the epoch. With transaction.version 2 every end raises it, and a partition becomes
part of the transaction by being written to. With earlier versions partitions are added first, and the epoch
stays, unless a batch has failed, or a request with an unknown outcome may still arrive. Then the producer
requests the next epoch after the end (KIP-360), so that late requests have the old one.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from barnabas.client.errors import BrokerError, OutsideTransaction, TransactionAborted
from barnabas.client.metadata import TopicPartition
from barnabas.client.sequences import ProducerIdentity
from barnabas.core.errors import BarnabasError

TRANSACTION_VERSION = "transaction.version"
IMPLICIT = 2  # from this transaction.version on partitions add themselves, and every end raises the epoch
LAST_EXPLICIT_END = 4  # the last version of EndTxn for earlier ones


class Phase(Enum):
    NEW = auto()
    READY = auto()
    OPEN = auto()
    FAILED = auto()
    PREPARED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    DEAD = auto()


class Step(Enum):
    """The request that failed with an error."""

    INIT = auto()
    ADD = auto()
    PRODUCE = auto()
    OFFSETS = auto()
    COMMIT = auto()
    ABORT = auto()


class Extent(Enum):
    """What the coordinator knows of the transaction."""

    NOTHING = auto()
    MAYBE = auto()  # something was requested, with an unknown outcome
    SOMETHING = auto()


class PreparedTransaction(NamedTuple):
    """A transaction that is written and left open; `Admin.end_transaction` ends it, from any process.

    If it is empty there is nothing to end. `version` is its transaction.version: each request to end it must
    use that.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_empty: bool
    version: int


FORGOTTEN = "INVALID_PRODUCER_ID_MAPPING"  # the coordinator does not know the id (any more)
ENDED = "INVALID_TXN_STATE"

_FATAL = frozenset(
    (
        "PRODUCER_FENCED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    )
)
_FATAL_FROM_COORDINATORS = _FATAL | {"INVALID_PRODUCER_EPOCH"}
# after any other error of a commit, its outcome is unknown
_NOT_COMMITTED = frozenset((ENDED, FORGOTTEN, "TRANSACTION_ABORTABLE", "UNKNOWN_PRODUCER_ID"))


def error_name(error: BaseException) -> str:
    """Kafka's name of the error."""
    if isinstance(error, BrokerError):
        return error.error.name
    return error.wire.name if isinstance(error, BarnabasError) else ""


def is_fatal(error: BaseException, step: Step) -> bool:
    """Whether the producer cannot be used any more; if it can, the transaction can be aborted."""
    name = error_name(error)
    match step:
        case Step.PRODUCE:  # a partition's epoch errors are not final: the coordinator decides
            return name in _FATAL
        case Step.ADD:
            return name in _FATAL_FROM_COORDINATORS or name == ENDED
        case Step.OFFSETS:
            return name in _FATAL_FROM_COORDINATORS
        case Step.COMMIT:
            return name not in _NOT_COMMITTED
        case Step.INIT | Step.ABORT:
            return True


class Transaction:
    """The current transaction of a producer, or the state between two."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.NEW
        self.version = 0
        self.failure: BaseException | None = None
        self.extent = Extent.NOTHING
        self._identity: ProducerIdentity | None = None
        self._partitions: set[TopicPartition] = set()
        self._needs_epoch = False

    @property
    def identity(self) -> ProducerIdentity:
        assert self._identity is not None
        return self._identity

    @property
    def is_implicit(self) -> bool:
        """Whether partitions and groups become part of the transaction by being written to."""
        return self.version >= IMPLICIT

    @property
    def needs_epoch(self) -> bool:
        """Whether the producer has to request its next epoch; with version 2 the end brings one."""
        return self.is_forgotten or (self._needs_epoch and not self.is_implicit)

    @property
    def is_forgotten(self) -> bool:
        """Whether the coordinator does not know the transaction, so that there is nothing to end."""
        return self.failure is not None and error_name(self.failure) == FORGOTTEN

    def check(self, what: str, *allowed: Phase) -> None:
        """Raise an error if that is not allowed now."""
        if self.phase in allowed:
            return
        if self.phase is Phase.DEAD:
            assert self.failure is not None
            raise self.failure
        if self.phase is Phase.FAILED:
            raise TransactionAborted(
                f"cannot {what}: the transaction of {self.transactional_id!r} has failed ({self.failure}); "
                "abort it, and do its work again in a new one"
            ) from self.failure
        raise OutsideTransaction(f"cannot {what}: {_ADVICE[self.phase]}")

    # ---- transitions -------------------------------------------------------------------------------------

    def initialised(self, identity: ProducerIdentity, version: int) -> None:
        self.check("initialise transactions", Phase.NEW)
        self._identity, self.version = identity, version
        self.phase = Phase.READY

    def begin(self) -> None:
        self.check("begin a transaction", Phase.READY)
        self.phase = Phase.OPEN

    def prepare(self) -> PreparedTransaction:
        self.check("prepare the transaction", Phase.OPEN, Phase.PREPARED)
        self.phase = Phase.PREPARED
        is_empty = self.extent is Extent.NOTHING
        return PreparedTransaction(self.transactional_id, *self.identity, is_empty, self.version)

    def end(self, *, is_commit: bool) -> None:
        """Begin to commit or abort; this cannot be undone."""
        if is_commit:
            self.check("commit", Phase.OPEN, Phase.PREPARED, Phase.COMMITTING)
            self.phase = Phase.COMMITTING
        else:
            self.check("abort", Phase.OPEN, Phase.FAILED, Phase.PREPARED, Phase.ABORTING)
            self.phase = Phase.ABORTING

    def ended(self, identity: ProducerIdentity, version: int) -> None:
        """The coordinator has ended the transaction; the next one has that identity."""
        self._identity, self.version = identity, version
        self._partitions.clear()
        self.phase, self.extent = Phase.READY, Extent.NOTHING
        self.failure, self._needs_epoch = None, False

    # ---- partitions --------------------------------------------------------------------------------------

    def may_write(self, partition: TopicPartition) -> bool:
        """Whether batches may be sent there, as part of the transaction."""
        return self.is_implicit or partition in self._partitions

    def asked(self) -> None:
        """Something is about to become part of the transaction."""
        if self.extent is Extent.NOTHING:
            self.extent = Extent.MAYBE

    def added(self, *partitions: TopicPartition) -> None:
        """These partitions, or something else, are part of the transaction now."""
        self._partitions.update(partitions)
        self.extent = Extent.SOMETHING

    # ---- errors ------------------------------------------------------------------------------------------

    def failed(self, error: BaseException, step: Step, *, was_sent: bool = True) -> None:
        """A step of the transaction has failed; if it was sent, its outcome may be unknown."""
        if is_fatal(error, step):
            self.died(error)
            return
        if was_sent and step is not Step.COMMIT:
            self._needs_epoch = True
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self.phase, self.failure = Phase.FAILED, error

    def may_end_late(self) -> None:
        """The end was requested more than once: a late request must not end the next transaction."""
        self._needs_epoch = True

    def died(self, error: BaseException) -> None:
        if self.phase is not Phase.DEAD:
            self.phase, self.failure = Phase.DEAD, error


_ADVICE = {
    Phase.NEW: "call init_transactions() first",
    Phase.READY: "no transaction is open; call begin_transaction() first, or use `async with transaction()`",
    Phase.OPEN: "a transaction is open already; commit or abort it first",
    Phase.PREPARED: "the transaction is prepared, and takes nothing more; it can only be ended",
    Phase.COMMITTING: "the transaction is being committed; call commit_transaction() to wait for that",
    Phase.ABORTING: "the transaction is being aborted; call abort_transaction() to wait for that",
}
