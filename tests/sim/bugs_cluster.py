"""Bugs of a cluster's metadata: in what is told before it is committed, and in what fencing leaves behind.

The product's own checks are off meanwhile: the twin that replays a leader's log (sim/metadata_twin.py) is
asked nothing, so that only checkers of histories can speak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from barnabas.broker.quorum.controller import ActiveController
from barnabas.controller import brokers
from barnabas.core.errors import BarnabasError
from barnabas.metadata.records import BeginTransactionRecord
from barnabas.metadata.replay import Change, Replayer
from barnabas.protocol.schema import Message
from barnabas.sim.metadata_twin import MetadataTwin
from barnabas.sim.scenario import CLUSTER
from tests.sim.bugs_switch import Patch, bug


def without_twin(patch: Patch) -> None:
    patch(MetadataTwin, "_compare", lambda twin, replayer, image: None)


@bug(
    "the image is not rolled back when the lead is lost", "errors", "changes", "topics", "reads", kind=CLUSTER
)
def not_rolled_back(patch: Patch) -> None:
    def lost(controller: Any, reason: BarnabasError) -> None:
        decided = controller._decided
        honest_lost(controller, reason)
        controller._decided = decided

    def activate(controller: Any) -> None:
        decided = controller._decided
        honest_activate(controller)
        if decided.offset > controller._metadata.image.offset:
            controller._decided = decided

    honest_lost, honest_activate = ActiveController.lost, ActiveController.activate
    without_twin(patch)
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
    without_twin(patch)
    patch(ActiveController, "_wait", wait)


@bug("an error is told from what is decided and not committed", "errors", kind=CLUSTER)
def error_from_decided(patch: Patch) -> None:
    async def told(controller: Any) -> None:
        await asyncio.sleep(0)

    without_twin(patch)
    patch(ActiveController, "_told", told)


@bug("an open metadata transaction is published", "topics", "reads", "images", kind=CLUSTER)
def transaction_published(patch: Patch) -> None:
    def replay(replayer: Any, base_offset: int, epoch: int, records: Sequence[Message]) -> list[Change]:
        for record in records:
            if isinstance(record, BeginTransactionRecord):
                replayer._in_transaction = False
            replayer._take(record)
        return [replayer._apply(base_offset + len(records), epoch)]

    without_twin(patch)
    patch(Replayer, "replay", replay)


@bug("fencing elects nobody: a broker that is fenced goes on leading", "fenced", kind=CLUSTER)
def fencing_elects_nobody(patch: Patch) -> None:
    without_twin(patch)
    patch(brokers, "without_broker", lambda image, broker_id, defaults, **_: [])


@bug("unfencing elects nobody: partitions of a broker that is back stay without leader", "calm", kind=CLUSTER)
def unfencing_elects_nobody(patch: Patch) -> None:
    without_twin(patch)
    patch(brokers, "with_broker", lambda image, broker_id, defaults: [])
