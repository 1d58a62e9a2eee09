"""One replay, two sources: what a leader publishes is held against what its log says.

The leader publishes the images that it decided; every other node decodes the log. In a simulation both are
done at the leader: the bytes of each append are decoded and replayed a second time, and the images must be
equal at every offset that is published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.core.disk import Buffer
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import decode_record
from barnabas.metadata.replay import Replayer
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import read_batch


class MetadataTwin:
    """Watches one node's quorum from the first moment at which nothing is pending."""

    def __init__(self, quorum: MetadataQuorum, broken: Callable[[str], None]) -> None:
        self._quorum = quorum
        self._broken = broken
        self._replayer: Replayer | None = None
        self._appended: deque[tuple[int, int, bytes]] = deque()
        self.compared = 0
        quorum.driver.on_append = self._append
        quorum.metadata.subscribe(self._published)
        self._begin(quorum.metadata.image)

    def _begin(self, image: ClusterImage) -> None:
        if self._quorum.driver.next_offset == image.offset:
            self._replayer = Replayer(image)

    def _append(self, base_offset: int, epoch: int, batches: Sequence[Buffer]) -> None:
        if self._replayer is not None:
            for batch in batches:
                self._appended.append((base_offset, epoch, bytes(batch)))
                base_offset += BatchHeader.parse(batch).last_offset_delta + 1

    def _published(self, image: ClusterImage, delta: Delta) -> None:
        if self._replayer is None:
            self._begin(image)
            return
        replayer = self._replayer
        while self._appended and self._appended[0][0] < image.offset:
            base_offset, epoch, batch = self._appended.popleft()
            header = BatchHeader.parse(batch)
            if header.is_control:
                replayer.skip(base_offset + header.last_offset_delta + 1, epoch)
            else:
                replayer.replay(
                    base_offset, epoch, [decode_record(each.value or b"") for each in read_batch(batch)]
                )
        self.compared += 1
        if replayer.image != image:
            self._broken(f"the metadata published at offset {image.offset} is not what the log says")
