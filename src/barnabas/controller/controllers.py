"""Registration of controllers: the nodes of the quorum report their endpoints and supported feature levels.

Only the levels of features (features.py) and the output of tools depend on registrations: the voters are
stored in the quorum's own control records.
"""

from __future__ import annotations

from barnabas.controller.decisions import Decision, Refused
from barnabas.controller.registrations import check_listeners
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import Endpoint, Feature, RegisterControllerRecord
from barnabas.metadata.versions import CONTROLLERS_SINCE
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


def register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    """Register a node of the quorum; an unchanged registration writes nothing."""
    try:
        if image.metadata_version < CONTROLLERS_SINCE:
            raise Refused(
                "UNSUPPORTED_VERSION",
                "The current MetadataVersion is too old to support controller registrations.",
            )
        check_listeners(request.listeners)
    except Refused as refused:
        return Decision(
            [],
            ControllerRegistrationResponse(
                throttle_time_ms=0, error_code=refused.error.code, error_message=refused.told
            ),
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[Endpoint(**vars(each)) for each in request.listeners],
        features=[
            Feature(**vars(each)) for each in sorted(request.features, key=lambda feature: feature.name)
        ],
    )
    known = image.controllers.get(request.controller_id)
    is_news = known is None or known.to_record() != record
    response = ControllerRegistrationResponse(throttle_time_ms=0, error_code=0, error_message=None)
    return Decision([record] if is_news else [], response)
