"""The error of a read whose records are gone."""

from __future__ import annotations

from barnabas.client.errors import ClientError


class DataLost(ClientError):
    """Requested offsets do not exist any more, or not yet."""
