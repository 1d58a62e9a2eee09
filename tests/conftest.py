"""What holds for all tests.

Those that need another world skip by themselves where it is missing: one line of the summary says so.
Those of Hypothesis try the same examples in every run, and no example is judged by how long it took, since
a machine may be busy. `--hypothesis-profile=explore` tries new examples.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.support.apache_kafka import missing

settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeat")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # raised from one place, all these skips fold into one line of the summary
    if item.get_closest_marker("java") is not None and (lacking := missing()) is not None:
        pytest.skip(f"needs Java 17 or later and Maven: {lacking}")
