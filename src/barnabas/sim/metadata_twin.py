"""One replay, two sources: what a leader publishes is held against what its log says.

The active controller publishes the images that it decided; every other node decodes the log. In a simulation
both are done at the leader: the bytes of each append are decoded and replayed a second time, and the images
must be equal at every offset that is published. A node may lead, follow and lead again: while it follows, its
images come from the log anyway, and the twin begins anew at the first image that the controller publishes.
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
    """Watches one node's part in the quorum, at any time."""

    def __init__(self, quorum: MetadataQuorum, broken: Callable[[str], None]) -> None:
        self._quorum = quorum
        self._broken = broken
        self._replayer: Replayer | None = None
        self._epoch = -1  # in which the replayer began
        self._appended: deque[tuple[int, int, bytes]] = deque()
        self.compared = 0
        quorum.driver.on_append = self._append
        quorum.metadata.subscribe(self._published)
        if quorum.controller.is_active and quorum.driver.next_offset == quorum.metadata.image.offset:
            self._begin(quorum.metadata.image)

    def _begin(self, image: ClusterImage) -> None:
        self._replayer, self._epoch = Replayer(image), self._quorum.driver.epoch
        while self._appended and self._appended[0][0] < image.offset:
            self._appended.popleft()

    def _append(self, base_offset: int, epoch: int, batches: Sequence[Buffer]) -> None:
        while self._appended and self._appended[-1][0] >= base_offset:
            self._appended.pop()  # of an earlier time in the lead: cut off since
        for batch in batches:
            self._appended.append((base_offset, epoch, bytes(batch)))
            base_offset += BatchHeader.parse(batch).last_offset_delta + 1

    def _published(self, image: ClusterImage, delta: Delta) -> None:
        if not self._quorum.controller.is_active:
            self._replayer = None
            self._appended.clear()
        elif self._replayer is None or self._epoch != self._quorum.driver.epoch:
            self._begin(image)
        else:
            self._compare(self._replayer, image)

    def _compare(self, replayer: Replayer, image: ClusterImage) -> None:
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
