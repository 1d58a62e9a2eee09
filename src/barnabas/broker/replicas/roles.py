"""The role of a replica on this node: it leads its partition, follows another leader, or is offline.

The metadata image chooses between leading and following (`role_of`). A replica goes offline when its log
directory fails, its topic is deleted, or this node is no longer among the partition's replicas.

    from        to
    Leading     Leading (later epoch, other ISR or settings), Following, Offline
    Following   Leading, Following (later epoch), Offline
    Offline     nothing: a replica that comes back is opened anew

Neither the leader epoch goes back nor, within one leader epoch, the partition epoch.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.errors import BarnabasError, InvariantViolation, wire_error
from barnabas.metadata.parts import RECOVERING, PartitionImage


class NotLeaderOrFollower(BarnabasError):
    """This node does not lead the partition."""

    wire = wire_error("NOT_LEADER_OR_FOLLOWER")


class Leading(NamedTuple):
    """This node takes appends and moves the high watermark."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    followers: tuple[int, ...]  # the replicas without this node
    min_in_sync: int  # min.insync.replicas, at most the number of replicas
    is_recovering: bool = False  # elected uncleanly, and not yet marked as recovered

    @property
    def is_under_min(self) -> bool:
        """Whether the ISR is smaller than min.insync.replicas."""
        return len(self.isr) < self.min_in_sync


class Following(NamedTuple):
    """Another node leads; `leader` is NO_LEADER where no node does."""

    leader: int
    leader_epoch: int


class Offline(NamedTuple):
    """Nothing is read or written here; requests get `reason`."""

    reason: BarnabasError


Role = Leading | Following | Offline

LEGAL: dict[type[Role], tuple[type[Role], ...]] = {
    Leading: (Leading, Following, Offline),
    Following: (Leading, Following, Offline),
    Offline: (),
}


def role_of(image: PartitionImage, node_id: int, min_in_sync: int) -> Leading | Following | None:
    """The role that the metadata gives a node in a partition; None where it has no replica of it."""
    if image.leader == node_id:
        return Leading(
            image.leader_epoch,
            image.partition_epoch,
            image.isr,
            tuple(each for each in image.replicas if each != node_id),
            # with fewer replicas, the topic's setting could never be met
            min(min_in_sync, len(image.replicas)),
            image.leader_recovery_state == RECOVERING,
        )
    if node_id in image.replicas:
        return Following(image.leader, image.leader_epoch)
    return None


def require_legal(before: Role, after: Role, name: str) -> None:
    """Raise for a change of role that the table does not list, or that goes back to an earlier epoch."""
    if type(after) not in LEGAL[type(before)]:
        raise InvariantViolation(f"the replica of {name} cannot go from {before} to {after}")
    if isinstance(before, Offline) or isinstance(after, Offline):
        return
    if after.leader_epoch < before.leader_epoch:
        raise InvariantViolation(f"the leader epoch of {name} goes back from {before} to {after}")
    if (
        isinstance(before, Leading)
        and isinstance(after, Leading)
        and after.leader_epoch == before.leader_epoch
        and after.partition_epoch < before.partition_epoch
    ):
        raise InvariantViolation(f"the partition epoch of {name} goes back from {before} to {after}")
