"""DescribeConfigs: settings of topics, this broker, groups and client metrics subscriptions, with their
sources; and the levels of this broker's loggers.

Synonyms and documentation are included on request, types from version 3 on. No keys, or an empty list of
them, ask for all; a key that does not exist is left out. The broker "" stands for the cluster-wide defaults
of brokers. Groups and subscriptions are described whether or not they exist.

Each resource is answered by itself; an unknown type is an error of its own resource only (in Kafka, of the
whole request). Describing one takes milliseconds: other tasks run in between, and identical requests for a
resource share one answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.settings.config_requests import BROKER_LOGGER_RESOURCE
from barnabas.broker.settings.loggers import levels
from barnabas.controller.configs import CLIENT_METRICS_RESOURCE, GROUP_RESOURCE
from barnabas.controller.decisions import Refused
from barnabas.controller.names import check_name
from barnabas.core.errors import WireError, wire_error
from barnabas.core.settings.broker_settings import BrokerSettings, Source
from barnabas.core.settings.describe import (
    Described,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from barnabas.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: DescribeConfigsRequest, context: RequestContext, services: ControllerServices
) -> DescribeConfigsResponse:
    answers: dict[tuple[int, str, tuple[str, ...]], DescribeConfigsResult] = {}
    results = []
    for resource in request.resources:
        words = (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ()))
        if words not in answers:
            answers[words] = _answer(resource, request, services)
            await asyncio.sleep(0)
        results.append(answers[words])
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _answer(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, services: ControllerServices
) -> DescribeConfigsResult:
    try:
        if resource.resource_type == BROKER_LOGGER_RESOURCE:
            configs = _loggers(resource, services)
        else:
            configs = [_shown(one, request) for one in _described(resource, services)]
    except Refused as refused:
        return _result(resource, refused.error, refused.told, [])
    return _result(resource, wire_error("NONE"), "", configs)


def _described(resource: DescribeConfigsResource, services: ControllerServices) -> list[Described]:
    keys = resource.configuration_keys or None
    kind, name, image, settings = (
        *(resource.resource_type, resource.resource_name),
        *(services.image, services.settings),
    )
    if kind == TOPIC_RESOURCE:
        check_name(name)
        if image.topic(name) is None:
            raise Refused("UNKNOWN_TOPIC_OR_PARTITION", "")
        return describe_topic(image.topic_config(name), settings, keys)
    if kind == GROUP_RESOURCE:
        _check_filled(name, "Group name must not be empty")
        return describe_group(image.config(kind, name), settings, keys)
    if kind == CLIENT_METRICS_RESOURCE:
        _check_filled(name, "Client metrics subscription name must not be empty")
        return describe_client_metrics(image.config(kind, name), keys)
    if kind != BROKER_RESOURCE:
        raise Refused("INVALID_REQUEST", f"Unexpected resource type {kind} for resource {name}")
    if name == CLUSTER_DEFAULT:
        return _of_all_brokers(settings, keys)
    _check_broker(name, services, " or empty string,")
    return describe_broker(settings, keys)


def _check_filled(name: str, problem: str) -> None:
    if not name:
        raise Refused("INVALID_REQUEST", problem)


def _check_broker(name: str, services: ControllerServices, or_else: str) -> None:
    try:
        broker_id = int(name)
    except ValueError:
        raise Refused("INVALID_REQUEST", f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != services.node_id:
        expected = f"expected {services.node_id}{or_else}"
        raise Refused("INVALID_REQUEST", f"Unexpected broker id, {expected} but received {name}")


def _of_all_brokers(settings: BrokerSettings, keys: list[str] | None) -> list[Described]:
    """Only the dynamic cluster-wide defaults, whether or not this broker overrides them, exactly as they were
    written."""
    altered = settings.with_dynamic({}, settings.dynamic_default)
    names = [name for name in altered.dynamic_default if keys is None or name in keys]
    source = Source.DYNAMIC_DEFAULT_BROKER
    return [
        one._replace(
            value=None if one.is_sensitive else altered.dynamic_default[one.name],
            synonyms=[each for each in one.synonyms if each.source is source],
        )
        for one in describe_broker(altered, names)
    ]


def _loggers(
    resource: DescribeConfigsResource, services: ControllerServices
) -> list[DescribeConfigsResourceResult]:
    _check_filled(resource.resource_name, "Broker id must not be empty")
    _check_broker(resource.resource_name, services, "")
    keys = resource.configuration_keys
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=level,
            read_only=False,
            config_source=int(Source.BROKER_LOGGER),
            is_sensitive=False,
            synonyms=[],
            documentation=None,
        )
        for name, level in levels().items()
        if not keys or name in keys
    ]


def _shown(one: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = one.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=one.name,
        value=one.value,
        read_only=one.read_only,
        config_source=int(one.source),
        is_sensitive=one.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=int(each.source))
            for each in synonyms
        ],
        config_type=int(one.kind),
        documentation=one.documentation if request.include_documentation else None,
    )


def _result(
    resource: DescribeConfigsResource,
    error: WireError,
    message: str,
    configs: list[DescribeConfigsResourceResult],
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )
