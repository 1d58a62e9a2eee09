"""What a read says where records are gone."""

from __future__ import annotations

from barnabas.client.errors import ClientError


class DataLost(ClientError):
    """Offsets that were asked for are no longer there, or not yet."""
