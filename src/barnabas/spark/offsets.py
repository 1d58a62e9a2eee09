"""Offsets as a stream's checkpoint has them: `{"topic": {"0": 23}}`, the next record to be read. Pure.

It is what Spark's own connector writes, in the same order: a checkpoint can go from one to the other. Spark
compares offsets as text, so the same offsets are always written the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.client.metadata import TopicPartition

Offsets = Mapping[TopicPartition, int]
Written = dict[str, dict[str, int]]


class BadCheckpoint(ValueError):
    """The checkpoint holds something else than offsets of topics."""


def write_offsets(offsets: Offsets) -> Written:
    """For the checkpoint."""
    written: Written = {}
    for topic, partition in sorted(offsets):
        written.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return written


def read_offsets(written: Any) -> dict[TopicPartition, int]:
    """From the checkpoint."""
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
