"""Requests that this node has sent and that are not answered: one at a time to a peer, with back-off.

An answer counts only while its request is under way; a change of the node's state forgets all of them, so
that an answer to what the node asked in another state, or in another epoch, is never taken for a present one.
A request that is not answered in `request_timeout_ms` is given up.
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
        self.ready_ms = 0  # when the next may be sent: the back-off, or the timeout of what is under way


class Outbound:
    """Peers are known by any hashable name."""

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
        """A request goes out; returns its correlation."""
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
        """The peer that was asked; None where the answer is not waited for any more."""
        name = self._by_correlation.pop(correlation, None)
        if name is not None:
            peer = self._peers[name]
            peer.correlation = peer.ready_ms = 0
        return name

    def failed(self, correlation: int, now_ms: int) -> object | None:
        """The same for a request without an answer; the peer is left alone for a while."""
        name = self._by_correlation.pop(correlation, None)
        if name is not None:
            peer = self._peers[name]
            peer.correlation = 0
            self.back_off(name, now_ms)
        return name

    def back_off(self, peer: object, now_ms: int) -> None:
        """Leave it alone for a while: it had nothing to say, or this node cannot take what it says."""
        found = self._peers.setdefault(peer, _Peer())
        found.ready_ms = now_ms + (self._config.retry_backoff_ms << found.failures)
        found.failures = min(found.failures + 1, MAX_BACKOFF_SHIFT)

    def succeeded(self, peer: object) -> None:
        """Its answer was no error: the back-off begins anew with the next one."""
        found = self._peers.get(peer)
        if found is not None:
            found.failures = 0

    def reset(self) -> None:
        """Wait for nothing any more; peers that fail stay known as such."""
        self._by_correlation.clear()
        for name, peer in list(self._peers.items()):
            if peer.correlation:
                peer.correlation, peer.ready_ms = 0, 0
            if not peer.failures:
                del self._peers[name]
