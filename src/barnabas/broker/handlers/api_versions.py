"""ApiVersions: the APIs that this broker serves, and the features of the cluster.

The response has a header of version 0 whatever its own version is. A client that is newer than this broker is
answered in version 0 (`unsupported`). Up to version 3 a supported feature whose minimum is 0 is left out: old
clients cannot read it. Only supported features are shown, even if the metadata has others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.broker.connections.requests import RequestContext
from barnabas.broker.handlers import Served
from barnabas.core.errors import wire_error
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from barnabas.broker.services import ControllerServices

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_API_VERSIONS = 18
_SOFTWARE_FROM = 3
_MINIMUM_0_FROM = 4


async def handle(
    request: ApiVersionsRequest, context: RequestContext, services: ControllerServices
) -> ApiVersionsResponse:
    version = context.api_version
    if version >= _SOFTWARE_FROM and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(
            error_code=wire_error("INVALID_REQUEST").code, api_keys=[], throttle_time_ms=0
        )
    quorum, served = services.quorum, services.features
    finalized = {name: level for name, level in services.image.features.items() if name in served}
    if quorum.kraft_version > 0:
        finalized["kraft.version"] = quorum.kraft_version
    return ApiVersionsResponse(
        error_code=0,
        api_keys=_api_keys(context.router.served),
        throttle_time_ms=0,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in served.items()
            if low > 0 or version >= _MINIMUM_0_FROM
        ],
        finalized_features_epoch=services.image.offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.items()
        ],
    )


def unsupported(apis: dict[int, Served]) -> ApiVersionsResponse:
    """The response to an unsupported version of ApiVersions: only the versions of ApiVersions itself.

    A client that gets all APIs at once (franz-go) does not ask again, and never learns of features.
    """
    known = {_API_VERSIONS: apis[_API_VERSIONS]}
    return ApiVersionsResponse(error_code=wire_error("UNSUPPORTED_VERSION").code, api_keys=_api_keys(known))


def _api_keys(apis: dict[int, Served]) -> list[ApiVersion]:
    return [ApiVersion(api_key=key, min_version=api.first, max_version=api.last) for key, api in apis.items()]
