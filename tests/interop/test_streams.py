"""Kafka Streams, exactly once, through kills of the application and of the broker (streams.py: longer)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.interop.streams import SETTINGS, Life
from tests.support.targets import Target

pytestmark = pytest.mark.java


def test_an_application_counts_exactly_once(
    new_target: Callable[[Mapping[str, str]], Target], target_kind: str, tmp_path: Path
) -> None:
    target = new_target(SETTINGS)
    is_kafka = target_kind == "kafka"
    life = Life(target, tmp_path, timeout_ms=60_000 if is_kafka else 5_000)
    # who loses its directory waits for the timeout, which is long on Apache Kafka
    life.run(["application", "broker", "both", *([] if is_kafka else ["directory"])], words=100)
    life.check()
