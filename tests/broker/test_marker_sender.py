"""Markers whose process ends before their sending has begun."""

from __future__ import annotations

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import Any, cast

from barnabas.broker.coordinators.markers import MarkerSender
from barnabas.coordination.effects import Markers, Producer, TopicPartition


def test_nothing_is_left_behind_by_markers_that_were_never_begun() -> None:
    places = (TopicPartition("t", 0), TopicPartition("__consumer_offsets", 0))

    async def send_and_end() -> None:
        host = cast(Any, SimpleNamespace(epoch=0, lost=None))
        peers = SimpleNamespace(known_leader_of=lambda place: 1)
        image = SimpleNamespace(topic=lambda name: SimpleNamespace(partition=lambda number: number))
        replicas = SimpleNamespace(on_changed=[], on_removed=[])
        services = cast(Any, SimpleNamespace(node_id=1, peers=peers, image=image, replicas=replicas))
        MarkerSender(services).send(host, Markers("id", Producer(1, 1), True, 2, places))
        begun = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(begun) == len(places)
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(send_and_end())
        gc.collect()
    assert [str(one.message) for one in said] == []
