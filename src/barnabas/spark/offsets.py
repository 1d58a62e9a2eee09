"""The offsets in a stream's checkpoint: `{"topic": {"0": 23}}`, the next record to be read. Pure.

The format and the order are those of Spark's own connector: a checkpoint can be moved from one to the other.
Spark compares offsets as text, so the same offsets are always written in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.client.metadata import TopicPartition

Offsets = Mapping[TopicPartition, int]
Written = dict[str, dict[str, int]]


class BadCheckpoint(ValueError):
    """The checkpoint has something else than offsets of topics."""


def write_offsets(offsets: Offsets) -> Written:
    """The offsets for the checkpoint."""
    written: Written = {}
    for topic, partition in sorted(offsets):
        written.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return written


def read_offsets(written: Any) -> dict[TopicPartition, int]:
    """The offsets from the checkpoint."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in written.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise BadCheckpoint(
            f'the checkpoint has {written!r} where offsets such as {{"topic": {{"0": 23}}}} belong; '
            "is it that of another source?"
        ) from None
