"""Controllers: the nodes of the quorum say where they are reached, and which levels of features they support.

Nothing depends on whether one is registered but the levels of features (features.py) and what tools show: the
voters are the quorum's own, and stand in its control records.
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
    """A node of the quorum says where it is reached; saying the same again changes nothing."""
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
