"""From files to the image: the newest snapshot, and the committed batches of the log behind it, decoded.

The leader publishes what it decided; every other node, and every start, loads.
"""

from __future__ import annotations

from barnabas.broker.quorum.files import QuorumFiles, batches
from barnabas.log.partition import PartitionLog
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import decode_record
from barnabas.metadata.replay import Replayer, replay_all


async def load_metadata(log: PartitionLog, found: QuorumFiles, high_watermark: int) -> tuple[Replayer, int]:
    """Replay all that is committed; returns the replayer, and the timestamp of the last batch."""
    empty = ClusterImage(found.snapshot_id.end_offset, found.snapshot_id.epoch)
    replayer = Replayer(replay_all(empty, map(decode_record, found.snapshot.values)))
    last_ms = 0
    async for header, records in batches(log, empty.offset, high_watermark):
        last_ms = header.max_timestamp
        # a control batch has no records, and the image stands behind it
        base_offset = header.last_offset + 1 if header.is_control else header.base_offset
        replayer.load(base_offset, header.leader_epoch, records)
    replayer.finish()
    return replayer, last_ms
