"""Random producers, old and new, that crash, repeat themselves and are late, on a coordinator that dies.

After every step: what is live equals what a replay of the log gives, whole or compacted; an epoch never goes
back; no two instances are told the same one; and once everything is quiet, nothing is left half done.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.transactions.states import AT_REST, COMPLETE_ABORT, ONGOING, PREPARED
from barnabas.transactions.transaction import LAST_EPOCH, Transaction
from tests.transactions.bench import NEW, NOBODY, OLD, Bench, compact

NAMES = st.sampled_from(("a", "b"))
VERSIONS = st.sampled_from((OLD, NEW))
PLACES = st.lists(
    st.builds(TopicPartition, st.sampled_from(("t", "u")), st.integers(0, 2)), min_size=1, max_size=3
)


class Coordinating(RuleBasedStateMachine):
    """Two names, each used by any number of instances; `told` is what each producer believes to be."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, list[Producer]] = {"a": [], "b": []}
        self.highest: dict[tuple[str, int], int] = {}
        self.ids: dict[str, list[int]] = {"a": [], "b": []}
        self.ends: list[tuple[str, Producer, bool, int]] = []

    @initialize(level=st.sampled_from((0, 1, 2, 2)), epoch=st.sampled_from((None, LAST_EPOCH - 3)))
    def begin(self, level: int, epoch: int | None) -> None:
        self.bench = Bench(level, id_expiration_ms=600_000, expiration_check_interval_ms=60_000)
        if epoch is not None:
            now = self.bench.now.wall_ms
            old = Transaction(7, epoch, 60_000, COMPLETE_ABORT, {}, now, now, 7 if level else -1)
            self.bench.put("a", old)
            self.told["a"].append(Producer(7, epoch))

    def hold(self, name: str, producer: Producer) -> None:
        assert 0 <= producer.epoch < LAST_EPOCH
        if producer not in self.told[name]:
            self.told[name].append(producer)

    def one_of(self, name: str, data: st.DataObject) -> Producer:
        known = self.told[name][-3:] or [Producer(7, 0)]
        return data.draw(st.sampled_from(known[::-1]))

    @rule(name=NAMES)
    def start_an_instance(self, name: str) -> None:
        error, producer = self.bench.init(name)
        if error == "NONE":
            assert producer not in self.told[name]  # it is nobody else's
            self.hold(name, producer)
        else:
            assert error == "CONCURRENT_TRANSACTIONS"

    @rule(name=NAMES, data=st.data())
    def go_on_after_an_error(self, name: str, data: st.DataObject) -> None:
        before = self.one_of(name, data)
        error, producer = self.bench.init(name, before)
        if error == "NONE":
            self.hold(name, producer)
        else:
            assert error in ("CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED")

    @rule(name=NAMES, places=PLACES, version=VERSIONS, data=st.data())
    def add(self, name: str, places: list[TopicPartition], version: int, data: st.DataObject) -> None:
        producer = self.one_of(name, data)
        error = self.bench.add(producer, *places, name=name, version=version)
        if error == "NONE":
            assert self.bench.shard.transactions[name].producer == producer
            assert self.bench.verify(producer, *places, name=name) == dict.fromkeys(places, "NONE")

    @rule(name=NAMES, commit=st.booleans(), version=VERSIONS, data=st.data())
    def end(self, name: str, commit: bool, version: int, data: st.DataObject) -> None:
        self.send_end(name, self.one_of(name, data), commit, version)

    @rule(data=st.data())
    def end_once_more(self, data: st.DataObject) -> None:
        """A request that was sent before comes again, however late."""
        if self.ends:
            self.send_end(*data.draw(st.sampled_from(self.ends[-5:])))

    def send_end(self, name: str, producer: Producer, commit: bool, version: int) -> None:
        before = self.bench.shard.transactions.get(name)
        error, after = self.bench.end(producer, commit=commit, name=name, version=version)
        if error != "NONE":
            return
        assert before is not None
        if before.state == ONGOING:
            assert before.producer == producer  # nobody ends another's transaction
            self.ends.append((name, producer, commit, version))
        if after != NOBODY:
            self.hold(name, after)

    @rule()
    def write_markers(self) -> None:
        self.bench.mark()

    @rule(data=st.data())
    def write_one_marker_twice(self, data: st.DataObject) -> None:
        if self.bench.sent:
            markers = data.draw(st.sampled_from(self.bench.sent))
            for _ in range(2):
                self.bench.carry_out(self.bench.shard.markers_written(markers, self.bench.now))

    @rule(ms=st.sampled_from((1, 1000, 59_999, 61_000, 700_000)))
    def let_time_pass(self, ms: int) -> None:
        self.bench.advance(ms)

    @rule(compacted=st.booleans())
    def crash(self, compacted: bool) -> None:
        self.bench.reload(compacted=compacted)

    @rule(level=st.sampled_from((1, 2)))
    def change_the_level(self, level: int) -> None:
        self.bench.settings = self.bench.settings._replace(transaction_version=level)

    @invariant()
    def live_is_what_the_log_says(self) -> None:
        if not hasattr(self, "bench"):
            return
        live = self.bench.shard.transactions
        assert self.bench.replayed(self.bench.log).transactions == live
        assert self.bench.replayed(compact(self.bench.log)).transactions == live

    @invariant()
    def epochs_never_go_back(self) -> None:
        if not hasattr(self, "bench"):
            return
        for name, transaction in self.bench.shard.transactions.items():
            key = (name, transaction.producer_id)
            assert transaction.epoch >= self.highest.get(key, 0)
            self.highest[key] = transaction.epoch
            if transaction.producer_id not in self.ids[name]:
                self.ids[name].append(transaction.producer_id)
            assert transaction.producer_id == self.ids[name][-1]  # nor does an id come back

    @invariant()
    def nothing_prepared_is_forgotten(self) -> None:
        if not hasattr(self, "bench"):
            return
        sent = {(one.transactional_id, one.producer) for one in self.bench.sent}
        for name, transaction in self.bench.shard.transactions.items():
            if transaction.state in PREPARED:
                assert transaction.partitions
                assert (name, transaction.producer) in sent

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.mark()
        self.bench.advance(200_000)
        self.bench.mark()
        assert all(one.state in AT_REST for one in self.bench.shard.transactions.values())


Coordinating.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestCoordinating = Coordinating.TestCase
