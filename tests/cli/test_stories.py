"""`barnabas story`: every story on real processes, its count, and its picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.cli.stories.picture import draw
from barnabas.cli.stories.timeline import CUT_OFF, DEAD, LEADS, SERVES, Timeline
from barnabas.cli.story import PLAYS
from barnabas.core.clock import SystemClock

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def play(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Plays a story; what it tells machines, after its count and picture were looked at."""

    def run(name: str) -> dict[str, Any]:
        picture = tmp_path / f"{name}.svg"
        status = main(["story", name, "--json", "--svg", str(picture)])
        printed = capsys.readouterr()
        assert status == 0, printed.out + printed.err
        told: dict[str, Any] = json.loads(printed.out)
        assert told["right"]
        result = told["result"]
        assert (result["missing"], result["twice"]) == (0, 0)
        assert result["readable"] == result["acknowledged"] + result["unanswered"] > 300
        times = [moment["at_s"] for moment in told["moments"]]
        assert times == sorted(times)
        assert ElementTree.parse(picture).getroot().tag == f"{SVG}svg"
        return told

    return run


def texts(told: dict[str, Any]) -> str:
    return "\n".join(moment["text"] for moment in told["moments"])


pytestmark = pytest.mark.slow  # three nodes in processes of their own, each time


def test_broker_death(play: Any) -> None:
    told = play("broker-death")
    assert [moment["becomes"] for moment in told["moments"] if moment["becomes"]] == [DEAD, SERVES]
    assert "leads orders-0 in epoch" in texts(told)
    assert "is in sync again, in all partitions" in texts(told)


def test_isolated_leader(play: Any) -> None:
    told = play("isolated-leader")
    assert [moment["becomes"] for moment in told["moments"] if moment["becomes"]] == [CUT_OFF, SERVES]
    assert "for the majority" in texts(told)
    assert "that were never committed" in texts(told)


def test_split_brain(play: Any) -> None:
    told = play("split-brain")
    assert "is the active controller in epoch" in texts(told)
    assert "is no active controller any more" in texts(told)


def test_consumer_death(play: Any) -> None:
    told = play("consumer-death")
    assert told["result"]["unprocessed"] == 0
    assert told["result"]["processed"] == told["result"]["readable"]
    assert "before it commits that" in texts(told)


def test_rebalance_storm(play: Any) -> None:
    told = play("rebalance-storm")
    assert (told["result"]["unprocessed"], told["result"]["faults"]) == (0, [])
    assert told["result"]["rebalances"] >= 3


def test_story_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["story", "broker-death", "--svg", "/nowhere/at/all.svg"]) == 1
    assert "there is no directory for" in capsys.readouterr().err
    assert set(PLAYS) == {
        "broker-death",
        "consumer-death",
        "isolated-leader",
        "split-brain",
        "rebalance-storm",
    }


def test_picture_has_lanes_moments_and_result() -> None:
    timeline = Timeline(SystemClock(), lambda moment: None)
    timeline.turn("node 1", LEADS)
    timeline.add("node 1", "is <killed>", DEAD)
    timeline.mark("producer")
    root = ElementTree.fromstring(draw("a & b", timeline, ["3 records"]))
    shown = [each.text for each in root.iter(f"{SVG}text")]
    assert {"a & b", "node 1", "producer", "3 records", "leads", "dead"} <= set(shown)
    assert any(text and text.endswith("node 1: is <killed>") for text in shown)
