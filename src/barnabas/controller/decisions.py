"""The result of a command: records to replicate and replay, and the response once they are committed.

A command reads the image and its arguments, and changes nothing: the same image, request and randomness give
the same decision. A refusal is part of the response, without a record.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from barnabas.core.errors import BarnabasError, StorageError, WireError, wire_error
from barnabas.protocol.schema import Message

R = TypeVar("R")


class Decision(NamedTuple, Generic[R]):
    """Records, to be appended as one batch, and the response once they are committed."""

    records: list[Message]
    response: R


class NotController(BarnabasError):
    """This node does not lead the metadata quorum, or could not commit a decision."""

    wire = wire_error("NOT_CONTROLLER")


class ControllerNotAnswering(BarnabasError):
    """No active controller has responded in time. Whether the request was carried out is unknown."""

    wire = wire_error("REQUEST_TIMED_OUT")


class ForwardingFailed(BarnabasError):
    """The active controller does not accept an Envelope of this broker, or its response is malformed."""

    wire = wire_error("UNKNOWN_SERVER_ERROR")


# the reasons why a request to the controller gets no response
NOT_COMMITTED = (NotController, StorageError, ControllerNotAnswering, ForwardingFailed)


class Refused(BarnabasError):
    """A refusal of the controller, with the client's error."""

    def __init__(self, error_name: str, message: str) -> None:
        super().__init__(message)
        self.error: WireError = wire_error(error_name)
