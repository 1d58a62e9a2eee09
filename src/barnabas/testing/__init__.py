"""A real broker inside your tests: `with Broker() as broker: connect(broker.bootstrap)`.

With pytest the fixtures `broker` and `make_broker` are there once Barnabas is installed (see `plugin`).
"""

from barnabas.testing.broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
