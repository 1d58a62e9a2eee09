"""A real broker inside your tests: `with Broker() as broker: connect(broker.bootstrap)`.

With pytest the fixtures `broker` and `make_broker` are there once Barnabas is installed (see `plugin`). For
their sake pytest loads this package in every run, so the broker itself is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from barnabas.testing import broker

    return getattr(broker, name)
