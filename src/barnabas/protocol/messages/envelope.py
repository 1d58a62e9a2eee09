"""Envelope: a request that a broker forwards to the controller, and the response to it (KIP-590).

`request_data` is a request with its header and without its length, `response_data` likewise. The principal is
a `DefaultPrincipalData` behind its version; the address has the 4 or 16 bytes of the client's IP address.
"""

from __future__ import annotations

from barnabas.protocol.schema import Bytes, Int16, Message, field


class EnvelopeRequest(Message, key=58, versions=(0, 0), flexible=0):
    request_data: Bytes
    request_principal: Bytes | None
    client_host_address: Bytes


class EnvelopeResponse(Message, key=58, versions=(0, 0), flexible=0):
    response_data: Bytes | None = field(default=None)
    error_code: Int16
