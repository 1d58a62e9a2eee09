"""DescribeConfigs: settings of topics and of this broker, with who decided them.

Synonyms are told when asked for, types from version 3 on, a sentence about each setting when asked for. No
keys, or an empty list of them, ask for all; a key that does not exist is left out. A broker named "" stands
for what was altered for all brokers. The loggers of a broker are those of this process, with the levels in
effect.

Each resource is answered for itself; one of a type that is not known spoils only its own answer (in Kafka,
the whole request's). To describe one takes milliseconds: others have their turn in between, and what is asked
for again in the same words gets the same answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.controller.decisions import Refused
from barnabas.controller.names import check_name
from barnabas.core.errors import WireError, wire_error
from barnabas.core.settings.broker_settings import BrokerSettings, Source
from barnabas.core.settings.describe import Described, describe_broker, describe_topic
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from barnabas.broker.requests import RequestContext
    from barnabas.broker.services import Services

_TOPIC = 2
_BROKER = 4
_BROKER_LOGGER = 8
_ALL_BROKERS = ""

_LOGGER_SOURCE = 6
_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL", "NOTSET": "TRACE"}  # as Kafka calls them


async def handle(
    request: DescribeConfigsRequest, context: RequestContext, services: Services
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
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, services: Services
) -> DescribeConfigsResult:
    try:
        if resource.resource_type == _BROKER_LOGGER:
            configs = _loggers(resource, services)
        else:
            configs = [_shown(one, request) for one in _described(resource, services)]
    except Refused as refused:
        return _result(resource, refused.error, refused.told, [])
    return _result(resource, wire_error("NONE"), "", configs)


def _described(resource: DescribeConfigsResource, services: Services) -> list[Described]:
    keys = resource.configuration_keys or None
    name, image, settings = resource.resource_name, services.image, services.settings
    if resource.resource_type == _TOPIC:
        check_name(name)
        if image.topic(name) is None:
            raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"There is no topic '{name}'.")
        return describe_topic(image.topic_config(name), settings, keys)
    if resource.resource_type != _BROKER:
        raise Refused(
            "INVALID_REQUEST", f"Resources of type {resource.resource_type} are not described here."
        )
    if name == _ALL_BROKERS:
        return _of_all_brokers(settings, keys)
    _check_broker(name, services)
    return describe_broker(settings, keys)


def _check_broker(name: str, services: Services) -> None:
    try:
        broker_id = int(name)
    except ValueError:
        raise Refused("INVALID_REQUEST", f"Broker id must be an integer, not '{name}'.") from None
    if broker_id != services.node_id:
        raise Refused("INVALID_REQUEST", f"This is broker {services.node_id}, not {name}: ask that one.")


def _of_all_brokers(settings: BrokerSettings, keys: list[str] | None) -> list[Described]:
    """Only what was altered for all brokers, whatever else decides here."""
    altered = settings.with_dynamic({}, settings.dynamic_default)
    names = [name for name in altered.dynamic_default if keys is None or name in keys]
    source = Source.DYNAMIC_DEFAULT_BROKER
    return [
        one._replace(synonyms=[each for each in one.synonyms if each.source is source])
        for one in describe_broker(altered, names)
    ]


def _loggers(resource: DescribeConfigsResource, services: Services) -> list[DescribeConfigsResourceResult]:
    _check_broker(resource.resource_name, services)
    keys = resource.configuration_keys
    known = logging.root.manager.loggerDict
    named = [(name, known[name]) for name in sorted(known)]
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=_level(logger),
            read_only=False,
            config_source=_LOGGER_SOURCE,
            is_sensitive=False,
            synonyms=[],
            documentation=None,
        )
        for name, logger in [("root", logging.root), *named]
        if isinstance(logger, logging.Logger) and (not keys or name in keys)
    ]


def _level(logger: logging.Logger) -> str:
    text = logging.getLevelName(logger.getEffectiveLevel())
    return _LEVELS.get(text, text)


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
