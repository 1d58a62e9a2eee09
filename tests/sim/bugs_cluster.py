"""Bugs of a cluster: in what is told before it is committed, in who leads, in how brokers come and go.

The product's own assertions are off meanwhile, and so is the twin that replays a leader's log
(sim/metadata_twin.py), so that only checkers of histories can speak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from barnabas.broker.cluster import broker_commands
from barnabas.broker.cluster.broker_watch import BrokerWatch
from barnabas.broker.quorum.controller import ActiveController
from barnabas.broker.quorum.driver import RaftDriver
from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.services import Services
from barnabas.controller import brokers, producer_ids
from barnabas.controller.contacts import BrokerContacts
from barnabas.controller.decisions import Decision
from barnabas.controller.registrations import Liveness
from barnabas.core.errors import BarnabasError, InvariantViolation
from barnabas.metadata import snapshot_records
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import BeginTransactionRecord, ProducerIdsRecord
from barnabas.metadata.replay import Change, Replayer
from barnabas.protocol.schema import Message
from barnabas.raft import invariants, voting
from barnabas.raft.election import VoterKey
from barnabas.raft.replication import Leadership
from barnabas.raft.voters import VoterSet
from barnabas.sim.metadata_twin import MetadataTwin
from barnabas.sim.process import current_process
from barnabas.sim.scenario import CLUSTER
from tests.sim.bugs_switch import Patch, bug, roll_backs


def without_assertions(patch: Patch) -> None:
    def replay(delta: Any, record: Message) -> None:
        with suppress(InvariantViolation):
            honest(delta, record)

    honest = Delta.replay
    patch(MetadataTwin, "_compare", lambda twin, replayer, image: None)
    patch(invariants, "require", lambda holds, what: None)
    patch(Delta, "replay", replay)


@bug(
    "the image is not rolled back when the lead is lost",
    "images",
    "errors",
    "changes",
    "topics",
    needs=[roll_backs],
    kind=CLUSTER,
)
def not_rolled_back(patch: Patch) -> None:
    def lost(controller: Any, reason: BarnabasError) -> None:
        if controller._pending:
            controller._kept = controller._decided
        honest_lost(controller, reason)
        controller._decided = getattr(controller, "_kept", controller._decided)

    def activate(controller: Any) -> None:
        honest_activate(controller)
        controller._decided = getattr(controller, "_kept", controller._decided)

    honest_lost, honest_activate = ActiveController.lost, ActiveController.activate
    without_assertions(patch)
    patch(ActiveController, "lost", lost)
    patch(ActiveController, "activate", activate)


@bug("a change is answered before it is committed", "changes", kind=CLUSTER)
def answered_before_commit(patch: Patch) -> None:
    def wait(controller: Any, pending: Any) -> asyncio.Future[None]:
        answer = honest(controller, pending)
        if pending.change is not None and not answer.done():
            answer.set_result(None)
        return answer

    honest = ActiveController._wait
    without_assertions(patch)
    patch(ActiveController, "_wait", wait)


@bug("an error is told from what is decided and not committed", "errors", kind=CLUSTER)
def error_from_decided(patch: Patch) -> None:
    async def told(controller: Any) -> None:
        await asyncio.sleep(0)

    without_assertions(patch)
    patch(ActiveController, "_told", told)


@bug("an error that has to wait for a commit is never told", "prompt", kind=CLUSTER)
def error_never_told(patch: Patch) -> None:
    async def told(controller: Any) -> None:
        if controller._pending:
            await asyncio.get_running_loop().create_future()

    without_assertions(patch)
    patch(ActiveController, "_told", told)


@bug("an open metadata transaction is published", "topics", "reads", "images", kind=CLUSTER)
def transaction_published(patch: Patch) -> None:
    def replay(replayer: Any, base_offset: int, epoch: int, records: Sequence[Message]) -> list[Change]:
        for record in records:
            if isinstance(record, BeginTransactionRecord):
                replayer._in_transaction = False
            replayer._take(record)
        return [replayer._apply(base_offset + len(records), epoch)]

    without_assertions(patch)
    patch(Replayer, "replay", replay)


@bug("fencing elects nobody: a broker that is fenced goes on leading", "fenced", kind=CLUSTER)
def fencing_elects_nobody(patch: Patch) -> None:
    without_assertions(patch)
    patch(brokers, "without_broker", lambda image, broker_id, defaults, **_: [])


@bug("unfencing elects nobody: partitions of a broker that is back stay without leader", "calm", kind=CLUSTER)
def unfencing_elects_nobody(patch: Patch) -> None:
    without_assertions(patch)
    patch(brokers, "with_broker", lambda image, broker_id, defaults: [])


# ---- what is committed, and who leads ---------------------------------------------------------------------


@bug("a record is committed when the leader alone has it", "prefix", kind=CLUSTER)
def leader_alone_commits(patch: Patch) -> None:
    def own(role: Leadership, voters: VoterSet, me: VoterKey, end_offset: int) -> list[int]:
        return [end_offset] * len(voters)

    without_assertions(patch)
    patch(Leadership, "ends", own)


@bug("a candidate is elected without its log being compared", "committed", "prefix", "images", kind=CLUSTER)
def shorter_log_elected(patch: Patch) -> None:
    grants = voting.can_grant_vote
    without_assertions(patch)
    patch(voting, "can_grant_vote", lambda raft, candidate, is_up_to_date: grants(raft, candidate, True))
    patch(voting, "can_grant_pre_vote", lambda raft, is_up_to_date: not isinstance(raft.role, Leadership))


@bug("half of the voters count as their majority", "leaders", "prefix", "images", kind=CLUSTER)
def half_elects(patch: Patch) -> None:
    def halved(voters: VoterSet, infos: Any) -> None:
        make(voters, infos)
        voters.majority = max(1, len(voters) // 2)

    make = VoterSet.__init__
    without_assertions(patch)
    patch(VoterSet, "__init__", halved)


@bug("a node publishes all that is in its log, committed or not", "images", "prefix", "topics", kind=CLUSTER)
def log_published(patch: Patch) -> None:
    def after_turn(driver: Any) -> None:
        honest(driver)
        if not driver.is_leader:
            driver.on_commit(driver._disk.log.end_offset)

    honest = RaftDriver._after_turn
    without_assertions(patch)
    patch(RaftDriver, "_after_turn", after_turn)


@bug("the broker in the leader's process tells of what is decided and not committed", "reads", kind=CLUSTER)
def decided_told(patch: Patch) -> None:
    decided: dict[int, ActiveController] = {}

    def make(controller: Any, driver: Any, metadata: Any, *others: Any, **more: Any) -> None:
        honest(controller, driver, metadata, *others, **more)
        decided[id(metadata)] = controller

    def image(services: Any) -> ClusterImage:
        controller = decided.get(id(services.metadata))
        is_active = controller is not None and controller.is_active
        return controller.decided if is_active else services.metadata.image  # type: ignore[union-attr]

    honest = ActiveController.__init__
    without_assertions(patch)
    patch(ActiveController, "__init__", make)
    patch(Services, "image", property(image))


@bug("a broker answers a change that it forwarded before its own image has it", "seen", kind=CLUSTER)
def answered_before_seen(patch: Patch) -> None:
    async def refreshed(quorum: Any) -> None:
        await asyncio.sleep(0)

    without_assertions(patch)
    patch(MetadataQuorum, "refreshed", refreshed)


@bug("each active controller begins to give producer ids from the first on", "producer-ids", kind=CLUSTER)
def producer_ids_anew(patch: Patch) -> None:
    given: dict[object, int] = {}

    def allocate(image: ClusterImage, request: Any) -> Decision[Any]:
        decision = honest(image, request)
        if decision.records:
            first = given[current_process()] = given.get(current_process(), -1000) + 1000
            decision.response.producer_id_start = first
        return decision

    honest = producer_ids.allocate_producer_ids
    without_assertions(patch)
    patch(producer_ids, "allocate_producer_ids", allocate)


@bug("a snapshot does not have the producer ids: they are given again after it", "images", kind=CLUSTER)
def producer_ids_not_in_snapshot(patch: Patch) -> None:
    def records(image: ClusterImage) -> Any:
        return (each for each in honest(image) if not isinstance(each, ProducerIdsRecord))

    honest = snapshot_records.snapshot_records
    without_assertions(patch)
    patch(snapshot_records, "snapshot_records", records)


# ---- brokers ----------------------------------------------------------------------------------------------


@bug("a newcomer takes the id of a broker that lives", "drill", "superseded", kind=CLUSTER)
def living_broker_ousted(patch: Patch) -> None:
    without_assertions(patch)
    patch(broker_commands, "liveness", lambda *args, **more: Liveness.GONE)


@bug("a broker that has died is not noticed by its socket", "drill", kind=CLUSTER)
def death_not_noticed(patch: Patch) -> None:
    without_assertions(patch)
    patch(BrokerWatch, "_suspect", lambda watch, broker: None)


@bug("a new active controller does not ask which brokers have died meanwhile", "drill", kind=CLUSTER)
def sessions_not_inherited(patch: Patch) -> None:
    without_assertions(patch)
    patch(BrokerContacts, "inherit", lambda *args, **more: [])


@bug("a broker that stops is let go before others lead what it leads", "drill", kind=CLUSTER)
def let_go_at_once(patch: Patch) -> None:
    def next_state(image: Any, broker: Any, request: Any, *others: Any) -> tuple[list[Message], bool, bool]:
        if request.want_shut_down:
            return [], broker.fenced, True
        return honest(image, broker, request, *others)

    honest = brokers._next_state
    without_assertions(patch)
    patch(brokers, "_next_state", next_state)


@bug("a heartbeat of an earlier epoch of a broker is accepted", "drill", kind=CLUSTER)
def stale_heartbeat_accepted(patch: Patch) -> None:
    def heartbeat(image: ClusterImage, request: Any, **more: Any) -> Decision[Any]:
        broker = image.brokers.get(request.broker_id)
        if broker is not None:
            request.broker_epoch = broker.epoch
        return honest(image, request, **more)

    honest = brokers.heartbeat
    without_assertions(patch)
    patch(brokers, "heartbeat", heartbeat)
