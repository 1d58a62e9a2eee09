"""The life of brokers: registered, unfenced, fenced, unregistered.

    (unknown) --register--> fenced --caught up--> active --wants to stop--> in controlled shutdown --> fenced
                               ^                    |
                               +---- session over --+

A registration gives the broker an epoch: the offset at which its records begin, so that a later one is
larger. A new incarnation is refused while the last one may still be alive. A broker that cannot give its last
epoch had an unclean shutdown, and is no longer eligible to lead its former partitions (elections.py). Only
active brokers lead; a broker becomes active when it has read the log up to its registration.
"""

from __future__ import annotations

from barnabas.controller.bootstrap import KRAFT_FEATURE
from barnabas.controller.decisions import Decision, Refused
from barnabas.controller.elections import ElectionDefaults, with_broker, without_broker
from barnabas.controller.registrations import check_features, check_listeners
from barnabas.core.errors import wire_error
from barnabas.metadata.image import METADATA_VERSION, ClusterImage
from barnabas.metadata.parts import BrokerImage
from barnabas.metadata.records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    Feature,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas.metadata.versions import CORDONED_SINCE, DIRECTORIES_SINCE
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.protocol.schema import Message

_UNFENCED, _FENCED, _STOPPING = -1, 1, 1
_FIRST_DIRECTORY_ID = (100).to_bytes(16, "big")  # smaller ids are reserved
_DEFAULTS = ElectionDefaults()


def register_broker(
    image: ClusterImage,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    next_offset: int,
    may_be_alive: bool,
    kraft_version: int = 0,
    defaults: ElectionDefaults = _DEFAULTS,
) -> Decision[BrokerRegistrationResponse]:
    """Register a broker. `may_be_alive`: whether its last incarnation could still be running."""
    try:
        known = _check_registration(image, request, cluster_id, may_be_alive)
        check_features(request.features, _levels(image, kraft_version))
    except Refused as refused:
        response = BrokerRegistrationResponse(throttle_time_ms=0, error_code=refused.error.code)
        return Decision([], response)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=next_offset,
        end_points=[_endpoint(each) for each in request.listeners],
        features=[_feature(each) for each in sorted(request.features, key=lambda each: each.name)],
        rack=request.rack,
        log_dirs=sorted(request.log_dirs) if image.metadata_version >= DIRECTORIES_SINCE else [],
    )
    records: list[Message] = [record]
    if known is not None and known.incarnation_id == request.incarnation_id:
        # the response to its first attempt was lost, or its registered data has changed
        record.broker_epoch = known.epoch
        record.fenced, record.in_controlled_shutdown = known.fenced, known.in_controlled_shutdown
    else:
        # a broker that was unregistered meanwhile may have had an unclean shutdown
        was_unclean = known is None or request.previous_broker_epoch != known.epoch
        records[:0] = without_broker(image, request.broker_id, defaults, was_unclean=was_unclean)
    epoch = record.broker_epoch
    return Decision(records, BrokerRegistrationResponse(throttle_time_ms=0, error_code=0, broker_epoch=epoch))


def _check_registration(
    image: ClusterImage, request: BrokerRegistrationRequest, cluster_id: str, may_be_alive: bool
) -> BrokerImage | None:
    """The present registration of the id. The order of the checks is Kafka's."""
    if request.cluster_id != cluster_id:
        raise Refused(
            "INCONSISTENT_CLUSTER_ID", f"Expected cluster ID {cluster_id}, but got {request.cluster_id}"
        )
    known = image.brokers.get(request.broker_id)
    if known is not None and may_be_alive and known.incarnation_id != request.incarnation_id:
        raise Refused("DUPLICATE_BROKER_REGISTRATION", f"Broker {known.id} is registered and may be alive.")
    if request.is_migrating_zk_broker:
        raise Refused("BROKER_ID_NOT_REGISTERED", "Controller does not support registering ZK brokers.")
    if image.metadata_version >= DIRECTORIES_SINCE:
        _check_directories(image, request)
    check_listeners(request.listeners)
    return known


def _check_directories(image: ClusterImage, request: BrokerRegistrationRequest) -> None:
    if not request.log_dirs:
        raise Refused("INVALID_REGISTRATION", "No directories specified in request")
    if any(each < _FIRST_DIRECTORY_ID for each in request.log_dirs):
        raise Refused("INVALID_REGISTRATION", "Reserved directory ID in request")
    if len(set(request.log_dirs)) < len(request.log_dirs):
        raise Refused("INVALID_REGISTRATION", "Duplicate directory ID in request")
    for broker in image.brokers.values():
        if broker.id != request.broker_id and not set(request.log_dirs).isdisjoint(broker.log_dirs):
            raise Refused("INVALID_REGISTRATION", f"Broker {broker.id} is registered with that directory")


def _levels(image: ClusterImage, kraft_version: int) -> dict[str, int]:
    return {**image.features, METADATA_VERSION: image.metadata_version, KRAFT_FEATURE: kraft_version}


