"""How far a query is behind, from its progress."""

from __future__ import annotations

from typing import Any

from barnabas.client.metadata import TopicPartition
from barnabas.spark import lag


def progress(end: Any, latest: Any) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest}]}


def test_lag_is_what_is_left_of_each_partition() -> None:
    found = lag(progress('{"t": {"0": 5, "1": 9}}', '{"t": {"0": 8, "1": 9, "2": 3}}'))
    expected = {TopicPartition("t", 0): 3, TopicPartition("t", 1): 0, TopicPartition("t", 2): 3}
    assert found.partitions == expected
    assert found.total == 6
    assert found.metrics() == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "3",
        "avgOffsetsBehindLatest": "2.0",
    }


def test_nothing_is_known_yet() -> None:
    for reported in (None, progress(None, None), progress("{}", None)):
        assert lag(reported).total == 0
        assert lag(reported).metrics() == {}
