"""The coordinator of transactions behind its requests: killed between any two, and where disks fail."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from barnabas.coordination.effects import Effects, Write
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.testing import Broker
from barnabas.transactions.states import ONGOING
from barnabas.transactions.transaction import LAST_EPOCH, Transaction, record_of
from tests.interop.transaction_play import NOBODY, TOPIC, Play
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import create_topic
from tests.transactions.bench import T0

MINUTE_MS = 60_000
NAME = "tx"


@pytest.fixture
def broker(make_broker: Callable[..., Broker]) -> Broker:
    broker = make_broker(settings={"transaction.state.log.num.partitions": "3"})
    with playing(broker) as (client, _):
        create_topic(client, TOPIC, 2)
        find = FindCoordinatorRequest(key=NAME, key_type=1, coordinator_keys=[])
        assert client.ask(find, 3, FindCoordinatorResponse).error_code == 0
    return broker


@contextmanager
def playing(broker: Broker) -> Iterator[tuple[RawClient, Play]]:
    with RawClient(broker.port) as client:
        yield client, Play(client)


def told(play: Play) -> str:
    """The error of the last request."""
    return play.notes[-1].partition(": ")[2].split(" ")[0]


def shown(broker: Broker, name: str = NAME) -> str:
    with playing(broker) as (_, play):
        return play.describe(name)


def reborn(broker: Broker) -> None:
    broker.kill()
    broker.start()


def test_killed_between_any_two_requests_it_knows_what_it_knew(broker: Broker) -> None:
    producer = NOBODY

    def init(play: Play) -> None:
        nonlocal producer
        producer = play.init(NAME)

    def end(play: Play, version: int, commit: bool) -> None:
        nonlocal producer
        after = play.end(NAME, producer, version=version, commit=commit)
        producer = after if version == 5 else producer

    steps: list[Callable[[Play], None]] = [
        init,
        lambda play: play.add(NAME, producer),
        lambda play: play.add(NAME, producer, [(TOPIC, 1)], version=0),
        lambda play: play.add_offsets(NAME, producer),
        lambda play: end(play, 1, True),
        lambda play: play.add(NAME, producer),
        lambda play: end(play, 5, False),
        lambda play: end(play, 5, False),
        init,
    ]
    seen = []
    for step in steps:
        with playing(broker) as (_, play):
            step(play)
            assert not any("INVALID" in note or "FENCED" in note for note in play.notes)
        seen.append(shown(broker))
        reborn(broker)
        assert shown(broker) == seen[-1]
    assert len(set(seen)) == len(steps) - 1  # the second transaction begins as the first did


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_before_it_was_killed_is_carried_out(broker: Broker, commit: bool) -> None:
    with playing(broker) as (_, play):
        producer = play.init(NAME)
        play.add(NAME, producer)
        assert broker._memory is not None
        broker._memory.fail("append", errno.ENOSPC, path_glob=f"*{TOPIC}-0*")  # no marker gets there
        end = "PrepareCommit" if commit else "PrepareAbort"
        with pytest.raises(AssertionError, match="the markers"):
            play.end(NAME, producer, commit=commit, patience_s=0.3)
        assert end in play.describe(NAME)
        play.add(NAME, (producer[0], 1))
        assert "CONCURRENT_TRANSACTIONS" in play.notes[-1]
    broker.kill()
    broker._memory.heal()
    broker.start()
    with playing(broker) as (_, play):
        play.until(NAME, end.replace("Prepare", "Complete"))


def test_an_open_transaction_times_out_though_its_broker_was_killed(broker: Broker) -> None:
    with playing(broker) as (_, play):
        play.add(NAME, play.init(NAME, timeout_ms=300))
    reborn(broker)
    with playing(broker) as (_, play):
        play.until(NAME, "CompleteAbort")


def test_while_no_ids_can_be_had_producers_try_again(broker: Broker) -> None:
    assert broker._memory is not None
    with playing(broker) as (_, play):
        broker._memory.fail("append", errno.ENOSPC, path_glob="*__cluster_metadata*", times=1)
        assert play.init(NAME) == NOBODY
        assert told(play) == "COORDINATOR_LOAD_IN_PROGRESS"
        assert "TRANSACTIONAL_ID_NOT_FOUND" in play.describe(NAME)
        assert play.init(NAME) != NOBODY


def test_a_change_that_could_not_be_written_has_not_happened(broker: Broker) -> None:
    assert broker._memory is not None
    with playing(broker) as (_, play):
        producer = play.init(NAME)
        before = play.describe(NAME)
        broker._memory.fail("append", errno.ENOSPC, path_glob=f"*{TRANSACTION_STATE}*", times=1)
        play.add(NAME, producer)
        assert "COORDINATOR_NOT_AVAILABLE" in play.notes[-1]
        assert play.describe(NAME) == before
        play.add(NAME, producer)
        play.end(NAME, producer)
        assert "CompleteCommit" in play.notes[-1]


def test_epochs_that_are_used_up_bring_a_new_id(broker: Broker) -> None:
    last = (7, LAST_EPOCH - 1)
    ongoing = Transaction(
        *last, MINUTE_MS, ONGOING, {T0._replace(topic=TOPIC): None}, 1, 1, 7, client_version=2
    )

    async def put() -> None:
        transactions = broker.node.services.transactions  # type: ignore[union-attr]
        host = await transactions.host(transactions.partition_of(NAME))
        await host.tell(lambda shard, now: Effects([Write([record_of(NAME, ongoing, 2)])]))

    broker.run(put())
    with playing(broker) as (_, play):
        after = play.end(NAME, last)
        assert (after[0] != 7, after[1]) == (True, 0)
        assert play.end(NAME, last) == after
        play.add(NAME, after)
        assert "NONE" in play.notes[-1]


def test_ids_of_all_partitions_are_listed(broker: Broker) -> None:
    names = [f"tx-{number}" for number in range(8)]
    with playing(broker) as (_, play):
        for name in names:
            play.init(name)
        play.list()
        assert all(f"'{name}'" in play.notes[-1] for name in names)
    reborn(broker)
    with playing(broker) as (_, play):
        play.list(pattern="tx-[3-5]")
        assert [name for name in names if f"'{name}'" in play.notes[-1]] == names[3:6]


def test_a_group_whose_coordinator_nobody_has_looked_for(broker: Broker) -> None:
    with playing(broker) as (_, play):
        producer = play.init(NAME)
        play.add_offsets(NAME, producer)
        assert told(play) == "NONE"
        assert CONSUMER_OFFSETS in play.describe(NAME)
