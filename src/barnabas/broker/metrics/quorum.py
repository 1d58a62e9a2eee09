"""Metrics of the metadata quorum and of the published image, and a controller's metrics of the brokers.

Kafka writes a record twice a second, so that the time since the last one shows how far a node is behind. Here
nothing is written without a change: the lag is the time for which the node has not known that it has
everything committed.
"""

from __future__ import annotations

from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.services import ControllerServices
from barnabas.controller.contacts import BrokerLife
from barnabas.core.metrics import Page
from barnabas.metadata.image import METADATA_VERSION
from barnabas.metadata.parts import BrokerImage
from barnabas.raft.core import Raft
from barnabas.raft.election import NO_NODE, State

_RAFT = "kafka_server_raft_metrics"
_CONTROLLER = "kafka_controller_kafkacontroller"
_BROKER = "kafka_server_broker_metadata_metrics"
_LOADER = "kafka_server_metadataloader"
_KRAFT_VERSION = "kraft.version"
# registration states of a broker in Kafka's numbers
_FENCED, _IN_CONTROLLED_SHUTDOWN, _ACTIVE = 10, 20, 30


def add_quorum(page: Page, services: ControllerServices, quorum: MetadataQuorum) -> None:
    """This node's part in the quorum, for any roles."""
    driver, raft, now = quorum.driver, quorum.driver.core, services.clock.monotonic()
    totals = driver.totals
    page.add(f"{_RAFT}_current_state_info", 1, _state(raft))
    page.add(f"{_RAFT}_current_leader", raft.leader_id)
    page.add(f"{_RAFT}_current_vote", _voted_id(raft))
    page.add(f"{_RAFT}_current_epoch", raft.epoch)
    page.add(f"{_RAFT}_high_watermark", raft.high_watermark)
    page.add(f"{_RAFT}_log_end_offset", raft.end_offset)
    page.add(f"{_RAFT}_log_end_epoch", raft.log.last_epoch)
    page.add(f"{_RAFT}_number_of_voters", len(raft.voters.voters))
    described = driver.describe()
    if described is not None:
        page.add(f"{_RAFT}_number_of_observers", len(described.observers))
        page.add(
            f"{_RAFT}_uncommitted_voter_change", int(raft.log.voters.latest_offset >= raft.high_watermark)
        )
    page.add(f"{_RAFT}_election_latency_avg", totals.elections.average(now) * 1000)
    page.add(f"{_RAFT}_election_latency_max", totals.elections.maximum(now) * 1000)
    page.add(f"{_RAFT}_commit_latency_avg", totals.commits.average(now) * 1000)
    page.add(f"{_RAFT}_commit_latency_max", totals.commits.maximum(now) * 1000)
    page.add(f"{_LOADER}_currentcontrollerid", raft.leader_id)
    page.add(f"{_LOADER}_currentmetadataversion", services.image.metadata_version)
    page.add(f"{_LOADER}_handleloadsnapshotcount", totals.snapshots_loaded)
    levels = {METADATA_VERSION: services.image.metadata_version, _KRAFT_VERSION: driver.kraft_version}
    for feature, level in {**services.image.features, **levels}.items():
        page.add(f"{_LOADER}_finalizedlevel", level, _camel_case(feature))


def _state(raft: Raft) -> str:
    if raft.state is State.FOLLOWER and not raft.is_voter:
        return "observer"
    return "unattached" if raft.state is State.RESIGNED else raft.state.value


def _voted_id(raft: Raft) -> int:
    """This node's vote in its epoch; leaders and candidates have voted for themselves."""
    if raft.state in (State.LEADER, State.CANDIDATE):
        return raft.me.id
    return NO_NODE if raft.election.voted is None else raft.election.voted.id


def _camel_case(feature: str) -> str:
    """A feature's name as in Kafka's metrics: metadataVersion."""
    first, *others = feature.split(".")
    return first + "".join(each.capitalize() for each in others)


def add_broker(page: Page, services: ControllerServices, quorum: MetadataQuorum) -> None:
    """A broker's metrics of the metadata."""
    totals = quorum.driver.totals
    page.add(f"{_BROKER}_last_applied_record_offset", services.image.offset - 1)
    page.add(f"{_BROKER}_last_applied_record_timestamp", quorum.last_published_ms)
    page.add(f"{_BROKER}_last_applied_record_lag_ms", quorum.lag_s * 1000)
    page.add(f"{_BROKER}_metadata_load_error_count", totals.load_errors)
    page.add(f"{_BROKER}_metadata_apply_error_count", totals.apply_errors)
    page.add(f"{_BROKER}_ignored_static_voters", int(_ignores_static_voters(services, quorum)))


def add_controller(page: Page, services: ControllerServices, quorum: MetadataQuorum) -> None:
    """A controller's metrics; those of heartbeats only on the active one."""
    image, totals = services.image, quorum.driver.totals
    states = {each.id: _registration_state(each) for each in image.brokers.values()}
    counted = list(states.values())
    in_shutdown = sum(each.in_controlled_shutdown for each in image.brokers.values())
    page.add(f"{_CONTROLLER}_activecontrollercount", int(quorum.controller.is_active))
    page.add(f"{_CONTROLLER}_newactivecontrollerscount", totals.leaders)
    page.add(f"{_CONTROLLER}_fencedbrokercount", counted.count(_FENCED))
    page.add(f"{_CONTROLLER}_activebrokercount", len(counted) - counted.count(_FENCED))
    page.add(f"{_CONTROLLER}_controlledshutdownbrokercount", in_shutdown)
    for broker_id, state in states.items():
        page.add(f"{_CONTROLLER}_brokerregistrationstate", state, str(broker_id))
    page.add(f"{_CONTROLLER}_lastappliedrecordoffset", image.offset - 1)
    page.add(f"{_CONTROLLER}_lastappliedrecordtimestamp", quorum.last_published_ms)
    page.add(f"{_CONTROLLER}_lastappliedrecordlagms", quorum.lag_s * 1000)
    page.add(f"{_CONTROLLER}_lastcommittedrecordoffset", quorum.driver.high_watermark - 1)
    page.add(f"{_CONTROLLER}_metadataerrorcount", totals.load_errors + totals.apply_errors)
    page.add(f"{_CONTROLLER}_ignoredstaticvoters", int(_ignores_static_voters(services, quorum)))
    if quorum.controller.is_active:
        _add_heartbeats(page, services, quorum)


def _add_heartbeats(page: Page, services: ControllerServices, quorum: MetadataQuorum) -> None:
    contacts, now = quorum.controller.contacts, services.clock.monotonic()
    for broker in services.image.brokers.values():
        contact = contacts.last(BrokerLife.of(broker))
        if contact is not None:
            since_ms = (now - contact.at) * 1000
            page.add(f"{_CONTROLLER}_timesincelastheartbeatreceivedms", since_ms, str(broker.id))


def _registration_state(broker: BrokerImage) -> int:
    if broker.fenced:
        return _FENCED
    return _IN_CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else _ACTIVE


def _ignores_static_voters(services: ControllerServices, quorum: MetadataQuorum) -> bool:
    """Whether the settings name voters although the log has them."""
    return quorum.driver.kraft_version > 0 and bool(services.settings.strings("controller.quorum.voters"))
