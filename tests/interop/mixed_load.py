"""A producer that writes numbered records without end, with acks=all and idempotence, whatever happens to
the brokers; afterwards every number must be there once, in order, at the offset that was acknowledged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from types import TracebackType
from typing import Any

from confluent_kafka import Producer

from tests.support.mixed_cluster import MixedCluster
from tests.support.mixed_node import ClusterFailed

UNACKNOWLEDGED = 2000  # at a time
PAUSE_S = 0.02
FLUSH_S = 120.0


class MixedLoad:
    """Records go to partition 0 of each topic in turn while the `with` block lasts; it ends when all of
    them have been acknowledged."""

    def __init__(
        self,
        cluster: MixedCluster,
        bootstrap: str,
        topics: Sequence[str],
        a_turn: int = 5,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """So many records to each topic at a time, while more are wanted."""
        self.sent: dict[str, int] = dict.fromkeys(topics, 0)
        self.acknowledged: dict[str, dict[int, int]] = defaultdict(dict)  # number to offset
        self.failures: list[str] = []
        self._cluster = cluster
        self._a_turn = a_turn
        self._is_wanted = is_wanted
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        patient = {"message.timeout.ms": 300_000, "reconnect.backoff.max.ms": 500, "log_level": 0}
        self._producer = Producer(settings | patient | {"topic.metadata.refresh.interval.ms": 5000})
        self._end = Event()
        self._thread = Thread(target=self._run, name="load")

    def __enter__(self) -> MixedLoad:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._end.set()
            self._thread.join()

    def stop(self) -> None:
        """Send no more, and wait until all is acknowledged; harmless when repeated."""
        self._end.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_S)
        if left or self.failures:
            raise ClusterFailed(f"{left} records are not answered; failures: {self.failures[:5]}")

    def _run(self) -> None:
        while not self._end.wait(PAUSE_S):
            while len(self._producer) < UNACKNOWLEDGED and self._is_wanted() and not self._end.is_set():
                for topic in self.sent:
                    for _ in range(self._a_turn):
                        self._send(topic)
                if self._producer.poll(PAUSE_S) == 0:
                    break
            self._producer.poll(0)

    def _send(self, topic: str) -> None:
        number = self.sent[topic]
        self.sent[topic] += 1

        def told(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(f"{topic} {number}: {error}")
            else:
                self.acknowledged[topic][number] = message.offset()

        self._producer.produce(topic, b"%d=%064d" % (number, number), b"%d" % number, on_delivery=told)

    def progress(self, records: int = 200) -> None:
        """Wait until so many more of each topic have been sent and acknowledged."""
        goals = {topic: sent + records for topic, sent in self.sent.items()}
        self._cluster.wait_for(
            f"{records} more records acknowledged of each topic",
            lambda: all(len(self.acknowledged[topic]) >= goal for topic, goal in goals.items()) or None,
        )
        if self.failures:
            raise ClusterFailed(f"records failed: {self.failures[:5]}")

    def check(self, topic: str, found: Mapping[int, bytes]) -> None:
        """What has been read, by offsets: every record once, in order, where it was acknowledged."""
        numbers = [int(value.partition(b"=")[0]) for _, value in sorted(found.items())]
        if numbers != list(range(self.sent[topic])):
            wrong = next((at for at, number in enumerate(numbers) if at != number), len(numbers))
            counts = f"{len(numbers)} records of {self.sent[topic]}"
            raise ClusterFailed(f"{topic}: {counts}; at {wrong} stands {numbers[wrong : wrong + 5]}")
        offsets = dict(zip(numbers, sorted(found), strict=True))
        for number, offset in self.acknowledged[topic].items():
            if offset >= 0 and offsets[number] != offset:
                raise ClusterFailed(f"{topic}: {number} acknowledged at {offset} is at {offsets[number]}")
