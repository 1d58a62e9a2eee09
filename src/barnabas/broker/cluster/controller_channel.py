"""A broker's channel to the active controller: takes a request of the wire protocol, returns the response.

`LocalController` is the active controller in this process. It gets the request without encoding; the commands
of `controller/` decide, and the quorum commits the decision before `send` returns. A decision depends on the
request and on the controller's own settings (defaults of topics, rules for settings), never on the broker
that sent it: the same request from another node gives the same decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.broker.cluster.broker_commands import BrokerCommands
from barnabas.broker.quorum.controller import ActiveController
from barnabas.controller import brokers, producer_ids, topics
from barnabas.controller.decisions import Decision
from barnabas.controller.elections import ElectionDefaults
from barnabas.controller.topics import TopicPolicy
from barnabas.core.clock import Clock
from barnabas.core.errors import InvariantViolation
from barnabas.core.random import Random
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.schema import Message

if TYPE_CHECKING:
    from barnabas.broker.cluster.broker_watch import BrokerWatch
    from barnabas.broker.connections.requests import ClientConnection, RequestContext
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
    from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from barnabas.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from barnabas.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from barnabas.protocol.messages.controller_registration import (
        ControllerRegistrationRequest,
        ControllerRegistrationResponse,
    )
    from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from barnabas.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from barnabas.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

M = TypeVar("M", bound=Message)
R = TypeVar("R")
Command = Callable[[ClusterImage], Decision[R]]


class ControllerChannel(Protocol):
    """Sends requests to the active controller, on any node."""

    async def send(
        self,
        request: Message,
        response: type[M],
        context: RequestContext | None = None,
        *,
        timeout_s: float | None = None,
    ) -> M:
        """The response to a request, once its records are committed; raises one of NOT_COMMITTED.

        `context` is that of the client's request, None for this node's own. `timeout_s` limits the time of a
        request to another node, with all attempts.
        """
        ...


class LocalController:
    """The active controller, in this process."""

    def __init__(
        self,
        active: ActiveController,
        *,
        node_id: int,
        cluster_id: str,
        random: Random,
        topic_policy: Callable[[], TopicPolicy],
        config_rules: Callable[[], ConfigRules],
        clock: Clock,
        election_defaults: Callable[[], ElectionDefaults],
        watch: Callable[[], BrokerWatch] | None = None,
        static_voters: Collection[int] = (),
    ) -> None:
        """`static_voters` are the voters of controller.quorum.voters."""
        self._active = active
        self._node_id = node_id
        self._random = random
        self._topic_policy = topic_policy
        self._config_rules = config_rules
        self._election_defaults = election_defaults
        self._static_voters = static_voters
        self._brokers = BrokerCommands(
            active, clock, cluster_id=cluster_id, watch=watch, election_defaults=election_defaults
        )

    async def send(
        self,
        request: Message,
        response: type[M],
        context: RequestContext | None = None,
        *,
        timeout_s: float | None = None,
    ) -> M:
        key = request.__key__
        if key in _OF_BROKERS:
            connection = None if context is None else context.connection
            answer = await _OF_BROKERS[key](self._brokers, request, connection)
        elif key in _COMMANDS:
            answer = await _COMMANDS[key](self, request)
        else:
            raise InvariantViolation(f"no command of the controller takes a {type(request).__name__}")
        assert isinstance(answer, response)
        return answer

    def _electing(self, command: Callable[..., Decision[R]], request: Message) -> Command[R]:
        """A command that may elect leaders, with the controller's settings."""
        return partial(command, request=request, defaults=self._brokers.defaults())

    async def _unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        return await self._active.submit(self._electing(brokers.unregister_broker, request))

    async def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        return await self._active.submit(partial(producer_ids.allocate_producer_ids, request=request))

    async def _create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        return await self._active.submit(
            partial(topics.create_topics, request=request, random=self._random, policy=self._topic_policy())
        )

    async def _delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        return await self._active.submit(partial(topics.delete_topics, request=request))

    # the following commands are rarely used, and imported at their first use

    async def _alter_configs(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        from barnabas.controller.config_messages import decide_alter_configs

        rules = self._config_rules()
        return await self._active.submit(partial(decide_alter_configs, request=request, rules=rules))

    async def _incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        from barnabas.controller.config_messages import decide_incremental_alter_configs

        rules = self._config_rules()
        return await self._active.submit(
            partial(decide_incremental_alter_configs, request=request, rules=rules)
        )

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        from barnabas.controller.in_sync import alter_partition

        return await self._active.submit(self._electing(alter_partition, request))

    async def _assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        from barnabas.controller.directories import assign_replicas_to_dirs

        return await self._active.submit(self._electing(assign_replicas_to_dirs, request))

    async def _create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        from barnabas.controller.partitions import create_partitions

        return await self._active.submit(partial(create_partitions, request=request, random=self._random))

    async def _elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        from barnabas.controller.leaders import elect_leaders

        return await self._active.submit(self._electing(elect_leaders, request))

    async def _alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        from barnabas.controller.reassignments import alter_reassignments

        return await self._active.submit(self._electing(alter_reassignments, request))

    async def _list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        from barnabas.controller.reassignments import list_reassignments

        return await self._active.submit(lambda image: Decision([], list_reassignments(image, request)))

    async def _alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        from barnabas.controller.quotas import alter_quotas

        return await self._active.submit(partial(alter_quotas, request=request))

    async def _register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerRegistrationResponse:
        from barnabas.controller.controllers import register_controller

        return await self._active.submit(partial(register_controller, request=request))

    async def _update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        from barnabas.controller.features import update_features

        updated = await self._active.submit(
            lambda image: update_features(
                image,
                request,
                node_id=self._node_id,
                kraft_version=self._active.kraft_version,
                kraft_version_problem=self._active.kraft_version_problem,
                voters=self._static_voters,
                min_insync_replicas=self._election_defaults().min_insync_replicas,
            )
        )
        if updated.kraft_version > self._active.kraft_version:
            await self._active.raise_kraft_version()
        return updated.response


_OF_BROKERS: dict[int, Callable[[BrokerCommands, Any, ClientConnection | None], Awaitable[Message]]] = {
    62: BrokerCommands.register,
    63: BrokerCommands.heartbeat,
}
_COMMANDS: dict[int, Callable[[LocalController, Any], Awaitable[Message]]] = {
    19: LocalController._create_topics,
    20: LocalController._delete_topics,
    33: LocalController._alter_configs,
    37: LocalController._create_partitions,
    43: LocalController._elect_leaders,
    44: LocalController._incremental_alter_configs,
    45: LocalController._alter_reassignments,
    46: LocalController._list_reassignments,
    49: LocalController._alter_client_quotas,
    56: LocalController._alter_partition,
    57: LocalController._update_features,
    64: LocalController._unregister_broker,
    67: LocalController._allocate_producer_ids,
    70: LocalController._register_controller,
    73: LocalController._assign_replicas_to_dirs,
}
