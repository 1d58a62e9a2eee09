"""A real broker, or a cluster, inside your tests: `with Broker() as broker: connect(broker.bootstrap)`.

With pytest the fixtures `broker`, `make_broker`, `cluster` and `make_cluster` are there once Barnabas is
installed (see `plugin`). For their sake pytest loads this package in every run, so what they are made of is
imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker, BrokerFailed
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.cluster_node import ClusterFailed

_MODULES = {"Broker": "broker", "BrokerFailed": "broker", "Cluster": "cluster", "ClusterFailed": "cluster"}

__all__ = ["Broker", "BrokerFailed", "Cluster", "ClusterFailed"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
