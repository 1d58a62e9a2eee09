"""The same promises with snapshots of the metadata all the time, and its log cut behind each of them."""

from __future__ import annotations

import pytest

from barnabas.broker.quorum.snapshots import SnapshotPolicy, Snapshots
from barnabas.cli.sim import replay_command
from barnabas.raft.snapshot import SnapshotId
from barnabas.sim.scenario import LOG
from barnabas.sim.world import simulate

EAGER = SnapshotPolicy(max_bytes=200, interval_ms=0, retention_bytes=0, retention_ms=-1)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_keeps_every_promise_with_snapshots(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[SnapshotId] = []
    take, clean = Snapshots.take, Snapshots.clean
    gone: list[int] = []

    async def counted(self: Snapshots) -> SnapshotId | None:
        snapshot = await take(self)
        if snapshot is not None:
            taken.append(snapshot)
        return snapshot

    async def cleaned(self: Snapshots) -> int:
        gone.append(await clean(self))
        return gone[-1]

    monkeypatch.setattr(SnapshotPolicy, "of", classmethod(lambda cls, settings: EAGER))
    monkeypatch.setattr(Snapshots, "take", counted)
    monkeypatch.setattr(Snapshots, "clean", cleaned)
    outcome = simulate(seed, kind=LOG)
    told = "\n".join([replay_command(seed, None, LOG), *map(str, outcome.violations)])
    assert not outcome.violations, told
    assert len(taken) > 3
    assert sum(gone) > 3
