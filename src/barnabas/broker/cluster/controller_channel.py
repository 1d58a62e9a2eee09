"""How a broker asks the active controller: a request of the wire protocol in, its response out.

`LocalController` is the active controller in this process. It gets the request as it is, without encoding it;
the commands of `controller/` decide, and the quorum commits what they decided before `send` returns. What the
decision needs beside the request (defaults of topics, rules for settings) comes from the controller's own
settings, never from the broker that asks: a request says the same from another node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.controller import brokers, producer_ids, topics
from barnabas.controller.topics import TopicPolicy
from barnabas.core.errors import InvariantViolation
from barnabas.core.random import Random
from barnabas.protocol.schema import Message

if TYPE_CHECKING:
    from barnabas.controller.configs import ConfigRules
    from barnabas.protocol.messages.allocate_producer_ids import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )
    from barnabas.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
    )
    from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from barnabas.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from barnabas.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from barnabas.protocol.messages.broker_registration import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )
    from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from barnabas.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

M = TypeVar("M", bound=Message)


class ControllerChannel(Protocol):
    """Sends requests to the active controller, wherever it is."""

    async def send(self, request: Message, response: type[M]) -> M:
        """The response to a request, once what it changes is committed."""
        ...


class LocalController:
    """The active controller, in this process."""

    def __init__(
        self,
        quorum: MetadataQuorum,
        *,
        node_id: int,
        cluster_id: str,
        random: Random,
        topic_policy: Callable[[], TopicPolicy],
        config_rules: Callable[[], ConfigRules],
        min_insync_replicas: Callable[[], int],
    ) -> None:
        self._quorum = quorum
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._random = random
        self._topic_policy = topic_policy
        self._config_rules = config_rules
        self._min_insync_replicas = min_insync_replicas

    async def send(self, request: Message, response: type[M]) -> M:
        carry_out = _COMMANDS.get(request.__key__)
        if carry_out is None:
            raise InvariantViolation(f"no command of the controller takes a {type(request).__name__}")
        answer = await carry_out(self, request)
        assert isinstance(answer, response)
        return answer

    async def _register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
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

    async def _heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return await self._quorum.submit(partial(brokers.heartbeat, request=request))

    async def _unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        return await self._quorum.submit(partial(brokers.unregister_broker, request=request))

    async def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        return await self._quorum.submit(partial(producer_ids.allocate_producer_ids, request=request))

    async def _create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        return await self._quorum.submit(
            partial(topics.create_topics, request=request, random=self._random, policy=self._topic_policy())
        )

    async def _delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        return await self._quorum.submit(partial(topics.delete_topics, request=request))

    # what follows is seldom asked for, and imported only then

    async def _alter_configs(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        from barnabas.controller.config_messages import decide_alter_configs

        rules = self._config_rules()
        return await self._quorum.submit(partial(decide_alter_configs, request=request, rules=rules))

    async def _incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        from barnabas.controller.config_messages import decide_incremental_alter_configs

        rules = self._config_rules()
        return await self._quorum.submit(
            partial(decide_incremental_alter_configs, request=request, rules=rules)
        )

    async def _assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        from barnabas.controller.directories import assign_replicas_to_dirs

        return await self._quorum.submit(partial(assign_replicas_to_dirs, request=request))

    async def _create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        from barnabas.controller.partitions import create_partitions

        return await self._quorum.submit(partial(create_partitions, request=request, random=self._random))

    async def _elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        from barnabas.controller.leaders import elect_leaders

        return await self._quorum.submit(partial(elect_leaders, request=request))

    async def _alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        from barnabas.controller.reassignments import alter_reassignments

        return await self._quorum.submit(partial(alter_reassignments, request=request))

    async def _alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        from barnabas.controller.quotas import alter_quotas

        return await self._quorum.submit(partial(alter_quotas, request=request))

    async def _update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        from barnabas.controller.features import update_features

        updated = await self._quorum.submit(
            lambda image: update_features(
                image,
                request,
                node_id=self._node_id,
                kraft_version=self._quorum.kraft_version,
                min_insync_replicas=self._min_insync_replicas(),
            )
        )
        if updated.kraft_version > self._quorum.kraft_version:
            await self._quorum.raise_kraft_version()
        return updated.response


_COMMANDS: dict[int, Callable[[LocalController, Any], Awaitable[Message]]] = {
    19: LocalController._create_topics,
    20: LocalController._delete_topics,
    33: LocalController._alter_configs,
    37: LocalController._create_partitions,
    43: LocalController._elect_leaders,
    44: LocalController._incremental_alter_configs,
    45: LocalController._alter_reassignments,
    49: LocalController._alter_client_quotas,
    57: LocalController._update_features,
    62: LocalController._register,
    63: LocalController._heartbeat,
    64: LocalController._unregister_broker,
    67: LocalController._allocate_producer_ids,
    73: LocalController._assign_replicas_to_dirs,
}
