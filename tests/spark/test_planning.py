"""What a read comes down to, asked of a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.errors import UnknownTopic
from barnabas.client.producer import Producer
from barnabas.spark.driving import seams
from barnabas.spark.lost import DataLost
from barnabas.spark.option_values import OptionError
from barnabas.spark.options import parse_options
from barnabas.spark.planning import plan
from barnabas.testing import Broker
from tests.support.targets import NO_RETENTION

TIME_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def filled() -> Iterator[Broker]:
    """`plans` has 10 records in partition 0 and 20 in partition 1, a second apart; `plans-empty` has none."""
    with Broker(settings=NO_RETENTION) as broker:
        asyncio.run(fill(broker.bootstrap))
        yield broker


async def fill(bootstrap: str) -> None:
    async with Admin(*seams(), bootstrap) as admin:
        await admin.create_topics([NewTopic("plans", 2, 1), NewTopic("plans-empty", 1, 1)])
    async with Producer(*seams(), bootstrap) as producer:
        for n in range(10):
            await producer.send("plans", b"%d" % n, partition=0, timestamp_ms=TIME_MS + 1000 * n)
        for n in range(20):
            await producer.send("plans", b"%d" % n, partition=1, timestamp_ms=TIME_MS + 1000 * n)


def planned(broker: Broker, **given: str) -> list[tuple[str, int, int, int]]:
    if not {"subscribePattern", "assign"} & given.keys():
        given.setdefault("subscribe", "plans")
    options = parse_options({"kafka.bootstrap.servers": broker.bootstrap, **given})

    async def ask() -> list[tuple[str, int, int, int]]:
        async with Admin(*seams(), broker.bootstrap, options.consumer.client) as admin:
            return [tuple(each) for each in await plan(admin, options)]  # type: ignore[misc]

    return asyncio.run(ask())


WHOLE = [("plans", 0, 0, 10), ("plans", 1, 0, 20)]


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        ({}, WHOLE),
        ({"subscribe": "plans-empty,plans"}, WHOLE),
        ({"subscribe": "plans-empty"}, []),
        ({"subscribePattern": "plan.*"}, WHOLE),
        ({"assign": '{"plans": [1]}'}, WHOLE[1:]),
        ({"startingOffsets": '{"plans": {"0": 4, "1": -2}}'}, [("plans", 0, 4, 10), WHOLE[1]]),
        ({"endingOffsets": '{"plans": {"0": 4, "1": -1}}'}, [("plans", 0, 0, 4), WHOLE[1]]),
        ({"startingTimestamp": str(TIME_MS + 8500)}, [("plans", 0, 9, 10), ("plans", 1, 9, 20)]),
        ({"endingTimestamp": str(TIME_MS + 14_000)}, [WHOLE[0], ("plans", 1, 0, 14)]),
        (
            {"startingTimestamp": str(TIME_MS + 15_000), "startingOffsetsByTimestampStrategy": "latest"},
            [("plans", 1, 15, 20)],
        ),
        (
            {"startingOffsetsByTimestamp": f'{{"plans": {{"0": 0, "1": {TIME_MS + 19_000}}}}}'},
            [WHOLE[0], ("plans", 1, 19, 20)],
        ),
        ({"minPartitions": "3"}, [WHOLE[0], ("plans", 1, 0, 10), ("plans", 1, 10, 20)]),
        (
            {"assign": '{"plans": [0]}', "maxRecordsPerPartition": "4"},
            [("plans", 0, 0, 3), ("plans", 0, 3, 6), ("plans", 0, 6, 10)],
        ),
        (
            {"endingOffsets": '{"plans": {"0": 99, "1": 1}}', "failOnDataLoss": "false"},
            [WHOLE[0], ("plans", 1, 0, 1)],
        ),
        (
            {"startingOffsets": '{"plans": {"0": 11, "1": 1}}', "failOnDataLoss": "false"},
            [("plans", 1, 1, 20)],
        ),
    ],
)
def test_plans(
    filled: Broker,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    ranges: list[tuple[str, int, int, int]],
) -> None:
    assert planned(filled, **options) == ranges
    assert ("plans-0 has offsets 0 to 10, and" in caplog.text) == ("failOnDataLoss" in options)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"subscribe": "nowhere"}, UnknownTopic, "'nowhere'.*check the spelling"),
        ({"subscribePattern": "now.*"}, OptionError, "'now.*' matches no topic"),
        ({"assign": '{"plans": [2]}'}, OptionError, "plans has no partition 2, it has 2"),
        ({"startingOffsets": '{"plans": {"0": 1}}'}, OptionError, "plans-1 are not named"),
        (
            {"startingOffsets": '{"plans": {"0": 1, "1": 1, "2": 1}}'},
            OptionError,
            "plans-2 are named and not",
        ),
        ({"startingOffsets": '{"plans": {"0": 11, "1": 1}}'}, OptionError, "from 11 to 10: it ends before"),
        (
            {"endingOffsets": '{"plans": {"0": 11, "1": 1}}'},
            DataLost,
            "offsets 0 to 10, and 0 to 11 were asked",
        ),
        ({"startingTimestamp": str(TIME_MS + 15_000)}, OptionError, "plans-0 has no record as young"),
    ],
)
def test_plans_that_cannot_be(
    filled: Broker, options: dict[str, str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        planned(filled, **options)


@pytest.mark.parametrize("end", ["endingTimestamp", "startingTimestamp"])
def test_what_is_written_while_it_is_planned_is_not_read(
    filled: Broker, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    list_offsets = Admin.list_offsets

    async def a_little_later(admin: Admin, wanted: Any, **how: Any) -> Any:
        found = await list_offsets(admin, wanted, **how)
        if TIME_MS in wanted.values():  # three records came since the ends were asked for
            return {each: offset._replace(offset=23) for each, offset in found.items()}
        return found

    monkeypatch.setattr(Admin, "list_offsets", a_little_later)
    expected = {"endingTimestamp": WHOLE, "startingTimestamp": []}
    assert planned(filled, **{end: str(TIME_MS)}) == expected[end]
