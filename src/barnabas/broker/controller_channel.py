"""How a broker asks the controller: requests in, responses out, wherever the active controller is.

In a cluster of one it is in this process: a request becomes a command that the quorum decides, commits and
replays before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.broker.quorum import MetadataQuorum
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


class ControllerChannel:
    """The active controller, in this process."""

    def __init__(
        self,
        quorum: MetadataQuorum,
        cluster_id: str,
        random: Random,
        topic_policy: Callable[[], TopicPolicy],
    ) -> None:
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._random = random
        self._topic_policy = topic_policy

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
