"""Members of groups with Python's clients, told what to do by lines of JSON, and telling.

    python -m tests.interop.python_members confluent|aiokafka|kafka-python

One command a line: `{"do": "join", "member": ...}` (the rest of it is `Wanted`), and by the member's name
`leave`, `stall` (stop polling, as one whose work takes too long), `resume`. What it tells stands in
tests/support/group_history.py. Members commit what they have read every `COMMIT_EVERY_S`, before a partition
is taken from them, and before they leave; what is refused while the group rebalances they commit later.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

COMMIT_EVERY_S = 0.2
POLL_S = 0.1
FIRST_POLL_S = 5.0
_out = threading.Lock()

Place = tuple[str, int]


class Wanted(NamedTuple):
    """How a member joins."""

    member: str
    bootstrap: str
    group: str
    topics: list[str]
    assignors: list[str]
    instance: str | None
    session_ms: int
    heartbeat_ms: int
    poll_ms: int  # how long it may go without a poll
    request_ms: int = 40_000  # how long a broker may be silent before another one is asked


class Taken(dict[Place, int]):
    """Offsets that are to be committed, and since when."""

    def __init__(self, offsets: Mapping[Place, int]) -> None:
        super().__init__(offsets)
        self.since_ns = time.monotonic_ns()


def tell(
    member: str,
    did: str,
    partitions: Iterable[Place] = (),
    offsets: Iterable[int] = (),
    why: str = "",
    since_ns: int = 0,
) -> None:
    line = json.dumps(
        {
            "at": time.monotonic_ns(),
            "member": member,
            "did": did,
            "partitions": list(partitions),
            "offsets": list(offsets),
            "why": why,
            "since": since_ns,
        }
    )
    with _out:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Member:
    """What all three have in common: what was read and is not told yet, and what is not committed yet."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.leaving = threading.Event()
        self.polling = threading.Event()
        self.polling.set()
        self.commit_at = 0.0
        self.owned: set[Place] = set()
        self._read: dict[Place, list[int]] = {}
        self._positions: dict[Place, int] = {}

    def tell(self, did: str, partitions: Iterable[Place] = (), why: str = "") -> None:
        self.tell_reads()
        places = sorted(partitions)
        if did == "assigned":
            self.owned.update(places)
        tell(self.wanted.member, did, places, why=why)

    def saw(self, place: Place, offset: int) -> None:
        self._read.setdefault(place, []).append(offset)
        self._positions[place] = offset + 1

    def tell_reads(self) -> None:
        read, self._read = self._read, {}
        for place, offsets in read.items():
            start = 0
            for at in range(1, len(offsets) + 1):
                if at == len(offsets) or offsets[at] != offsets[at - 1] + 1:
                    tell(self.wanted.member, "read", [place], [offsets[start], offsets[at - 1]])
                    start = at

    def is_done(self) -> bool:
        return self.leaving.is_set() and not self._positions

    def is_commit_due(self) -> bool:
        if not self._positions or (time.monotonic() < self.commit_at and not self.leaving.is_set()):
            return False
        self.commit_at = time.monotonic() + COMMIT_EVERY_S
        return True

    def take(self, places: Iterable[Place] | None = None) -> Taken:
        """What is to be committed now: of these partitions, which are to be given up, or of all."""
        self.tell_reads()
        if places is None:
            places = list(self._positions)
        else:
            places = list(places)
            self.owned.difference_update(places)
        return Taken({place: self._positions.pop(place) for place in places if place in self._positions})

    def refused(self, offsets: Mapping[Place, int], why: str) -> None:
        """Later, unless they are no longer its own, or it has read on."""
        self.tell("refused", why=why)
        for place, offset in offsets.items():
            if place in self.owned:
                self._positions.setdefault(place, offset)

    def committed(self, offsets: Taken) -> None:
        tell(self.wanted.member, "committed", offsets.keys(), offsets.values(), since_ns=offsets.since_ns)

    def stall_if_told(self) -> None:
        if not self.polling.is_set():
            self.tell("stalled")
            self.polling.wait()

    def run(self) -> None:
        try:
            self.live()
        except Exception as error:  # noqa: BLE001  (whatever ends a member is told)
            self.tell("failed", why=f"{type(error).__name__}: {error}")
        else:
            self.tell("left")

    def live(self) -> None:
        raise NotImplementedError


