"""Errors, in three kinds.

Wire errors are Kafka's numbered codes: a table here, sent to clients. Domain exceptions are raised by the
code; each class names its wire error, so that the translation happens in one place. Invariant violations mean
that the program itself is wrong: the node must stop rather than go on with bad state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple


class WireError(NamedTuple):
    """One of Kafka's error codes, as clients see it."""

    code: int
    name: str
    retriable: bool


_TABLE = (
    WireError(-1, "UNKNOWN_SERVER_ERROR", False),
    WireError(0, "NONE", False),
    WireError(1, "OFFSET_OUT_OF_RANGE", False),
    WireError(2, "CORRUPT_MESSAGE", True),
    WireError(3, "UNKNOWN_TOPIC_OR_PARTITION", True),
    WireError(4, "INVALID_FETCH_SIZE", False),
    WireError(5, "LEADER_NOT_AVAILABLE", True),
    WireError(6, "NOT_LEADER_OR_FOLLOWER", True),
    WireError(7, "REQUEST_TIMED_OUT", True),
    WireError(8, "BROKER_NOT_AVAILABLE", False),
    WireError(9, "REPLICA_NOT_AVAILABLE", True),
    WireError(10, "MESSAGE_TOO_LARGE", False),
    WireError(11, "STALE_CONTROLLER_EPOCH", False),
    WireError(12, "OFFSET_METADATA_TOO_LARGE", False),
    WireError(13, "NETWORK_EXCEPTION", True),
    WireError(14, "COORDINATOR_LOAD_IN_PROGRESS", True),
    WireError(15, "COORDINATOR_NOT_AVAILABLE", True),
    WireError(16, "NOT_COORDINATOR", True),
    WireError(17, "INVALID_TOPIC_EXCEPTION", False),
    WireError(18, "RECORD_LIST_TOO_LARGE", False),
    WireError(19, "NOT_ENOUGH_REPLICAS", True),
    WireError(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", True),
    WireError(21, "INVALID_REQUIRED_ACKS", False),
    WireError(22, "ILLEGAL_GENERATION", False),
    WireError(23, "INCONSISTENT_GROUP_PROTOCOL", False),
    WireError(24, "INVALID_GROUP_ID", False),
    WireError(25, "UNKNOWN_MEMBER_ID", False),
    WireError(26, "INVALID_SESSION_TIMEOUT", False),
    WireError(27, "REBALANCE_IN_PROGRESS", False),
    WireError(28, "INVALID_COMMIT_OFFSET_SIZE", False),
    WireError(29, "TOPIC_AUTHORIZATION_FAILED", False),
    WireError(30, "GROUP_AUTHORIZATION_FAILED", False),
    WireError(31, "CLUSTER_AUTHORIZATION_FAILED", False),
    WireError(32, "INVALID_TIMESTAMP", False),
    WireError(33, "UNSUPPORTED_SASL_MECHANISM", False),
    WireError(34, "ILLEGAL_SASL_STATE", False),
    WireError(35, "UNSUPPORTED_VERSION", False),
    WireError(36, "TOPIC_ALREADY_EXISTS", False),
    WireError(37, "INVALID_PARTITIONS", False),
    WireError(38, "INVALID_REPLICATION_FACTOR", False),
    WireError(39, "INVALID_REPLICA_ASSIGNMENT", False),
    WireError(40, "INVALID_CONFIG", False),
    WireError(41, "NOT_CONTROLLER", True),
    WireError(42, "INVALID_REQUEST", False),
    WireError(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", False),
    WireError(44, "POLICY_VIOLATION", False),
    WireError(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False),
    WireError(46, "DUPLICATE_SEQUENCE_NUMBER", False),
    WireError(47, "INVALID_PRODUCER_EPOCH", False),
    WireError(48, "INVALID_TXN_STATE", False),
    WireError(49, "INVALID_PRODUCER_ID_MAPPING", False),
    WireError(50, "INVALID_TRANSACTION_TIMEOUT", False),
    WireError(51, "CONCURRENT_TRANSACTIONS", True),
    WireError(52, "TRANSACTION_COORDINATOR_FENCED", False),
    WireError(53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False),
    WireError(54, "SECURITY_DISABLED", False),
    WireError(55, "OPERATION_NOT_ATTEMPTED", False),
    WireError(56, "KAFKA_STORAGE_ERROR", True),
    WireError(57, "LOG_DIR_NOT_FOUND", False),
    WireError(58, "SASL_AUTHENTICATION_FAILED", False),
    WireError(59, "UNKNOWN_PRODUCER_ID", False),
    WireError(60, "REASSIGNMENT_IN_PROGRESS", False),
    WireError(61, "DELEGATION_TOKEN_AUTH_DISABLED", False),
    WireError(62, "DELEGATION_TOKEN_NOT_FOUND", False),
    WireError(63, "DELEGATION_TOKEN_OWNER_MISMATCH", False),
    WireError(64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", False),
    WireError(65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", False),
    WireError(66, "DELEGATION_TOKEN_EXPIRED", False),
    WireError(67, "INVALID_PRINCIPAL_TYPE", False),
    WireError(68, "NON_EMPTY_GROUP", False),
    WireError(69, "GROUP_ID_NOT_FOUND", False),
    WireError(70, "FETCH_SESSION_ID_NOT_FOUND", True),
    WireError(71, "INVALID_FETCH_SESSION_EPOCH", True),
    WireError(72, "LISTENER_NOT_FOUND", True),
    WireError(73, "TOPIC_DELETION_DISABLED", False),
    WireError(74, "FENCED_LEADER_EPOCH", True),
    WireError(75, "UNKNOWN_LEADER_EPOCH", True),
    WireError(76, "UNSUPPORTED_COMPRESSION_TYPE", False),
    WireError(77, "STALE_BROKER_EPOCH", False),
    WireError(78, "OFFSET_NOT_AVAILABLE", True),
    WireError(79, "MEMBER_ID_REQUIRED", False),
    WireError(80, "PREFERRED_LEADER_NOT_AVAILABLE", True),
    WireError(81, "GROUP_MAX_SIZE_REACHED", False),
    WireError(82, "FENCED_INSTANCE_ID", False),
    WireError(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", True),
    WireError(84, "ELECTION_NOT_NEEDED", True),
    WireError(85, "NO_REASSIGNMENT_IN_PROGRESS", False),
    WireError(86, "GROUP_SUBSCRIBED_TO_TOPIC", False),
    WireError(87, "INVALID_RECORD", False),
    WireError(88, "UNSTABLE_OFFSET_COMMIT", True),
    WireError(89, "THROTTLING_QUOTA_EXCEEDED", True),
    WireError(90, "PRODUCER_FENCED", False),
    WireError(91, "RESOURCE_NOT_FOUND", False),
    WireError(92, "DUPLICATE_RESOURCE", False),
    WireError(93, "UNACCEPTABLE_CREDENTIAL", False),
    WireError(94, "INCONSISTENT_VOTER_SET", False),
    WireError(95, "INVALID_UPDATE_VERSION", False),
    WireError(96, "FEATURE_UPDATE_FAILED", False),
    WireError(97, "PRINCIPAL_DESERIALIZATION_FAILURE", False),
    WireError(98, "SNAPSHOT_NOT_FOUND", False),
    WireError(99, "POSITION_OUT_OF_RANGE", False),
    WireError(100, "UNKNOWN_TOPIC_ID", True),
    WireError(101, "DUPLICATE_BROKER_REGISTRATION", False),
    WireError(102, "BROKER_ID_NOT_REGISTERED", False),
    WireError(103, "INCONSISTENT_TOPIC_ID", True),
    WireError(104, "INCONSISTENT_CLUSTER_ID", False),
    WireError(105, "TRANSACTIONAL_ID_NOT_FOUND", False),
    WireError(106, "FETCH_SESSION_TOPIC_ID_ERROR", True),
    WireError(107, "INELIGIBLE_REPLICA", False),
    WireError(108, "NEW_LEADER_ELECTED", False),
    WireError(109, "OFFSET_MOVED_TO_TIERED_STORAGE", False),
    WireError(110, "FENCED_MEMBER_EPOCH", False),
    WireError(111, "UNRELEASED_INSTANCE_ID", False),
    WireError(112, "UNSUPPORTED_ASSIGNOR", False),
    WireError(113, "STALE_MEMBER_EPOCH", False),
    WireError(114, "MISMATCHED_ENDPOINT_TYPE", False),
    WireError(115, "UNSUPPORTED_ENDPOINT_TYPE", False),
    WireError(116, "UNKNOWN_CONTROLLER_ID", False),
    WireError(117, "UNKNOWN_SUBSCRIPTION_ID", False),
    WireError(118, "TELEMETRY_TOO_LARGE", False),
    WireError(119, "INVALID_REGISTRATION", False),
    WireError(120, "TRANSACTION_ABORTABLE", False),
    WireError(121, "INVALID_RECORD_STATE", False),
    WireError(122, "SHARE_SESSION_NOT_FOUND", True),
    WireError(123, "INVALID_SHARE_SESSION_EPOCH", True),
    WireError(124, "FENCED_STATE_EPOCH", False),
    WireError(125, "INVALID_VOTER_KEY", False),
    WireError(126, "DUPLICATE_VOTER", False),
    WireError(127, "VOTER_NOT_FOUND", False),
    WireError(128, "INVALID_REGULAR_EXPRESSION", False),
    WireError(129, "REBOOTSTRAP_REQUIRED", False),
    WireError(130, "STREAMS_INVALID_TOPOLOGY", False),
    WireError(131, "STREAMS_INVALID_TOPOLOGY_EPOCH", False),
    WireError(132, "STREAMS_TOPOLOGY_FENCED", False),
    WireError(133, "SHARE_SESSION_LIMIT_REACHED", True),
)

WIRE_ERRORS: dict[int, WireError] = {error.code: error for error in _TABLE}
_BY_NAME = {error.name: error for error in _TABLE}


def wire_error(name: str) -> WireError:
    """The wire error of that name, e.g. `wire_error("CORRUPT_MESSAGE")`."""
    return _BY_NAME[name]


TOLD_CHARACTERS = 1000
THE_PARTITION = "{partition}"  # stands for the partition's name in the text of a record's fault


class RecordFault(NamedTuple):
    """The fault of the record at `record_index` in its batch."""

    record_index: int
    text: str

    def told(self, partition: str) -> str:
        """The text for clients, with the name of the partition (`topic-0`)."""
        return self.text.replace(THE_PARTITION, partition)


class BarnabasError(Exception):
    """The base class of errors that callers handle; `wire` is the error code in a response."""

    wire: ClassVar[WireError] = wire_error("UNKNOWN_SERVER_ERROR")
    # the records of a batch that are at fault, in order; empty if the fault is the batch's own
    record_faults: Sequence[RecordFault] = ()

    @property
    def told(self) -> str:
        """The text for clients, cut short: it may quote long names, and old versions allow 32,767 bytes."""
        text = str(self)
        return text if len(text) <= TOLD_CHARACTERS else f"{text[:TOLD_CHARACTERS]}..."


class InvariantViolation(Exception):
    """The program contradicts itself. Only the code that stops the node catches this.

    It is not a BarnabasError: no request may be answered with this error.
    """


class CorruptMessage(BarnabasError):
    """Bytes that cannot be a record batch: a bad length, checksum or magic."""

    wire = wire_error("CORRUPT_MESSAGE")


class InvalidRecord(BarnabasError):
    """A batch that is well formed but breaks a rule of the topic or of the format."""

    wire = wire_error("INVALID_RECORD")


class UnsupportedCompression(BarnabasError):
    """A compression codec that does not exist."""

    wire = wire_error("UNSUPPORTED_COMPRESSION_TYPE")


class MessageTooLarge(BarnabasError):
    """A batch beyond `max.message.bytes`."""

    wire = wire_error("MESSAGE_TOO_LARGE")


class RecordListTooLarge(BarnabasError):
    """A batch that does not fit into a segment."""

    wire = wire_error("RECORD_LIST_TOO_LARGE")


class InvalidTimestamp(BarnabasError):
    """A record's timestamp outside the bounds that the topic sets."""

    wire = wire_error("INVALID_TIMESTAMP")


class OffsetOutOfRange(BarnabasError):
    """An offset before the start or beyond the end of the log."""

    wire = wire_error("OFFSET_OUT_OF_RANGE")


class OutOfOrderSequence(BarnabasError):
    """A producer's batch does not continue its last one."""

    wire = wire_error("OUT_OF_ORDER_SEQUENCE_NUMBER")


class InvalidProducerEpoch(BarnabasError):
    """A batch of a producer that has been fenced by a newer instance."""

    wire = wire_error("INVALID_PRODUCER_EPOCH")


class InvalidTransactionState(BarnabasError):
    """A write that does not fit the state of the producer's transaction."""

    wire = wire_error("INVALID_TXN_STATE")


class TransactionCoordinatorFenced(BarnabasError):
    """A marker from a transaction coordinator that has been replaced."""

    wire = wire_error("TRANSACTION_COORDINATOR_FENCED")


class FencedLeaderEpoch(BarnabasError):
    """A request carries an older leader epoch than that of the partition."""

    wire = wire_error("FENCED_LEADER_EPOCH")


class InconsistentTopicId(BarnabasError):
    """A directory or a name belongs to another topic than the one in the request."""

    wire = wire_error("INCONSISTENT_TOPIC_ID")


class StorageError(BarnabasError):
    """An operation of the disk failed. The message names the file and the next step."""

    wire = wire_error("KAFKA_STORAGE_ERROR")
