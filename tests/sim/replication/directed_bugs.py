"""Which script of a directed simulation shows which deliberate bug, and the checker that must say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.sim.checkers.violation import Violation
from tests.sim.replication import scripts, scripts_leaders
from tests.sim.replication.directed import NO_SETTINGS, Script, direct

LAG_S = {"replica.lag.time.max.ms": "3000"}
PROMPT_CHECKPOINTS = {"log.flush.offset.checkpoint.interval.ms": "1000"}
CHECKPOINTS = {"log.flush.offset.checkpoint.interval.ms": str(int(scripts.CHECKPOINT_S * 1000))}
PROMPT_CLEANER = {"log.cleaner.backoff.ms": "200"}
ONE_BATCH_A_FETCH = {"replica.fetch.max.bytes": "100"}


class Directed(NamedTuple):
    """A script, and what it is played on: `is_apart` as in directed.py."""

    script: Script
    is_apart: bool = True
    settings: Mapping[str, str] = NO_SETTINGS
    is_compacted: bool = False

    def play(self, on_line: Callable[[str], None] | None = None) -> list[Violation]:
        return direct(
            self.script,
            self.settings,
            is_apart=self.is_apart,
            is_compacted=self.is_compacted,
            on_line=on_line,
        )

    @property
    def name(self) -> str:
        return self.script.__name__


OUT_OF_SYNC = Directed(scripts.diverging_out_of_sync, is_apart=False)

DIRECTED: dict[str, tuple[Directed, str]] = {
    # what is committed
    "diverging-fetch-counts": (Directed(scripts.diverging_in_sync, is_apart=False), "members"),
    "high-watermark-before-the-cut": (OUT_OF_SYNC, "equal"),
    "high-watermark-kept": (Directed(scripts.emptied_log), "equal"),
    "join-not-counted": (Directed(scripts_leaders.joined_unknown_to_the_leader, settings=LAG_S), "members"),
    # how followers cut and append
    "cut-at-high-watermark": (Directed(scripts_leaders.behind_the_high_watermark), "members"),
    "divergence-not-told": (OUT_OF_SYNC, "equal"),
    "empty-answer-forgets-epoch": (OUT_OF_SYNC, "equal"),
    "cut-keeps-epochs": (Directed(scripts.leader_without_records), "members"),
    "leaders-end-believed": (Directed(scripts.two_leaders_in_a_row), "equal"),
    "late-answer-taken": (Directed(scripts.late_divergence, settings=LAG_S), "kept"),
    "marks-not-lowered": (Directed(scripts.cut_below_its_high_watermark, settings=CHECKPOINTS), "members"),
    "epochs-not-synced": (
        Directed(scripts.power_lost_after_an_epoch, settings=LAG_S | PROMPT_CHECKPOINTS),
        "equal",
    ),
    "other-topics-files": (Directed(scripts.topic_made_anew, is_apart=False), "healing"),
    # who joins the ISR
    "rebooted-follower-joins": (
        Directed(scripts_leaders.join_asked_before_a_reboot, settings=LAG_S),
        "members",
    ),
    "old-epochs-served": (Directed(scripts_leaders.fetch_from_two_epochs_ago), "members"),
    "joins-under-min": (
        Directed(scripts_leaders.slow_follower_under_min, settings=LAG_S | ONE_BATCH_A_FETCH),
        "steady",
    ),
    # who leads
    "laggard-elected": (Directed(scripts_leaders.laggard_first_in_line, settings=LAG_S), "kept"),
    "epoch-kept-after-power-loss": (Directed(scripts_leaders.power_lost_while_eligible), "kept"),
    "fenced-leader-elected": (Directed(scripts_leaders.last_leader_loses_power), "leadership"),
}

# what is wrong without any deliberate bug, and known (docs/simulation.md), with the checker that says so
KNOWN: dict[str, tuple[Directed, str]] = {
    "epoch-begins-in-a-gap": (
        Directed(scripts.compacted_beginning_of_an_epoch, settings=LAG_S | PROMPT_CLEANER, is_compacted=True),
        "equal",
    ),
}
