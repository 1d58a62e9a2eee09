"""The sender of a request, in the form that coordinators use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordination.effects import Caller

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext


def caller_of(context: RequestContext) -> Caller:
    """The sender of a request; the host in the form of Java's address without a host name."""
    return Caller(context.api_version, context.client_id or "", f"/{context.host}")
