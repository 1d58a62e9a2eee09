"""Requests, counted and timed by API and version, while a node has a metrics endpoint."""

from __future__ import annotations

from typing import Any

from barnabas.broker.metrics.response_errors import errors_in
from barnabas.core.histogram import BUCKETS, Histogram
from barnabas.protocol.schema import Message

# errors in these are reported with `failed` where they occur: searching every response of these APIs would
# cost more than everything else
TELL_THEMSELVES = ("Produce", "Fetch")


CONSUMERS, FOLLOWERS = "FetchConsumer", "FetchFollower"


class ApiTraffic:
    """The counts of one version of an API; times are shared by all its versions."""

    __slots__ = ("count", "errors", "times", "with_errors")

    def __init__(self, times: Histogram) -> None:
        self.count = 0
        self.with_errors = 0  # responses with errors
        self.errors: dict[int, int] = {}  # by code, every occurrence counted
        self.times = times


class RequestTraffic:
    """The counts of all requests by name and version, and their times by name."""

    def __init__(self) -> None:
        self.apis: dict[tuple[str, int], ApiTraffic] = {}
        self.times: dict[str, Histogram] = {}
        # fetches by kind of sender, in addition; without errors
        self.fetches: dict[tuple[str, int], int] = {}

    def api(self, name: str, version: int) -> ApiTraffic:
        """The counts of one version of an API."""
        api = self.apis.get((name, version))
        if api is None:
            api = self.apis[name, version] = ApiTraffic(self.times.setdefault(name, Histogram()))
        return api

    def answered(self, name: str, version: int, response: Message | None, seconds: float) -> None:
        """Count a request that was answered `seconds` after it was read, or needed no response."""
        api = self.apis.get((name, version)) or self.api(name, version)
        api.count += 1
        # Histogram.observe, inlined: this runs for every request
        times = api.times
        times.seconds += seconds
        square = seconds * seconds * 1e12
        bucket = int(square * square).bit_length()
        times.counts[bucket if bucket < BUCKETS else -1] += 1
        if name not in TELL_THEMSELVES and response is not None:
            self.failed(name, version, errors_in(response))

    def fetched(self, version: int, request: Any, seconds: float) -> None:
        """Count a fetch by its kind of sender."""
        state = request.replica_state
        replica_id = request.replica_id if state is None else state.replica_id
        name = FOLLOWERS if replica_id >= 0 else CONSUMERS
        self.fetches[name, version] = self.fetches.get((name, version), 0) + 1
        times = self.times.get(name)
        if times is None:
            times = self.times[name] = Histogram()
        times.observe(seconds)

    def failed(self, name: str, version: int, codes: list[int]) -> None:
        """Count the errors of a response, if there are any."""
        if codes:
            api = self.api(name, version)
            api.with_errors += 1
            for code in codes:
                api.errors[code] = api.errors.get(code, 0) + 1
