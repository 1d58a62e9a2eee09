"""Images made of records, and compared by their contents."""

from __future__ import annotations

from barnabas.metadata.image import ClusterImage
from barnabas.metadata.replay import Replayer, replay_all
from barnabas.metadata.snapshot_records import snapshot_records
from barnabas.protocol.schema import Message


def image_of(*records: Message) -> ClusterImage:
    """The image that a log of these records, one batch each, comes to; it stands at offset 0."""
    replayer = Replayer(ClusterImage())
    for offset, record in enumerate(records):
        replayer.replay(offset, 0, [record])
    return contents(replayer.image)


def replayed(image: ClusterImage, *records: Message) -> ClusterImage:
    """The image after further records; its offset stays."""
    return replay_all(image, records)


def contents(image: ClusterImage) -> ClusterImage:
    """The same image, as if it stood at offset 0."""
    return image._replace(offset=0, epoch=0)


def to_records(image: ClusterImage) -> list[Message]:
    """The records of a snapshot."""
    return list(snapshot_records(image))
