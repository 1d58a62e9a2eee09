"""The twin of a leader's metadata: it is armed in every simulation, and notices a difference."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.metadata.delta import Delta
from barnabas.sim.metadata_twin import MetadataTwin
from barnabas.sim.world import simulate
from tests.broker.test_quorum import create, new_disk, running


def test_it_compares_in_every_life_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    twins: list[MetadataTwin] = []
    init = MetadataTwin.__init__

    def remember(twin: MetadataTwin, *arguments: object) -> None:
        init(twin, *arguments)  # type: ignore[arg-type]
        twins.append(twin)

    monkeypatch.setattr(MetadataTwin, "__init__", remember)
    outcome = simulate(1, seconds=20)
    assert not outcome.violations
    assert sum(twin.compared for twin in twins) >= 3


def test_it_notices_an_image_that_the_log_does_not_make() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            told: list[str] = []
            twin = MetadataTwin(quorum, told.append)
            await create(quorum, "letters")
            assert (twin.compared, told) == (1, [])
            image = quorum.metadata.image
            quorum.metadata.publish(image._replace(next_producer_id=7), Delta(image))
            assert len(told) == 1

    disk = new_disk()
    asyncio.run(run())
