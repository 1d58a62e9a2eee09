"""The admin's transactions, against real brokers: what is open, what hangs, and how it ends."""

from __future__ import annotations

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.errors import BrokerError, UnknownTransactionalId
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import LATEST
from barnabas.core.clock import SystemClock
from tests.client.coordinated import Writer, begin, commit, hang
from tests.client.real import Clients
from tests.client.test_admin import administer, becomes, make, name_of

HOUR_MS = 3_600_000


def test_an_open_transaction_is_listed_and_described(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("at-open", 3, 1))
        writer = await begin(admin, "at-open", "at-open", [2, 0])

        async def listed(**filters: object) -> list[str]:
            found = await admin.list_transactions(**filters)  # type: ignore[arg-type]
            return [each.transactional_id for each in found if each.transactional_id.startswith("at-open")]

        assert await listed() == ["at-open"]
        assert await listed(states=["Ongoing"], producer_ids=[writer.producer_id]) == ["at-open"]
        assert await listed(states=["CompleteCommit"]) == []
        assert await listed(producer_ids=[writer.producer_id + 10**6]) == []
        assert await listed(older_than_ms=HOUR_MS) == []
        assert await listed(pattern="at-o.*") == ["at-open"]
        assert await listed(pattern="t-open") == []
        found = (await admin.describe_transactions(["at-open"]))["at-open"]
        assert (found.state, found.timeout_ms, found.coordinator) == ("Ongoing", 60_000, 1)
        assert (found.producer_id, found.producer_epoch) == writer
        assert found.partitions == [("at-open", 0), ("at-open", 2)]
        assert abs(SystemClock().wall_ms() - (found.start_time_ms or 0)) < HOUR_MS
        with pytest.raises(UnknownTransactionalId):
            await admin.describe_transactions(["at-open", "at-nothing"])
        await commit(admin, "at-open", writer)

        async def ended() -> tuple[str, int | None]:
            found = (await admin.describe_transactions(["at-open"]))["at-open"]
            return found.state, found.start_time_ms

        await becomes(("CompleteCommit", None), ended)

    administer(bootstrap, work)


def test_a_transaction_that_no_coordinator_knows_hangs_until_it_is_aborted(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("at-hang", 2, 1))
        at = TopicPartition("at-hang", 1)
        known = await begin(admin, "at-known", "at-hang", [0, 1])
        lost = Writer(known.producer_id + 10**9, 3)
        start = await hang(admin, lost, *at, SystemClock().wall_ms() - HOUR_MS)
        partitions = [("at-hang", 0), at]
        found = await admin.find_hanging_transactions(partitions, HOUR_MS // 2)
        ((partition, producer),) = found
        assert (partition, producer.transaction_start_offset) == (at, start)
        assert (producer.producer_id, producer.producer_epoch, producer.coordinator_epoch) == (*lost, None)
        assert await admin.find_hanging_transactions(partitions, 2 * HOUR_MS) == []
        assert await admin.find_hanging_transactions(partitions, HOUR_MS // 2, node_id=1) == found
        with pytest.raises(BrokerError) as caught:
            await admin.abort_transaction(at, lost.producer_id, lost.producer_epoch - 1, None)
        assert name_of(caught) == "INVALID_PRODUCER_EPOCH"
        await admin.abort_transaction(at, *lost, producer.coordinator_epoch)
        assert await admin.find_hanging_transactions(partitions, HOUR_MS // 2) == []

    administer(bootstrap, work)


def test_to_fence_a_producer_ends_what_it_has_open(bootstrap: str) -> None:
    async def work(admin: Admin, _: Clients) -> None:
        await make(admin, NewTopic("at-fence", 1, 1))
        writer = await begin(admin, "at-fence", "at-fence", [0])
        committed = await admin.list_offsets({("at-fence", 0): LATEST}, read_committed=True)
        assert committed[TopicPartition("at-fence", 0)].offset == 0
        fenced = (await admin.fence_producers(["at-fence"]))["at-fence"]
        assert fenced.producer_id == writer.producer_id
        assert fenced.producer_epoch > writer.producer_epoch

        async def end() -> int:
            found = await admin.list_offsets({("at-fence", 0): LATEST}, read_committed=True)
            return found[TopicPartition("at-fence", 0)].offset

        await becomes(2, end)  # the record, and the marker
        assert (await admin.describe_transactions(["at-fence"]))["at-fence"].partitions == []

    administer(bootstrap, work)
