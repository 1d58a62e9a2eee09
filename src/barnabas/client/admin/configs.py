"""Settings of topics, brokers, loggers and groups: describing and altering them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from barnabas.client.admin.engine import Engine, check
from barnabas.core.settings.definition import Kind as ConfigType
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

ALL_BROKERS = ""  # the name of the cluster-wide defaults


class ResourceType(IntEnum):
    """The types of resources with settings."""

    TOPIC = 2
    BROKER = 4  # by its id; ALL_BROKERS for the defaults
    BROKER_LOGGER = 8  # by the broker's id
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value; the nearest wins."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4  # the broker's own configuration
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One of the sources of a value."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting; the value of a sensitive one is None."""

    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()  # nearest first, the effective one among them
    documentation: str | None = None


class ConfigResource(NamedTuple):
    """A resource with settings."""

    type: ResourceType
    name: str


class ConfigOperation(IntEnum):
    """The kinds of change; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of a setting."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


class Configs(Engine):
    """The part of an admin for settings."""

    async def describe_configs(
        self,
        resource: ResourceType,
        name: str,
        keys: Iterable[str] | None = None,
        *,
        with_synonyms: bool = False,
        with_documentation: bool = False,
    ) -> dict[str, ConfigEntry]:
        """The settings of a resource, such as a topic or a broker (by its id); all of them if no keys are
        named."""
        wanted = DescribeConfigsResource(
            resource_type=resource,
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        request = DescribeConfigsRequest(
            resources=[wanted],
            include_synonyms=with_synonyms,
            include_documentation=with_documentation,
        )
        response = await self._ask(
            request, DescribeConfigsResponse, is_safe=True, node_id=_broker_of(resource, name)
        )
        (result,) = response.results
        check(result.error_code, f"cannot describe {_called(resource, name)}", result.error_message)
        return {entry.name: _entry(entry) for entry in result.configs}

    async def describe_topic_setting(self, names: Iterable[str], key: str) -> dict[str, str | None]:
        """The value of one setting of many topics; topics that do not exist, or are not authorised, are left
        out."""
        wanted = [
            DescribeConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=[key]
            )
            for name in names
        ]
        if not wanted:
            return {}
        response = await self._ask(
            DescribeConfigsRequest(resources=wanted), DescribeConfigsResponse, is_safe=True
        )
        return {
            result.resource_name: config.value
            for result in response.results
            if not result.error_code
            for config in result.configs
            if config.name == key
        }

    async def alter_configs(
        self,
        resource: ResourceType,
        name: str,
        changes: Iterable[ConfigChange],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single settings, all of these or none; other settings keep their values."""
        wanted = AlterConfigsResource(
            resource_type=resource,
            resource_name=name,
            configs=[
                AlterableConfig(name=each.name, config_operation=each.operation, value=each.value)
                for each in changes
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
        response = await self._ask(
            request,
            IncrementalAlterConfigsResponse,
            is_safe=True,  # repeating it changes nothing
            node_id=_broker_of(resource, name),
        )
        for result in response.responses:
            check(result.error_code, f"cannot alter {_called(resource, name)}", result.error_message)

    async def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[ConfigResource]:
        """The resources with settings; of all types if none are named."""
        wanted = list(types)
        connection = await self.cluster.any_connection()
        if connection.versions.choose(ListConfigResourcesRequest) < 1 and wanted != [
            ResourceType.CLIENT_METRICS
        ]:
            raise NotSpoken("the broker is too old to list what has settings (ListConfigResources 1)")
        response = await self._ask(
            ListConfigResourcesRequest(resource_types=[int(each) for each in wanted]),
            ListConfigResourcesResponse,
            is_safe=True,
        )
        check(response.error_code, "cannot list what has settings")
        known = set(ResourceType)
        return [
            ConfigResource(ResourceType(each.resource_type), each.resource_name)
            for each in response.config_resources
            if each.resource_type in known
        ]


def _broker_of(resource: ResourceType, name: str) -> int | None:
    """The broker to ask, if only that one knows the settings: its own configuration, and its loggers."""
    is_a_broker = resource in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    return int(name) if is_a_broker and name.isdecimal() else None


def _called(resource: ResourceType, name: str) -> str:
    if resource is ResourceType.BROKER and name == ALL_BROKERS:
        return "all brokers"
    return f"{resource.name.lower().replace('_', ' ')} {name!r}"


def _entry(answer: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        answer.value,
        _source(answer.config_source),
        answer.read_only,
        answer.is_sensitive,
        ConfigType(answer.config_type) if answer.config_type in list(ConfigType) else ConfigType.UNKNOWN,
        tuple(ConfigSynonym(each.name, each.value, _source(each.source)) for each in answer.synonyms),
        answer.documentation,
    )


def _source(code: int) -> ConfigSource:
    return ConfigSource(code) if code in list(ConfigSource) else ConfigSource.UNKNOWN
