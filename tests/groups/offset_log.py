"""A shard with its log, as a host would run it: what is written is replayed, kept, and can be compacted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.coordination.effects import Caller, Effects, Now, Producer, Reply, TopicPartition
from barnabas.coordination.records import KeyedRecord, decode_record, encode_key, encode_value
from barnabas.core.random import SeededRandom
from barnabas.groups.offsets import OffsetStore, unpack
from barnabas.groups.records import KINDS
from barnabas.groups.settings import GroupSettings
from barnabas.groups.shard import GroupShard

RETENTION_MS = 60_000
CHECK_MS = 10_000
SETTINGS = GroupSettings(offsets_retention_ms=RETENTION_MS, offsets_check_interval_ms=CHECK_MS)


class Entry(NamedTuple):
    """A record of the log, or (without a key) a marker."""

    key: bytes | None
    value: bytes | None
    producer: Producer | None
    is_commit: bool = False


class Shards:
    """A live shard, its log, and others that have only read the log."""

    def __init__(self) -> None:
        self.now = Now(1_800_000_000_000, 1000.0)
        self.log: list[Entry] = []
        self.shard = self._new()
        self._carry_out(self.shard.loaded(self.now))

    def _new(self) -> GroupShard:
        return GroupShard(lambda: SETTINGS, SeededRandom(1))

    # ---- what happens

    def ask(self, command: Callable[[GroupShard, Now, Reply], Effects]) -> Any:
        """The answer to a command that is answered at once."""
        reply = object()
        effects = command(self.shard, self.now, reply)
        self._carry_out(effects)
        (answer,) = [response for to, response in effects.replies if to is reply]
        return answer

    def tell(self, event: Callable[[GroupShard, Now], Effects]) -> None:
        self._carry_out(event(self.shard, self.now))

    def pass_ms(self, ms: int) -> None:
        """Time goes by, and with it whatever is due."""
        end = Now(self.now.wall_ms + ms, self.now.seconds + ms / 1000)
        while (due := self.shard.next_due_seconds()) is not None and due <= end.seconds:
            at_seconds = max(due, self.now.seconds)
            wall_ms = self.now.wall_ms + round((at_seconds - self.now.seconds) * 1000)
            self.now = Now(wall_ms, at_seconds)
            self.tell(lambda shard, now: shard.tick(now))
        self.now = end

    def end(self, producer: Producer, *, is_commit: bool) -> None:
        self.log.append(Entry(None, None, producer, is_commit))
        self.shard.replay_end(producer, is_commit)

    def _carry_out(self, effects: Effects) -> None:
        for write in effects.writes:
            for record in write.records:
                self.log.append(Entry(encode_key(record.key), encode_value(record), write.producer))
                self.shard.replay(record, write.producer)

    # ---- what others find

    def replayed(self, log: list[Entry] | None = None) -> GroupShard:
        """A shard that has read a log: this one's, unless another is given."""
        shard = self._new()
        for entry in self.log if log is None else log:
            if entry.key is None:
                assert entry.producer is not None
                shard.replay_end(entry.producer, entry.is_commit)
            else:
                shard.replay(decode_record(KINDS, entry.key, entry.value), entry.producer)
        return shard

    def compacted(self, *, keep_tombstones: bool) -> list[Entry]:
        """The log as a cleaner leaves it, who stops where the first open transaction begins."""
        outcomes, end = _outcomes(self.log)
        last: dict[bytes, int] = {}
        for at, entry in enumerate(self.log[:end]):
            if entry.key is not None and outcomes.get(at, True):
                last[entry.key] = at
        kept = [
            entry
            for at, entry in enumerate(self.log[:end])
            if entry.key is None
            or (last.get(entry.key) == at and (keep_tombstones or entry.value is not None))
        ]
        return kept + self.log[end:]


def _outcomes(log: list[Entry]) -> tuple[dict[int, bool], int]:
    """Which transactional records are committed, and where the first open transaction begins."""
    outcomes: dict[int, bool] = {}
    open_: dict[int, list[int]] = {}
    for at, entry in enumerate(log):
        if entry.producer is None:
            continue
        if entry.key is None:
            for place in open_.pop(entry.producer.id, []):
                outcomes[place] = entry.is_commit
        else:
            open_.setdefault(entry.producer.id, []).append(at)
    return outcomes, min((places[0] for places in open_.values()), default=len(log))


def contents(store: OffsetStore) -> dict[str, Any]:
    """All that a store holds, places in its order but for their distances."""
    found: dict[str, Any] = {}
    for group_id, group in store.by_group.items():
        committed = {
            TopicPartition(topic, partition): unpack(packed)
            for topic, offsets in group.by_topic.items()
            for partition, packed in offsets.by_partition.items()
        }
        pending = {
            at: [
                (producer_id, None if one.packed is None else unpack(one.packed))
                for producer_id, one in sorted(waiting.items(), key=lambda item: item[1].order)
            ]
            for at, waiting in group.pending.items()
        }
        found[group_id] = (committed, pending)
    return found


CALLER = Caller(9, "test", "/127.0.0.1")


def records_of(shards: Shards) -> list[KeyedRecord]:
    """The log's records, decoded."""
    return [decode_record(KINDS, e.key, e.value) for e in shards.log if e.key is not None]
