"""Requests in flight: one at a time to a peer, with back-off.

A response counts only while its request is in flight. A change of the node's state forgets all requests, so
that a response to a request of another state or epoch is never taken for a present one. A request without a
response in `request_timeout_ms` is given up.
"""

from __future__ import annotations

from typing import Final

from barnabas.raft.config import RaftConfig

MAX_BACKOFF_SHIFT: Final = 4


class _Peer:
    __slots__ = ("correlation", "failures", "ready_ms")

    def __init__(self) -> None:
        self.correlation = 0
        self.failures = 0
        self.ready_ms = 0  # when the next may be sent: end of the back-off, or of the request's timeout


class Outbound:
    """Requests and back-off by peer; any hashable value identifies a peer."""

    __slots__ = ("_by_correlation", "_config", "_next", "_peers")

    def __init__(self, config: RaftConfig) -> None:
        self._config = config
        self._peers: dict[object, _Peer] = {}
        self._by_correlation: dict[int, object] = {}
        self._next = 0

    def ready_ms(self, peer: object) -> int:
        """When the next request may go to that peer."""
        found = self._peers.get(peer)
        return 0 if found is None else found.ready_ms

    def sent(self, peer: object, now_ms: int) -> int:
        """Note a request that is sent; returns its correlation id."""
        found = self._peers.get(peer)
        if found is None:
            found = self._peers[peer] = _Peer()
        elif found.correlation:
            del self._by_correlation[found.correlation]
        self._next += 1
        found.correlation = self._next
        found.ready_ms = now_ms + self._config.request_timeout_ms
        self._by_correlation[self._next] = peer
        return self._next

    def answered(self, correlation: int) -> object | None:
        """The peer of a response; None if the response is not awaited any more."""
        name = self._by_correlation.pop(correlation, None)
        if name is not None:
            peer = self._peers[name]
            peer.correlation = peer.ready_ms = 0
        return name

    def failed(self, correlation: int, now_ms: int) -> object | None:
        """As `answered`, for a request without a response; the peer's back-off begins."""
        name = self._by_correlation.pop(correlation, None)
        if name is not None:
            peer = self._peers[name]
            peer.correlation = 0
            self.back_off(name, now_ms)
        return name

    def back_off(self, peer: object, now_ms: int) -> None:
        """Send nothing to the peer for a while: it had no answer, or one that cannot be processed now."""
        found = self._peers.setdefault(peer, _Peer())
        found.ready_ms = now_ms + (self._config.retry_backoff_ms << found.failures)
        found.failures = min(found.failures + 1, MAX_BACKOFF_SHIFT)

    def succeeded(self, peer: object) -> None:
        """The response was not an error: the next back-off begins at the shortest again."""
        found = self._peers.get(peer)
        if found is not None:
            found.failures = 0

    def reset(self) -> None:
        """Forget all requests in flight; the back-off of failing peers stays."""
        self._by_correlation.clear()
        for name, peer in list(self._peers.items()):
            if peer.correlation:
                peer.correlation, peer.ready_ms = 0, 0
            if not peer.failures:
                del self._peers[name]
