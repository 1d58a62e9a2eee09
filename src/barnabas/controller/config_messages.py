"""AlterConfigs and IncrementalAlterConfigs: requests as alterations, results as responses.

The two differ only in the form of the request. Brokers read a request to check it before they forward it, and
the controller reads it to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.controller.configs import SET, Alteration, Change, ConfigResult, ConfigRules, alter_configs
from barnabas.controller.decisions import Decision
from barnabas.core.errors import wire_error
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Response = AlterConfigsResponse | IncrementalAlterConfigsResponse


def alterations_of(request: AlterConfigsRequest | IncrementalAlterConfigsRequest) -> list[Alteration]:
    """The alteration of each resource, in the order of the request."""
    if isinstance(request, AlterConfigsRequest):
        return [
            Alteration(
                one.resource_type,
                one.resource_name,
                tuple(Change(config.name, SET, config.value) for config in one.configs),
                is_whole=True,
            )
            for one in request.resources
        ]
    return [
        Alteration(
            one.resource_type,
            one.resource_name,
            tuple(Change(config.name, config.config_operation, config.value) for config in one.configs),
        )
        for one in request.resources
    ]


def response_of(asked: Sequence[Alteration], results: Iterable[ConfigResult]) -> AlterConfigsResponse:
    """The response to AlterConfigs."""
    responses = [
        AlterConfigsResourceResponse(
            error_code=result.error_code,
            error_message=result.error_message,
            resource_type=one.resource_type,
            resource_name=one.resource_name,
        )
        for one, result in zip(asked, results, strict=True)
    ]
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


def incremental_response_of(
    asked: Sequence[Alteration], results: Iterable[ConfigResult]
) -> IncrementalAlterConfigsResponse:
    """The response to IncrementalAlterConfigs."""
    responses = [
        IncrementalResourceResponse(
            error_code=result.error_code,
            error_message=result.error_message,
            resource_type=one.resource_type,
            resource_name=one.resource_name,
        )
        for one, result in zip(asked, results, strict=True)
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


def results_of(asked: Sequence[Alteration], response: Response) -> list[ConfigResult]:
    """The result for each resource; a response may have them in any order. A missing result is an error."""
    results = {
        (one.resource_type, one.resource_name): ConfigResult(one.error_code, one.error_message)
        for one in response.responses
    }
    missing = ConfigResult(wire_error("UNKNOWN_SERVER_ERROR").code, "The controller has left it out.")
    return [results.get((one.resource_type, one.resource_name), missing) for one in asked]


def decide_alter_configs(
    image: ClusterImage, request: AlterConfigsRequest, rules: ConfigRules
) -> Decision[AlterConfigsResponse]:
    asked = alterations_of(request)
    decided = alter_configs(image, asked, rules, validate_only=request.validate_only)
    return Decision(decided.records, response_of(asked, decided.response))


def decide_incremental_alter_configs(
    image: ClusterImage, request: IncrementalAlterConfigsRequest, rules: ConfigRules
) -> Decision[IncrementalAlterConfigsResponse]:
    asked = alterations_of(request)
    decided = alter_configs(image, asked, rules, validate_only=request.validate_only)
    return Decision(decided.records, incremental_response_of(asked, decided.response))
