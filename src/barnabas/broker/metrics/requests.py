"""Requests, counted and timed by API and version, while a node has a metrics endpoint."""

from __future__ import annotations

from typing import Any

from barnabas.broker.metrics.response_errors import errors_in
from barnabas.core.histogram import BUCKETS, Histogram
from barnabas.protocol.schema import Message

# what goes wrong in these is told to `failed` where it does: to search every answer of theirs would cost more
# than all the rest
TELL_THEMSELVES = ("Produce", "Fetch")


CONSUMERS, FOLLOWERS = "FetchConsumer", "FetchFollower"


class ApiTraffic:
    """One version of one API; its times are counted together with those of the others."""

    __slots__ = ("count", "errors", "times", "with_errors")

    def __init__(self, times: Histogram) -> None:
        self.count = 0
        self.with_errors = 0  # answers that tell of some
        self.errors: dict[int, int] = {}  # by their code, each mention counted
        self.times = times


class RequestTraffic:
    """All of them, by name and version, and their times by name."""

    def __init__(self) -> None:
        self.apis: dict[tuple[str, int], ApiTraffic] = {}
        self.times: dict[str, Histogram] = {}
        # fetches once more, by those who send them; errors are not
        self.fetches: dict[tuple[str, int], int] = {}

    def api(self, name: str, version: int) -> ApiTraffic:
        """What is counted of one version of an API."""
        api = self.apis.get((name, version))
        if api is None:
            api = self.apis[name, version] = ApiTraffic(self.times.setdefault(name, Histogram()))
        return api

    def answered(self, name: str, version: int, response: Message | None, seconds: float) -> None:
        """A request was answered, or needed no answer, that long after it had been read."""
        api = self.apis.get((name, version)) or self.api(name, version)
        api.count += 1
        # Histogram.observe without the calls: this is paid for every request
        times = api.times
        times.seconds += seconds
        square = seconds * seconds * 1e12
        bucket = int(square * square).bit_length()
        times.counts[bucket if bucket < BUCKETS else -1] += 1
        if name not in TELL_THEMSELVES and response is not None:
            self.failed(name, version, errors_in(response))

    def fetched(self, version: int, request: Any, seconds: float) -> None:
        """The request was a fetch."""
        state = request.replica_state
        replica_id = request.replica_id if state is None else state.replica_id
        name = FOLLOWERS if replica_id >= 0 else CONSUMERS
        self.fetches[name, version] = self.fetches.get((name, version), 0) + 1
        times = self.times.get(name)
        if times is None:
            times = self.times[name] = Histogram()
        times.observe(seconds)

    def failed(self, name: str, version: int, codes: list[int]) -> None:
        """An answer tells of these errors; of none, perhaps."""
        if codes:
            api = self.api(name, version)
            api.with_errors += 1
            for code in codes:
                api.errors[code] = api.errors.get(code, 0) + 1
