"""docs/cluster.md: nodes started by hand, killed, added and replaced print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster_console import ClusterSession, comparable_cluster, free_addresses
from tests.support.console import steps

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()


@pytest.mark.java
def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    shown = steps(PAGE)
    assert len(shown) > 30
    with ClusterSession(tmp_path, PAGE, free_addresses(PAGE)) as session:
        for command, expected in shown:
            printed = session.run(command)
            assert comparable_cluster(printed) == comparable_cluster(expected), command