class ConfluentMember(Member):
    def live(self) -> None:
        import confluent_kafka

        self.kafka = confluent_kafka
        wanted = self.wanted
        settings: dict[str, Any] = {
            "bootstrap.servers": wanted.bootstrap,
            "group.id": wanted.group,
            "client.id": wanted.member,
            "partition.assignment.strategy": ",".join(wanted.assignors),
            "session.timeout.ms": wanted.session_ms,
            "heartbeat.interval.ms": wanted.heartbeat_ms,
            "max.poll.interval.ms": max(wanted.poll_ms, wanted.session_ms),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": wanted.request_ms,
            "log_level": 0,
        }
        if wanted.instance:
            settings["group.instance.id"] = wanted.instance
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(
            wanted.topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        try:
            while not self.is_done():
                self._poll(consumer)
                self.stall_if_told()
                if self.is_commit_due():
                    self._commit(consumer, self.take())
        finally:
            consumer.close()

    def _poll(self, consumer: Any) -> None:
        wait_s = POLL_S
        for _ in range(500):
            message = consumer.poll(wait_s)
            wait_s = 0
            if message is None:
                break
            error = message.error()
            # told once, by its code alone: a heartbeat, and not a commit, may be what hears of it
            if error is not None and (error.fatal() or error.code() == self.kafka.KafkaError._FATAL):
                raise self.kafka.KafkaException(error)
            if error is None:
                self.saw((message.topic(), message.partition()), message.offset())
        self.tell_reads()

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self.tell("assigned", _places(partitions))

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self._commit(consumer, self.take(_places(partitions)))
        self.tell("revoked", _places(partitions))

    def _lost(self, consumer: Any, partitions: list[Any]) -> None:
        self.take(_places(partitions))
        self.tell("lost", _places(partitions))

    def _commit(self, consumer: Any, offsets: Taken) -> None:
        if not offsets:
            return
        asked = [self.kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
        try:
            consumer.commit(offsets=asked, asynchronous=False)
        except self.kafka.KafkaException as error:
            if error.args[0].code() == self.kafka.KafkaError.FENCED_INSTANCE_ID:
                raise
            self.refused(offsets, error.args[0].name())
        else:
            self.committed(offsets)


class KafkaPythonMember(Member):
    def live(self) -> None:
        import kafka
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        known = {
            each.name: each
            for each in (
                RangePartitionAssignor,
                RoundRobinPartitionAssignor,
                StickyPartitionAssignor,
                CooperativeStickyAssignor,
            )
        }
        wanted = self.wanted
        self.kafka = kafka
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=wanted.bootstrap,
            group_id=wanted.group,
            client_id=wanted.member,
            group_instance_id=wanted.instance,
            partition_assignment_strategy=[known[name] for name in wanted.assignors],
            session_timeout_ms=wanted.session_ms,
            heartbeat_interval_ms=wanted.heartbeat_ms,
            max_poll_interval_ms=wanted.poll_ms,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            reconnect_backoff_max_ms=200,
        )
        self.consumer.subscribe(wanted.topics, listener=self._listener())
        try:
            while not self.is_done():
                self._poll()
                self.tell_reads()
                self.stall_if_told()
                if self.is_commit_due():
                    self._commit(self.take())
        finally:
            self.consumer.close()

    def _poll(self) -> None:
        # a poll that ends in the middle of the first join may leave it waiting for ever
        wait_s = POLL_S if self.owned else FIRST_POLL_S
        try:
            polled = self.consumer.poll(timeout_ms=wait_s * 1000)
        except self.kafka.errors.KafkaConnectionError:  # the broker is away
            time.sleep(POLL_S)
            return
        for partition, records in polled.items():
            for record in records:
                self.saw(tuple(partition), record.offset)

    def _asked(self, offsets: dict[Place, int]) -> dict[Any, Any]:
        return {
            self.kafka.TopicPartition(*place): self.kafka.OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }

    def _commit(self, offsets: Taken) -> None:
        try:
            self.consumer.commit(self._asked(offsets))
        except self.kafka.errors.FencedInstanceIdError:
            raise
        except self.kafka.errors.KafkaError as error:
            self.refused(offsets, type(error).__name__)
        else:
            self.committed(offsets)

    def _listener(self) -> Any:
        import kafka

        member = self

        class Listener(kafka.AsyncConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                member.tell("assigned", map(tuple, assigned))

            async def on_partitions_revoked(self, revoked: Any) -> None:
                offsets = member.take(map(tuple, revoked))
                if offsets:
                    try:
                        await member.consumer.commit_async(member._asked(offsets))
                    except kafka.errors.KafkaError as error:
                        member.refused(offsets, type(error).__name__)
                    else:
                        member.committed(offsets)
                member.tell("revoked", map(tuple, revoked))

            async def on_partitions_lost(self, lost: Any) -> None:
                member.take(map(tuple, lost))
                member.tell("lost", map(tuple, lost))

        return Listener()


class AioKafkaMember(Member):
    def live(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        import aiokafka
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        known = {
            each.name: each
            for each in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
        }
        wanted = self.wanted
        self.kafka = aiokafka
        self.lock = asyncio.Lock()
        self.is_closing = False  # a join may still end, but nothing is read any more
        self.consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=wanted.bootstrap,
            group_id=wanted.group,
            client_id=wanted.member,
            group_instance_id=wanted.instance,
            partition_assignment_strategy=[known[name] for name in wanted.assignors],
            session_timeout_ms=wanted.session_ms,
            heartbeat_interval_ms=wanted.heartbeat_ms,
            max_poll_interval_ms=wanted.poll_ms,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            request_timeout_ms=wanted.request_ms,
        )
        self.consumer.subscribe(wanted.topics, listener=self._listener())
        await self.consumer.start()
        try:
            while not self.is_done():
                await self._step()
        finally:
            self.tell("revoked", map(tuple, self.consumer.assignment()))
            self.is_closing = True
            await self.consumer.stop()

    async def _step(self) -> None:
        for partition, records in (await self.consumer.getmany(timeout_ms=int(POLL_S * 1000))).items():
            for record in records:
                self.saw(tuple(partition), record.offset)
        self.tell_reads()
        if not self.polling.is_set():
            self.tell("stalled")
            await asyncio.to_thread(self.polling.wait)
        if self.is_commit_due():
            await self._commit(None)

    async def _commit(self, places: list[Place] | None) -> None:
        async with self.lock:
            offsets = self.take(places)
            if not offsets:
                return
            asked = {self.kafka.TopicPartition(*place): offset for place, offset in offsets.items()}
            try:
                await self.consumer.commit(asked)
            except self.kafka.errors.KafkaError as error:
                self.refused(offsets, type(error).__name__)
            else:
                self.committed(offsets)

    def _listener(self) -> Any:
        import aiokafka

        member = self

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                if not member.is_closing:
                    member.tell("assigned", map(tuple, assigned))

            async def on_partitions_revoked(self, revoked: Any) -> None:
                await member._commit([tuple(each) for each in revoked])
                member.tell("revoked", map(tuple, revoked))

        return Listener()


def _places(partitions: Iterable[Any]) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]


MEMBERS: dict[str, type[Member]] = {
    "confluent": ConfluentMember,
    "aiokafka": AioKafkaMember,
    "kafka-python": KafkaPythonMember,
}


def main(client: str) -> None:
    members: dict[str, Member] = {}
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        if do == "join":
            member = members[command["member"]] = MEMBERS[client](Wanted(**command))
            threading.Thread(target=member.run, daemon=True).start()
            continue
        member = members[command["member"]]
        if do == "leave":
            member.leaving.set()
            member.polling.set()
        elif do == "stall":
            member.polling.clear()
        else:
            member.polling.set()
    # nobody listens any more: members that are still there die as in a crash
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
