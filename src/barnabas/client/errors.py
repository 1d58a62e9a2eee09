"""The errors of the client. Every message says what was tried and what to do next.

An error in a broker's response becomes a `BrokerError`, or a subclass for errors with a name of their own;
`error` has Kafka's code, and whether a retry may help.
"""

from __future__ import annotations

from barnabas.core.errors import WireError, wire_error
from barnabas.transport.errors import BrokerError, BrokerNotReachable, ClientError, TimedOut, wire_error_of


class ClientClosed(ClientError):
    """The producer, consumer or admin has been closed."""


class RecordTooLarge(ClientError):
    """The record does not fit into a request."""

    wire = wire_error("MESSAGE_TOO_LARGE")


class BadTable(ClientError):
    """The rows of an Arrow table are not valid records."""

    wire = wire_error("INVALID_RECORD")


class NoSuchPartition(ClientError):
    """The topic has fewer partitions."""

    wire = wire_error("UNKNOWN_TOPIC_OR_PARTITION")


class NoOffset(ClientError):
    """A partition has no position, and there is no reset policy."""

    wire = wire_error("OFFSET_OUT_OF_RANGE")


class OutsideTransaction(ClientError):
    """The call is not allowed in the current state of the producer's transaction."""

    wire = wire_error("INVALID_TXN_STATE")


class TransactionAborted(ClientError):
    """The transaction can only be aborted, or was aborted. `__cause__` is the reason."""

    wire = wire_error("TRANSACTION_ABORTABLE")


class UnknownTopic(BrokerError):
    """The topic does not exist."""


class TopicExists(BrokerError):
    """The topic exists already."""


class NotAuthorized(BrokerError):
    """The broker does not allow it."""


class UnknownGroup(BrokerError):
    """The group does not exist."""


class GroupNotEmpty(BrokerError):
    """The group has members: only they may do this, or the group must be empty."""


class UnknownTransactionalId(BrokerError):
    """The coordinator does not know the transactional id."""


class ProducerFenced(BrokerError):
    """The transactional id belongs to a newer producer, or its transaction was aborted after its timeout."""


class TransactionEnded(BrokerError):
    """The transaction has ended already with another result, or there is none."""


class OffsetOutOfRange(BrokerError):
    """The partition does not have that offset any more, or not yet."""


_CLASSES: dict[str, type[BrokerError]] = {
    "UNKNOWN_TOPIC_OR_PARTITION": UnknownTopic,
    "UNKNOWN_TOPIC_ID": UnknownTopic,
    "TOPIC_ALREADY_EXISTS": TopicExists,
    "TOPIC_AUTHORIZATION_FAILED": NotAuthorized,
    "CLUSTER_AUTHORIZATION_FAILED": NotAuthorized,
    "GROUP_AUTHORIZATION_FAILED": NotAuthorized,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": NotAuthorized,
    "GROUP_ID_NOT_FOUND": UnknownGroup,
    "NON_EMPTY_GROUP": GroupNotEmpty,
    "TRANSACTIONAL_ID_NOT_FOUND": UnknownTransactionalId,
    "OFFSET_OUT_OF_RANGE": OffsetOutOfRange,
    "PRODUCER_FENCED": ProducerFenced,
    "INVALID_PRODUCER_EPOCH": ProducerFenced,  # its name in older versions; partitions still send it
    "INVALID_TXN_STATE": TransactionEnded,
}

_FENCED = (
    "a newer producer has the same transactional id, or the transaction took longer than its timeout: "
    "make a new producer, and see that no two have one transactional id"
)

_ADVICE = {
    "UNKNOWN_TOPIC_OR_PARTITION": "create it first, or check the spelling and the cluster",
    "TOPIC_ALREADY_EXISTS": "use it as it is, or delete it first",
    "TOPIC_AUTHORIZATION_FAILED": "ask for an ACL on the topic",
    "INVALID_TOPIC_EXCEPTION": "use letters, digits, '.', '_' and '-', at most 249 of them",
    "MESSAGE_TOO_LARGE": "send smaller batches, or raise max.message.bytes of the topic",
    "NOT_ENOUGH_REPLICAS": "bring replicas back, or lower min.insync.replicas",
    "INVALID_RECORD": "the topic's rules refuse it; a compacted topic needs a key",
    "INVALID_TIMESTAMP": "the topic bounds timestamps: see message.timestamp.before.max.ms and its sibling",
    "NON_EMPTY_GROUP": "stop its members first",
    "OFFSET_OUT_OF_RANGE": "seek to an offset that is there, or set a reset policy",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "the broker has lost what it acknowledged before this",
    "INVALID_REPLICATION_FACTOR": "there are fewer brokers than replicas wanted",
    "PRODUCER_FENCED": _FENCED,
    "INVALID_PRODUCER_EPOCH": _FENCED,
    "INVALID_TRANSACTION_TIMEOUT": "the brokers allow no more than transaction.max.timeout.ms",
    "INVALID_PRODUCER_ID_MAPPING": "the coordinator has forgotten this producer, as it does with idle ones",
    "UNSUPPORTED_VERSION": "the broker is too old for this",
}


def broker_error(error: WireError, what: str, said: str | None = None) -> BrokerError:
    """The exception for a broker's answer: what failed, how, what it said, and what to do."""
    text = f"{what}: {error.name}"
    if said:
        text += f" ({said})"
    return _CLASSES.get(error.name, BrokerError)(error, text, _ADVICE.get(error.name))


__all__ = [
    "BadTable",
    "BrokerError",
    "BrokerNotReachable",
    "ClientClosed",
    "ClientError",
    "GroupNotEmpty",
    "NoOffset",
    "NoSuchPartition",
    "NotAuthorized",
    "OffsetOutOfRange",
    "OutsideTransaction",
    "ProducerFenced",
    "RecordTooLarge",
    "TimedOut",
    "TopicExists",
    "TransactionAborted",
    "TransactionEnded",
    "UnknownGroup",
    "UnknownTopic",
    "UnknownTransactionalId",
    "broker_error",
    "wire_error_of",
]
