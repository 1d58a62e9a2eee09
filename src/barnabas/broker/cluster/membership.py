"""This broker's place in the cluster: registered under an epoch, unfenced, and let go when it stops.

Only a registered broker that is not fenced leads partitions. The epoch is the offset of its registration in
the metadata log, so a later incarnation always has a larger one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from barnabas.broker.cluster.controller_channel import ControllerChannel
from barnabas.controller.bootstrap import SUPPORTED_FEATURES
from barnabas.core.errors import WIRE_ERRORS, BarnabasError, wire_error
from barnabas.core.settings.listeners import PROTOCOLS, Listener
from barnabas.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from barnabas.protocol.messages.broker_registration import Listener as RegisteredListener

# asked so often at most: a controlled shutdown of the only broker takes two
_MAX_SHUTDOWN_ROUNDS = 10


class RegistrationRefused(BarnabasError):
    """The controller does not take this broker in, or no longer knows it."""


class NotRegistered(RegistrationRefused):
    """The controller knows no broker of this id: it was unregistered."""


class Membership:
    """One incarnation of a broker."""

    def __init__(self, node_id: int, controller: ControllerChannel) -> None:
        self.node_id = node_id
        self.epoch = -1
        self._controller = controller

    async def register(
        self,
        *,
        cluster_id: str,
        incarnation_id: UUID,
        directory_ids: Sequence[UUID],
        listeners: Sequence[Listener],
        rack: str | None,
        previous_epoch: int | None,
    ) -> None:
        """Become known to the controller; `previous_epoch` is that of a clean stop, if the last one was."""
        response = await self._controller.send(
            BrokerRegistrationRequest(
                broker_id=self.node_id,
                cluster_id=cluster_id,
                incarnation_id=incarnation_id.bytes,
                listeners=[
                    RegisteredListener(
                        name=one.name,
                        host=one.host,
                        port=one.port,
                        security_protocol=PROTOCOLS.index(one.protocol),
                    )
                    for one in listeners
                ],
                features=[
                    Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in SUPPORTED_FEATURES.items()
                ],
                rack=rack,
                log_dirs=sorted(each.bytes for each in directory_ids),
                previous_broker_epoch=-1 if previous_epoch is None else previous_epoch,
            ),
            BrokerRegistrationResponse,
        )
        self._require(response.error_code, "register")
        self.epoch = response.broker_epoch

    async def activate(self) -> None:
        """Lead what there is to lead."""
        await self._heartbeat(want_fence=False)

    async def tell_failed(self, directory_id: UUID) -> None:
        """A directory has failed: what is in it cannot be led from here."""
        await self._heartbeat(offline_log_dirs=[directory_id.bytes])

    async def tell_cordoned(self, directory_ids: Sequence[UUID]) -> None:
        """These directories, and no others, get no new partitions."""
        await self._heartbeat(cordoned_log_dirs=sorted(each.bytes for each in directory_ids))

    async def assign(self, places: Mapping[tuple[bytes, int], UUID]) -> None:
        """Tell in which directories partitions are, by topic id and number; the metadata of an older version
        cannot say so, and need not."""
        from barnabas.protocol.messages.assign_replicas_to_dirs import (
            AssignReplicasToDirsRequest,
            AssignReplicasToDirsResponse,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        directories: dict[bytes, dict[bytes, list[PartitionData]]] = {}
        for (topic_id, partition), directory_id in sorted(places.items()):
            topics = directories.setdefault(directory_id.bytes, {})
            topics.setdefault(topic_id, []).append(PartitionData(partition_index=partition))
        request = AssignReplicasToDirsRequest(
            broker_id=self.node_id,
            broker_epoch=self.epoch,
            directories=[
                DirectoryData(
                    id_=directory_id,
                    topics=[TopicData(topic_id=each, partitions=numbers) for each, numbers in topics.items()],
                )
                for directory_id, topics in directories.items()
            ],
        )
        response = await self._controller.send(request, AssignReplicasToDirsResponse)
        if response.error_code != wire_error("UNSUPPORTED_VERSION").code:
            self._require(response.error_code, "say where its partitions are")

    async def leave(self) -> None:
        """Have others lead, and say goodbye; one that was unregistered meanwhile is gone already."""
        try:
            for _ in range(_MAX_SHUTDOWN_ROUNDS):
                response = await self._heartbeat(want_shut_down=True)
                if response.should_shut_down:
                    return
        except NotRegistered:
            return

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids for this broker alone."""
        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.epoch)
        response = await self._controller.send(request, AllocateProducerIdsResponse)
        self._require(response.error_code, "allocate producer ids")
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)

    async def _heartbeat(
        self,
        *,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: Sequence[bytes] = (),
        cordoned_log_dirs: list[bytes] | None = None,
    ) -> BrokerHeartbeatResponse:
        response = await self._controller.send(
            BrokerHeartbeatRequest(
                broker_id=self.node_id,
                broker_epoch=self.epoch,
                # what the controller of this process has committed, this broker has replayed
                current_metadata_offset=self.epoch,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
                offline_log_dirs=list(offline_log_dirs),
                cordoned_log_dirs=cordoned_log_dirs,
            ),
            BrokerHeartbeatResponse,
        )
        self._require(response.error_code, "send a heartbeat")
        return response

    def _require(self, error_code: int, what: str) -> None:
        if error_code:
            name = WIRE_ERRORS[error_code].name
            kind = NotRegistered if name == "BROKER_ID_NOT_REGISTERED" else RegistrationRefused
            raise kind(f"broker {self.node_id} could not {what}: {name}")
