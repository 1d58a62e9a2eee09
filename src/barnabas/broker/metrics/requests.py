"""Requests, counted and timed by API and version, while a node has a metrics endpoint."""

from __future__ import annotations

from barnabas.broker.metrics.response_errors import errors_in
from barnabas.core.metrics import BUCKETS, Histogram
from barnabas.protocol.schema import Message


class ApiTraffic:
    """One version of one API; its times are counted together with those of the others."""

    __slots__ = ("count", "errors", "times", "with_errors")

    def __init__(self, times: Histogram) -> None:
        self.count = 0
        self.with_errors = 0
        self.errors: dict[int, int] = {}  # by their code, each mention counted
        self.times = times


class RequestTraffic:
    """All of them, by name and version, and their times by name."""

    def __init__(self) -> None:
        self.apis: dict[tuple[str, int], ApiTraffic] = {}
        self.times: dict[str, Histogram] = {}

    def answered(self, name: str, version: int, response: Message | None, seconds: float) -> None:
        """A request was answered, or needed no answer, that long after it had been read."""
        api = self.apis.get((name, version))
        if api is None:
            api = self.apis[name, version] = ApiTraffic(self.times.setdefault(name, Histogram()))
        api.count += 1
        # Histogram.observe without the calls: this is paid for every request
        times = api.times
        times.seconds += seconds
        square = seconds * seconds * 1e12
        bucket = int(square * square).bit_length()
        times.counts[bucket if bucket < BUCKETS else -1] += 1
        if response is not None and (codes := errors_in(response)):
            api.with_errors += 1
            for code in codes:
                api.errors[code] = api.errors.get(code, 0) + 1