def _endpoint(listener: object) -> Endpoint:
    return Endpoint(**vars(listener))


def _feature(feature: object) -> Feature:
    return Feature(**vars(feature))


def heartbeat(
    image: ClusterImage,
    request: BrokerHeartbeatRequest,
    *,
    registered_at: int = 0,
    others_have_seen_it_go: bool = True,
    defaults: ElectionDefaults = _DEFAULTS,
) -> Decision[BrokerHeartbeatResponse]:
    """Process a broker's heartbeat, with its requests: to be unfenced, to be fenced, to stop.

    `registered_at` is the offset of its registration, if this controller wrote it. `others_have_seen_it_go`:
    whether every other broker has read the log up to the controlled shutdown.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        error = wire_error("STALE_BROKER_EPOCH")
        return Decision(
            [], BrokerHeartbeatResponse(throttle_time_ms=0, error_code=error.code, should_shut_down=False)
        )
    caught_up = request.current_metadata_offset >= max(broker.epoch, registered_at)
    records, is_fenced, should_stop = _next_state(
        image, broker, request, caught_up, others_have_seen_it_go, defaults
    )
    if request.offline_log_dirs and image.metadata_version >= DIRECTORIES_SINCE:
        from barnabas.controller.directories import directories_failed  # rarely needed

        records += directories_failed(image, broker, request.offline_log_dirs, defaults)
    cordoned = request.cordoned_log_dirs
    if cordoned is not None and _is_news(image, broker, cordoned):
        records.append(_broker_change(broker, cordoned_log_dirs=cordoned))
    response = BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        is_caught_up=caught_up,
        is_fenced=is_fenced,
        should_shut_down=should_stop,
    )
    return Decision(records, response)


def _is_news(image: ClusterImage, broker: BrokerImage, cordoned: list[bytes]) -> bool:
    """Whether the cordoned directories differ from the metadata, if its version supports them."""
    known = broker.cordoned_log_dirs
    return image.metadata_version >= CORDONED_SINCE and (known is None or set(known) != set(cordoned))


def _next_state(
    image: ClusterImage,
    broker: BrokerImage,
    request: BrokerHeartbeatRequest,
    caught_up: bool,
    others_have_seen_it_go: bool,
    defaults: ElectionDefaults,
) -> tuple[list[Message], bool, bool]:
    """The records, whether the broker is fenced afterwards, and whether it may stop now."""
    if broker.fenced:
        # after a controlled shutdown a broker comes back only by a new registration
        was_let_go = broker.in_controlled_shutdown
        if request.want_shut_down or request.want_fence or was_let_go or not caught_up:
            return [], True, request.want_shut_down
        return unfence_broker(image, broker, defaults), False, False
    if request.want_fence:
        return fence_broker(image, broker, defaults), True, request.want_shut_down
    if not request.want_shut_down:
        return [], False, False
    if not broker.in_controlled_shutdown and image.leads_any(broker.id):
        return begin_controlled_shutdown(image, broker, defaults), False, False
    if image.leads_any(broker.id) or not others_have_seen_it_go:
        return [], False, False
    return fence_broker(image, broker, defaults), True, True


def unfence_broker(
    image: ClusterImage, broker: BrokerImage, defaults: ElectionDefaults = _DEFAULTS
) -> list[Message]:
    """The broker becomes active, and leads the partitions that wait for it."""
    return [_broker_change(broker, fenced=_UNFENCED), *with_broker(image, broker.id, defaults)]


def fence_broker(
    image: ClusterImage, broker: BrokerImage, defaults: ElectionDefaults = _DEFAULTS
) -> list[Message]:
    """The broker is gone, or silent for too long: other brokers lead its partitions."""
    return [*without_broker(image, broker.id, defaults), _broker_change(broker, fenced=_FENCED)]


def begin_controlled_shutdown(
    image: ClusterImage, broker: BrokerImage, defaults: ElectionDefaults = _DEFAULTS
) -> list[Message]:
    """The broker stops soon: other brokers lead, while it still serves clients that do not know it yet."""
    change = _broker_change(broker, in_controlled_shutdown=_STOPPING)
    return [change, *without_broker(image, broker.id, defaults)]


def _broker_change(
    broker: BrokerImage,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    cordoned_log_dirs: list[bytes] | None = None,
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        cordoned_log_dirs=cordoned_log_dirs,
    )


def unregister_broker(
    image: ClusterImage, request: UnregisterBrokerRequest, *, defaults: ElectionDefaults = _DEFAULTS
) -> Decision[UnregisterBrokerResponse]:
    """Remove a broker that will not come back."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        error = wire_error("BROKER_ID_NOT_REGISTERED")
        message = f"Broker ID {request.broker_id} is not currently registered"
        return Decision(
            [], UnregisterBrokerResponse(throttle_time_ms=0, error_code=error.code, error_message=message)
        )
    gone = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    return Decision(
        [*without_broker(image, broker.id, defaults), gone],
        UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message=None),
    )
