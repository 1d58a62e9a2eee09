"""A few thousand damaged requests in every test run; `python -m tests.broker.fuzz` sends 100,000."""

from __future__ import annotations

import pytest

from barnabas.broker.handlers import SERVED
from tests.broker.fuzz import run
from tests.broker.mutants import mutants, sensible, sound_payloads


@pytest.mark.parametrize(("sockets", "count"), [(False, 3000), (True, 500)])
def test_damaged_requests_are_answered_or_end_their_connection(sockets: bool, count: int) -> None:
    outcomes = run(seed=7, count=count, sockets=sockets)
    assert sum(outcomes.values()) == count
    # the damage must reach the handlers as well as the frames, or the fuzzer shows nothing
    assert outcomes["answered"] > count / 5
    assert outcomes["closed"] > count / 5


def test_one_seed_gives_the_same_requests() -> None:
    topic_id = bytes(range(16))
    assert list(mutants(3, 50, topic_id)) == list(mutants(3, 50, topic_id))
    assert list(mutants(3, 50, topic_id)) != list(mutants(4, 50, topic_id))


def test_every_api_and_version_that_is_served_is_fuzzed() -> None:
    from random import Random

    seen = {(sound[1], sound[3]) for sound in sound_payloads(bytes(16), Random(1))}
    expected = {
        (key, version) for key, api in SERVED.items() for version in range(api.first, api.last + 1)
    } - {(0, version) for version in range(3)}  # advertised, and not served
    assert seen == expected
    for key in SERVED:
        assert type(sensible(key, bytes(16), Random(1))).__key__ == key
