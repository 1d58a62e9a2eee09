"""Metrics of a running node, and Prometheus' text format for them.

The working code only adds to plain integers of its own; names, labels, sums and quantiles are made when the
metrics are read. So there is no registry, no lock and no thread: each answer makes a new `Page`, which the
owners of the numbers fill, and renders it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.core.histogram import QUANTILES, Histogram

LINES_A_PIECE = 500

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Family(NamedTuple):
    """A metric without its values: name, kind, labels and help text."""

    name: str
    kind: str  # counter, gauge, summary, histogram
    labels: tuple[str, ...]
    help: str


def read_families(rows: str) -> dict[str, Family]:
    """Read a table of families, one a line: name, kind, labels joined by commas (- for none), help text."""
    families = {}
    for row in rows.splitlines():
        name, kind, labels, text = row.split(" ", 3)
        families[name] = Family(name, kind, () if labels == "-" else tuple(labels.split(",")), text)
    return families


class Page:
    """One answer: samples by family, in the families' order."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families
        self._lines: dict[str, list[str]] = {name: [] for name in families}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add a sample. Labels in the family's order; an empty label is the same as none, and is left out."""
        self._add(name, "", value, zip(self._families[name].labels, labels, strict=False))

    def add_summary(
        self, name: str, histogram: Histogram, now: float, *labels: str, scale: float = 1.0
    ) -> None:
        """Add recent quantiles, the count and the sum of all; `scale` is metric units a second."""
        named = list(zip(self._families[name].labels, labels, strict=False))
        for quantile, seconds in zip(QUANTILES, histogram.recent_quantiles(now), strict=True):
            self._add(name, "", seconds * scale, [*named, ("quantile", _quantile_text(quantile))])
        self._add(name, "_sum", histogram.seconds * scale, named)
        self._add(name, "_count", histogram.count, named)

    def add_histogram(self, name: str, histogram: Histogram, octaves: Iterable[int], *labels: str) -> None:
        """Add cumulative buckets that end at 2^octave microseconds, the count and the sum of all."""
        named = list(zip(self._families[name].labels, labels, strict=False))
        for octave in octaves:
            self._add(
                name, "_bucket", histogram.at_most(octave), [*named, ("le", repr(float(2**octave) / 1e6))]
            )
        count = histogram.count
        self._add(name, "_bucket", count, [*named, ("le", "+Inf")])
        self._add(name, "_sum", histogram.seconds, named)
        self._add(name, "_count", count, named)

    def _add(self, name: str, suffix: str, value: float, labels: Iterable[tuple[str, str]]) -> None:
        told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels if text)
        shown = value if value == value else "NaN"
        self._lines[name].append(f"{name}{suffix}{{{told}}} {shown}" if told else f"{name}{suffix} {shown}")

    def render(self, *, openmetrics: bool = False) -> Iterator[bytes]:
        """The page in small pieces, so that other tasks can run in between."""
        for name, lines in self._lines.items():
            if lines:
                kind, text = self._families[name].kind, self._families[name].help
                # OpenMetrics names a counter without the suffix of its samples
                shown = name.removesuffix("_total") if openmetrics and kind == "counter" else name
                head = f"# HELP {shown} {text}\n# TYPE {shown} {kind}\n"
                yield head.encode()
                for at in range(0, len(lines), LINES_A_PIECE):
                    yield ("\n".join(lines[at : at + LINES_A_PIECE]) + "\n").encode()
        if openmetrics:
            yield b"# EOF\n"


def _quantile_text(quantile: float) -> str:
    """In the format of the exporters of Kafka's own metrics: 0.50, 0.999."""
    return f"{quantile:.2f}" if round(quantile, 2) == quantile else str(quantile)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
