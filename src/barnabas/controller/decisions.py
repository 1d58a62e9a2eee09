"""What a command gives: records to be replicated and replayed, and the response once they are.

A command reads the image and its arguments, and changes nothing: the same image, request and randomness give
the same decision. What it refuses is part of the response, and then no record speaks of it.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from barnabas.core.errors import BarnabasError, StorageError, WireError, wire_error
from barnabas.protocol.schema import Message

R = TypeVar("R")


class Decision(NamedTuple, Generic[R]):
    """Records, to be appended as one batch, and what to answer when they are committed."""

    records: list[Message]
    response: R


class NotController(BarnabasError):
    """This node does not lead the metadata quorum, or could not commit a decision."""

    wire = wire_error("NOT_CONTROLLER")


class ControllerNotAnswering(BarnabasError):
    """No active controller has answered in time. Whether the request is carried out is unknown."""

    wire = wire_error("REQUEST_TIMED_OUT")


class ForwardingFailed(BarnabasError):
    """The active controller does not take an Envelope of this broker, or answers it with garbage."""

    wire = wire_error("UNKNOWN_SERVER_ERROR")


# why a request to the controller has no answer
NOT_COMMITTED = (NotController, StorageError, ControllerNotAnswering, ForwardingFailed)


class Refused(BarnabasError):
    """What the controller does not carry out, and the error that the client is told."""

    def __init__(self, error_name: str, message: str) -> None:
        super().__init__(message)
        self.error: WireError = wire_error(error_name)
