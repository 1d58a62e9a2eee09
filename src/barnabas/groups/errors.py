"""What a group refuses, each by the name that clients know."""

from __future__ import annotations

from barnabas.core.errors import BarnabasError, wire_error


class UnknownMember(BarnabasError):
    """Nobody of that id is a member of the group."""

    wire = wire_error("UNKNOWN_MEMBER_ID")


class IllegalGeneration(BarnabasError):
    """The group is in another generation."""

    wire = wire_error("ILLEGAL_GENERATION")


class FencedInstance(BarnabasError):
    """Another member has taken the place of that instance."""

    wire = wire_error("FENCED_INSTANCE_ID")


class RebalanceInProgress(BarnabasError):
    """The members are about to get other parts."""

    wire = wire_error("REBALANCE_IN_PROGRESS")


class InconsistentProtocol(BarnabasError):
    """The members have another protocol, or none in common with this one."""

    wire = wire_error("INCONSISTENT_GROUP_PROTOCOL")


class NonEmptyGroup(BarnabasError):
    """The group has members."""

    wire = wire_error("NON_EMPTY_GROUP")


class GroupNotFound(BarnabasError):
    """There is no such group, or it is not of the type that was asked for."""

    wire = wire_error("GROUP_ID_NOT_FOUND")
