"""Offsets go into the checkpoint and come back, written in one way only."""

from __future__ import annotations

import json

import pytest

from barnabas.client.metadata import TopicPartition
from barnabas.spark.offsets import BadCheckpoint, read_offsets, write_offsets

OFFSETS = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 2, TopicPartition("a", 9): 1}


def test_as_sparks_own_connector_writes_them() -> None:
    assert json.dumps(write_offsets(OFFSETS)) == '{"a": {"9": 1, "10": 2}, "b": {"0": 3}}'
    assert read_offsets(json.loads('{"b":{"0":3},"a":{"10":2,"9":1}}')) == OFFSETS
    assert write_offsets({}) == {} == read_offsets({})


@pytest.mark.parametrize("written", [None, 3, [], {"a": 3}, {"a": {"x": 3}}, {"a": {"0": None}}])
def test_what_is_no_offset_is_refused(written: object) -> None:
    with pytest.raises(BadCheckpoint, match="is it that of another source"):
        read_offsets(written)
