"""Errors of group requests, one for each of Kafka's."""

from __future__ import annotations

from barnabas.core.errors import BarnabasError, wire_error


class UnknownMember(BarnabasError):
    """No member of the group has that id."""

    wire = wire_error("UNKNOWN_MEMBER_ID")


class IllegalGeneration(BarnabasError):
    """The request is of another generation than the group."""

    wire = wire_error("ILLEGAL_GENERATION")


class FencedInstance(BarnabasError):
    """Another member has replaced that of the instance."""

    wire = wire_error("FENCED_INSTANCE_ID")


class RebalanceInProgress(BarnabasError):
    """A rebalance is in progress: the members' assignments will change."""

    wire = wire_error("REBALANCE_IN_PROGRESS")


class InconsistentProtocol(BarnabasError):
    """The member's protocols do not fit those of the group."""

    wire = wire_error("INCONSISTENT_GROUP_PROTOCOL")


class NonEmptyGroup(BarnabasError):
    """The group has members."""

    wire = wire_error("NON_EMPTY_GROUP")


class GroupNotFound(BarnabasError):
    """The group does not exist, or is of another type."""

    wire = wire_error("GROUP_ID_NOT_FOUND")
