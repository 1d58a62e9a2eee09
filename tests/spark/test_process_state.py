"""What a process of Spark keeps between batches; no Spark is needed for it."""

from __future__ import annotations

import pytest

from barnabas.spark import process_state
from barnabas.spark.exactly_once import Job, not_told
from barnabas.spark.process_state import ProcessState, this_process
from barnabas.spark.sink_options import parse_write_options


def test_a_batch_is_the_first_of_a_run_or_written_again() -> None:
    state = ProcessState()
    assert state.is_first("app", "run", 5)
    state.wrote("app", "run", 5)
    assert not state.is_first("app", "run", 6)
    assert state.is_first("app", "run", 5)
    assert state.is_first("app", "run", 4)
    assert state.is_first("app", "another run", 6)
    assert state.is_first("another app", "run", 6)


def test_a_query_keeps_its_committer_and_the_oldest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    class Loop:
        def __init__(self, name: str) -> None:
            pass

        def run(self, what: str) -> None:
            ended.append(what)

        def close(self) -> None:
            ended.append("loop")

    class Committer:
        def __init__(self, options: object, app: str, step: object) -> None:
            self.app = app

        def close(self) -> str:
            return self.app

    monkeypatch.setattr(process_state, "Background", Loop)
    monkeypatch.setattr(process_state, "Committer", Committer)
    options = parse_write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}, is_stream=True)
    state = ProcessState(most_queries=2)
    one, two, again = (state.committer(Job(options, app, 1), not_told) for app in ("a", "b", "a"))
    assert again is one
    assert two is not one
    state.committer(Job(options, "c", 1), not_told)
    assert ended == ["a", "loop"]
    assert state.committer(Job(options, "b", 2), not_told) is two


def test_a_process_has_one_state() -> None:
    assert this_process() is this_process()
