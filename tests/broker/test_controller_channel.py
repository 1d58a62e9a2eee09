"""Requests to the controller survive encoding: they carry all that a decision needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import pytest

from barnabas.broker import shared_server
from barnabas.broker.cluster.controller_channel import _COMMANDS, _OF_BROKERS, LocalController
from barnabas.client.admin import (
    USER,
    Admin,
    ConfigChange,
    ElectionType,
    FeatureUpdate,
    FeatureUpgrade,
    NewTopic,
    QuotaEntity,
    ResourceType,
)
from barnabas.client.errors import BrokerError
from barnabas.controller.features import ELR_FEATURE
from barnabas.core.errors import InvariantViolation
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.schema import Message
from barnabas.spark.driving import seams
from barnabas.testing import Broker
from tests.support.raw_client import RawClient

MakeBroker = Callable[..., Broker]
M = TypeVar("M", bound=Message)
ALTER_PARTITION = 56  # of leaders whose followers replicate, which are Kafka's brokers only
CONTROLLER_REGISTRATION = 70  # a controller that is the active one need not ask for it


class OnTheWire(LocalController):
    """Encodes and decodes every message, as a connection to another node would."""

    seen: ClassVar[dict[int, str]] = {}

    async def send(self, request: Message, response: type[M], *rest: Any, **limits: Any) -> M:
        self.seen[request.__key__] = type(request).__name__
        version = type(request).__versions__[1]
        arrived = decode(type(request), version, encode(request, version))
        answer = await super().send(arrived, response)
        return decode(response, version, encode(answer, version))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    OnTheWire.seen.clear()
    monkeypatch.setattr(shared_server, "LocalController", OnTheWire)
    return OnTheWire.seen


def test_every_request_survives_encoding(make_broker: MakeBroker, seen: dict[int, str]) -> None:
    settings = {"log.dirs": "a,b", "min.insync.replicas": "1"}
    broker = make_broker(settings=settings)
    asyncio.run(_administer(broker.bootstrap))
    with RawClient(broker.port) as client:
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        assert client.ask(init, 5, InitProducerIdResponse).error_code == 0
        whole = AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            configs=[AlterableConfig(name="retention.ms", value="2000")],
        )
        unknown = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="none", configs=[])
        broken = AlterConfigsResource(resource_type=99, resource_name="t", configs=[])
        asked = AlterConfigsRequest(resources=[unknown, broken, whole], validate_only=False)
        answers = client.ask(asked, 2, AlterConfigsResponse).responses
        assert [(one.resource_name, one.error_code) for one in answers] == [("none", 3), ("t", 42), ("t", 0)]
    config = broker.node.services.image.topic_config("t")
    assert dict(config) == {"retention.ms": "2000"}
    broker.stop()
    broker.start()  # as it was
    assert {*_COMMANDS, *_OF_BROKERS} - set(seen) <= {ALTER_PARTITION, CONTROLLER_REGISTRATION}, seen


async def _administer(bootstrap: str) -> None:
    async with Admin(*seams(), bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)])
        await admin.create_partitions({"t": 3})
        await admin.delete_topics(["u"])
        await admin.alter_configs(ResourceType.TOPIC, "t", [ConfigChange("segment.ms", "5000")])
        await admin.alter_configs(ResourceType.BROKER, "", [ConfigChange("log.retention.ms", "5000")])
        entry = (await admin.describe_configs(ResourceType.TOPIC, "t"))["segment.ms"]
        assert entry.value == "5000"
        await admin.elect_leaders(ElectionType.PREFERRED, [("t", 0)])
        await admin.alter_reassignments({("t", 0): [1]})
        assert await admin.list_reassignments() == {}
        await admin.alter_client_quotas({QuotaEntity.of({USER: "k"}): {"producer_byte_rate": 1.0}})
        await admin.update_features({ELR_FEATURE: FeatureUpdate(0, FeatureUpgrade.SAFE_DOWNGRADE)})
        await admin.update_features({ELR_FEATURE: 1})
        # the controller uses its own settings
        of_all = await admin.describe_configs(ResourceType.BROKER, "1")
        assert of_all["min.insync.replicas"].value == "1"
        with pytest.raises(BrokerError, match="BROKER_ID_NOT_REGISTERED"):
            await admin.unregister_broker(7)


def test_request_without_a_command_is_an_invariant_violation(broker: Broker) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    with pytest.raises(InvariantViolation, match="no command of the controller takes a FetchRequest"):
        broker.run(broker.node.services.controller.send(request, FetchResponse))
