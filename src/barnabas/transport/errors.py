"""Errors of sending a request to another node, independent of the kind of request.

`client.errors` re-exports them, beside the errors of single requests.
"""

from __future__ import annotations

from barnabas.core.errors import WIRE_ERRORS, BarnabasError, WireError, wire_error


class ClientError(BarnabasError):
    """The base class of all errors of the requesting side."""


class TimedOut(ClientError):
    """A time limit has passed; `refusal` is the last error response of a broker within it, if any."""

    wire = wire_error("REQUEST_TIMED_OUT")

    def __init__(self, what: str, refusal: WireError | None = None) -> None:
        super().__init__(what)
        self.refusal = refusal


class BrokerNotReachable(ClientError):
    """No broker could be reached."""

    wire = wire_error("NETWORK_EXCEPTION")


class BrokerError(ClientError):
    """A broker responded with an error; `others` are further errors of the same request."""

    def __init__(self, error: WireError, what: str, advice: str | None = None) -> None:
        super().__init__(f"{what}; {advice}" if advice else what)
        self.error = error
        self.what = what  # the same without advice
        self.others: tuple[BrokerError, ...] = ()


def wire_error_of(code: int) -> WireError:
    """The error of that code; newer brokers may send codes that are not in the table."""
    return WIRE_ERRORS.get(code) or WireError(code, f"ERROR_{code}", False)
