"""Topics that are made, written to, deleted and made anew while the broker is being killed.

What was acknowledged must hold after any crash: a topic that was created is there with its records, one that
was deleted is not, one that was made anew is empty. What was in flight at the crash may have gone either way.
"""

from __future__ import annotations

import threading
from random import Random

from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from tests.support.raw_client import RawClient, metadata_request, produce_request

NAMES = tuple(f"churn-{number}" for number in range(6))
UNKNOWN_TOPIC = 3
LATEST = -1
PAUSE_S = 0.002


class Churn:
    """A thread that never rests, and what it knows: records in a topic, None for no topic, or nothing."""

    def __init__(self, port: int, random: Random) -> None:
        self._port, self._random = port, random
        self._known: dict[str, int | None] = dict.fromkeys(NAMES)
        self._uncertain: set[str] = set()
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.problems: list[str] = []
        self.changes = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_S):
            try:
                with RawClient(self._port) as client:
                    while not self._stop.wait(PAUSE_S):
                        with self._turn:
                            self._step(client, self._random.choice(NAMES))
            except (OSError, EOFError):
                continue

    def _step(self, client: RawClient, name: str) -> None:
        if name in self._uncertain:
            self._look(client, name)
            return
        self._uncertain.add(name)  # until it is answered
        count = self._known[name]
        if count is None:
            error = client.ask(metadata_request(name), 12, MetadataResponse).topics[0].error_code
            self._known[name] = 0
        elif self._random.random() < 0.4:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
            error = client.ask(request, 5, DeleteTopicsResponse).responses[0].error_code
            self._known[name] = None
        else:
            answer = client.ask(produce_request(name, [b"x"], acks=-1), 9, ProduceResponse)
            (done,) = answer.responses[0].partition_responses
            error, self._known[name] = done.error_code, count + 1
            if not error and done.base_offset != count:
                self.problems.append(f"{name}: a record at {done.base_offset}, where {count} were there")
        if error:
            self.problems.append(f"{name}: error {error}, where {count} records were there")
        self._uncertain.discard(name)
        self.changes += 1

    def _look(self, client: RawClient, name: str) -> None:
        """What became of a change that was not answered."""
        self._known[name] = self._found(client, name)
        self._uncertain.discard(name)

    def _found(self, client: RawClient, name: str) -> int | None:
        asked = MetadataRequest(topics=metadata_request(name).topics, allow_auto_topic_creation=False)
        (topic,) = client.ask(asked, 12, MetadataResponse).topics
        if topic.error_code == UNKNOWN_TOPIC:
            return None
        partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])]
        )
        (end,) = client.ask(request, 5, ListOffsetsResponse).topics[0].partitions
        if end.error_code:
            self.problems.append(f"{name}: error {end.error_code} when asked for its end")
        return end.offset

    def check(self) -> list[str]:
        """After a restart: what is certain must be so."""
        with self._turn, RawClient(self._port) as client:
            for name in NAMES:
                if name not in self._uncertain:
                    found = self._found(client, name)
                    if found != self._known[name]:
                        self.problems.append(f"{name}: {found} records, instead of {self._known[name]}")
        return self.problems
