"""How a broker asks the controller: requests in, responses out, wherever the active controller is.

In a cluster of one it is in this process: a request becomes a command that the quorum decides, commits and
replays before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.controller import brokers, producer_ids, topics
from barnabas.controller.topics import TopicPolicy
from barnabas.core.random import Random
from barnabas.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from barnabas.controller.configs import Alteration, ConfigResult, ConfigRules
    from barnabas.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
    )
    from barnabas.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from barnabas.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from barnabas.protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
    )
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from barnabas.protocol.messages.unregister_broker import (
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
    )
    from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


class ControllerChannel:
    """The active controller, in this process."""

    def __init__(
        self,
        quorum: MetadataQuorum,
        cluster_id: str,
        random: Random,
        topic_policy: Callable[[], TopicPolicy],
        config_rules: Callable[[], ConfigRules],
    ) -> None:
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._random = random
        self._topic_policy = topic_policy
        self._config_rules = config_rules

    async def register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        return await self._quorum.submit(
            lambda image: brokers.register_broker(
                image,
                request,
                cluster_id=self._cluster_id,
                next_offset=self._quorum.end_offset,
                # whoever had this id before held the lock of the directory that this process holds now
                may_be_alive=False,
            )
        )

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return await self._quorum.submit(partial(brokers.heartbeat, request=request))

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        return await self._quorum.submit(partial(producer_ids.allocate_producer_ids, request=request))

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        return await self._quorum.submit(
            partial(topics.create_topics, request=request, random=self._random, policy=self._topic_policy())
        )

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        return await self._quorum.submit(partial(topics.delete_topics, request=request))

    async def alter_configs(
        self, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> list[ConfigResult]:
        from barnabas.controller.configs import alter_configs  # seldom asked for

        return await self._quorum.submit(
            partial(
                alter_configs,
                alterations=alterations,
                rules=self._config_rules(),
                validate_only=validate_only,
            )
        )

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        return await self._quorum.submit(partial(brokers.unregister_broker, request=request))

    # what follows is seldom asked for, and imported only then

    async def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        from barnabas.controller.directories import assign_replicas_to_dirs

        return await self._quorum.submit(partial(assign_replicas_to_dirs, request=request))

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        from barnabas.controller.partitions import create_partitions

        return await self._quorum.submit(partial(create_partitions, request=request, random=self._random))

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        from barnabas.controller.leaders import elect_leaders

        return await self._quorum.submit(partial(elect_leaders, request=request))

    async def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        from barnabas.controller.reassignments import alter_reassignments

        return await self._quorum.submit(partial(alter_reassignments, request=request))

    async def alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        from barnabas.controller.quotas import alter_quotas

        return await self._quorum.submit(partial(alter_quotas, request=request))

    async def update_features(
        self, request: UpdateFeaturesRequest, *, node_id: int, min_insync_replicas: int
    ) -> UpdateFeaturesResponse:
        from barnabas.controller.features import update_features

        updated = await self._quorum.submit(
            lambda image: update_features(
                image,
                request,
                node_id=node_id,
                kraft_version=self._quorum.kraft_version,
                min_insync_replicas=min_insync_replicas,
            )
        )
        if updated.kraft_version > self._quorum.kraft_version:
            await self._quorum.raise_kraft_version()
        return updated.response
