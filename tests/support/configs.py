"""Settings altered, listed and described over the wire, one resource at a time; and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages import alter_configs as whole
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.support.raw_client import RawClient

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = tuple[str, int, str | None]


class Answer(NamedTuple):
    """An error's name, and its message."""

    error: str
    message: str | None = None


DONE = Answer("NONE")


def alter(
    client: RawClient,
    kind: int,
    name: str,
    *changes: Change,
    validate_only: bool = False,
    version: int = 1,
) -> Answer:
    """IncrementalAlterConfigs of one resource."""
    return alter_several(client, [(kind, name, changes)], validate_only=validate_only, version=version)[0]


def alter_several(
    client: RawClient,
    resources: Sequence[tuple[int, str, Sequence[Change]]],
    *,
    validate_only: bool = False,
    version: int = 1,
) -> list[Answer]:
    """IncrementalAlterConfigs; the answers must be to these resources, in this order."""
    asked = [
        incremental.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                incremental.AlterableConfig(name=setting, config_operation=operation, value=value)
                for setting, operation, value in changes
            ],
        )
        for kind, name, changes in resources
    ]
    request = incremental.IncrementalAlterConfigsRequest(resources=asked, validate_only=validate_only)
    response = client.ask(request, version, incremental.IncrementalAlterConfigsResponse)
    told = [(each.resource_type, each.resource_name) for each in response.responses]
    assert told == [(kind, name) for kind, name, _ in resources]
    return [Answer(WIRE_ERRORS[each.error_code].name, each.error_message) for each in response.responses]


def replace(
    client: RawClient,
    kind: int,
    name: str,
    configs: Sequence[tuple[str, str | None]],
    *,
    validate_only: bool = False,
    version: int = 2,
) -> Answer:
    """AlterConfigs of one resource."""
    resource = whole.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[whole.AlterableConfig(name=setting, value=value) for setting, value in configs],
    )
    request = whole.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = client.ask(request, version, whole.AlterConfigsResponse).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return Answer(WIRE_ERRORS[answer.error_code].name, answer.error_message)


def listed(client: RawClient, *kinds: int, version: int = 1) -> tuple[str, list[tuple[int, str]]]:
    """ListConfigResources: the error, and what there is by type and name."""
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    response = client.ask(request, version, ListConfigResourcesResponse)
    found = sorted((each.resource_type, each.resource_name) for each in response.config_resources)
    return WIRE_ERRORS[response.error_code].name, found


def described(
    client: RawClient, kind: int, name: str, *keys: str, version: int = 4
) -> tuple[Answer, dict[str, DescribeConfigsResourceResult]]:
    """DescribeConfigs with synonyms and documentation."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        include_synonyms=True,
        include_documentation=version >= 3,
    )
    (result,) = client.ask(request, version, DescribeConfigsResponse).results
    answer = Answer(WIRE_ERRORS[result.error_code].name, result.error_message)
    return answer, {each.name: each for each in result.configs}


def value_of(client: RawClient, kind: int, name: str, setting: str) -> str | None:
    """What a setting is now, by DescribeConfigs; None where it is null or not there."""
    found = described(client, kind, name, setting)[1].get(setting)
    return None if found is None else found.value
