"""DefaultPrincipalData: the principal of a forwarded request; see `protocol/principals.py`."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Message, String


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    type: String
    name: String
    token_authenticated: Bool
