"""Which errors a broker in this process has answered to its clients, as its metrics count them.

A test that has to know that a client was refused, and tried again, asks here instead of waiting for a while.
The broker needs a metrics endpoint (`barnabas.metrics.listen`); a restart begins to count anew.
"""

from __future__ import annotations

from barnabas.core.errors import wire_error
from barnabas.testing import Broker
from tests.support.clients import until


class AnsweredErrors:
    """Made while the broker runs; may be asked while it stops, too."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        traffic = broker.node.services.traffic
        assert traffic is not None, "the broker has no metrics endpoint"
        self._traffic = traffic

    def count(self, api: str, error: str) -> int:
        """How often an error was told in the answers of an API."""
        code = wire_error(error).code

        async def count() -> int:
            apis = self._traffic.apis.items()
            return sum(one.errors.get(code, 0) for (name, _), one in apis if name == api)

        return self._broker.run(count())

    def wait_for(self, api: str, error: str, times: int = 1) -> None:
        """Wait until it was told that often, from the start of the broker on."""
        until(lambda: self.count(api, error) >= times, f"{error} of {api} ({times} times)")
