"""What the tests of the log tried, summed up in the last lines of the test run."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tried: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            # the report on the tear-down repeats what the test noted
            noted = report.user_properties if getattr(report, "when", None) == "call" else ()
            for name, value in noted:
                if name in ("crash points", "disk errors"):
                    tried[name] += int(value)
    if tried:
        text = ", ".join(f"{count:,} {name}" for name, count in sorted(tried.items()))
        terminalreporter.write_line(f"tried on the log: {text}")
