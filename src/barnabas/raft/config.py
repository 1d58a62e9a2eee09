"""The settings of a node of the metadata quorum, with Kafka's defaults."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.raft.voters import Endpoint, Endpoints


class RaftConfig(NamedTuple):
    """Times are in milliseconds; comments name Kafka's settings, except where Kafka has a constant."""

    endpoints: Endpoints = ()  # this node's controller listeners; without any it cannot be a voter
    bootstrap: Endpoints = ()  # controller.quorum.bootstrap.servers
    auto_join: bool = False  # controller.quorum.auto.join.enable
    controller_listener: str = ""  # the first of controller.listener.names: nodes reach each other there
    election_timeout_ms: int = 1000  # controller.quorum.election.timeout.ms: once to twice, at random
    fetch_timeout_ms: int = 2000  # controller.quorum.fetch.timeout.ms
    election_backoff_max_ms: int = 1000  # controller.quorum.election.backoff.max.ms
    request_timeout_ms: int = 2000  # controller.quorum.request.timeout.ms
    retry_backoff_ms: int = 20  # controller.quorum.retry.backoff.ms
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    observer_session_ms: int = 300_000
    joining_fetch_ms: int = 3_600_000  # a node to be added as a voter must have fetched within this time
    max_kraft_version: int = 1
    # not Kafka's: voters that detect a dead leader send pre-votes one after another
    stagger_ms: int = 75
    stagger_jitter_ms: int = 25

    @property
    def begin_epoch_interval_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    @property
    def check_quorum_ms(self) -> int:
        return self.fetch_timeout_ms * 3 // 2

    @property
    def listener(self) -> Endpoint | None:
        """The listener at which others reach the leader."""
        return self.reached_at(self.endpoints)

    def reached_at(self, endpoints: Endpoints) -> Endpoint | None:
        """The listener by which this node reaches another one: the one with the name of the controller
        listener, else the first. Kafka writes them in any order."""
        if len(endpoints) < 2:
            return endpoints[0] if endpoints else None
        return self.named(endpoints) or endpoints[0]

    def named(self, endpoints: Endpoints) -> Endpoint | None:
        """The listener with the name of the controller listener; any if that has no name."""
        name = self.controller_listener.upper()
        return next((each for each in endpoints if not name or each.listener.upper() == name), None)
