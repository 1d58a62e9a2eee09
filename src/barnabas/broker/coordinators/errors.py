"""Errors of every coordinator: it is on another node, is being loaded, or cannot write at the moment."""

from __future__ import annotations

from barnabas.core.errors import BarnabasError, wire_error


class CoordinatorNotAvailable(BarnabasError):
    """The coordinator cannot serve the request now; the client may retry."""

    wire = wire_error("COORDINATOR_NOT_AVAILABLE")


class CoordinatorLoadInProgress(BarnabasError):
    """The partition is being loaded; the client may retry."""

    wire = wire_error("COORDINATOR_LOAD_IN_PROGRESS")


class NotCoordinator(BarnabasError):
    """Another node coordinates this, or no node any more."""

    wire = wire_error("NOT_COORDINATOR")
