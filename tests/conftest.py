"""Tests that need another world skip by themselves where it is missing: one line of the summary says so."""

from __future__ import annotations

import pytest

from tests.support.apache_kafka import missing


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # raised from one place, all these skips fold into one line of the summary
    if item.get_closest_marker("java") is not None and (lacking := missing()) is not None:
        pytest.skip(f"needs Java 17 or later and Maven: {lacking}")
