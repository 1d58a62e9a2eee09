"""Who sent a request, as the state machines of coordinators know it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordination.effects import Caller

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext


def caller_of(context: RequestContext) -> Caller:
    """Whoever sent the request; the host as Java writes an address without a name."""
    return Caller(context.api_version, context.client_id or "", f"/{context.host}")
