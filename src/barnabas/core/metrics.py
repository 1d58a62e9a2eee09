"""Numbers about a running node, and the text in which Prometheus reads them.

Whoever does the work only adds to plain integers of its own; everything else (names, labels, sums, quantiles)
happens when somebody asks. So there is no registry to look anything up in, no lock and no thread: `Page` is
made anew for each answer, filled by those who know the numbers, and rendered.

A histogram counts durations in buckets four to the octave, from a microsecond on. The fourth power of the
microseconds has its bucket's number as bit length: two multiplications, where a search would cost a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import nan
from typing import NamedTuple

BUCKETS = 256  # up to 2^64 microseconds, which is for ever
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
WINDOW_SECONDS = 60.0
LINES_A_PIECE = 500

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Histogram:
    """How long something took, how often. On the hot path its two lines are written out instead."""

    __slots__ = ("_marks", "counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.seconds = 0.0
        # when the counts were noted, and what they were; the older note is where the window begins
        self._marks: list[tuple[float, list[int]]] = []

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bucket_of(seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def at_most(self, octave: int) -> int:
        """How many took less than 2^octave microseconds."""
        return sum(self.counts[: 4 * octave + 1])

    def recent_quantiles(self, now: float, quantiles: Iterable[float] = QUANTILES) -> list[float]:
        """Those of the last minute or two, in seconds; nan where nothing happened. `now` is monotonic."""
        if not self._marks or now - self._marks[-1][0] >= WINDOW_SECONDS:
            self._marks = [*self._marks[-1:], (now, self.counts.copy())]
        # at first there is nothing older than now: all that ever happened is recent
        before = self._marks[0][1] if len(self._marks) > 1 else [0] * BUCKETS
        return quantiles_of([new - old for new, old in zip(self.counts, before, strict=True)], quantiles)


def bucket_of(seconds: float) -> int:
    """The bucket of a duration; the last one holds whatever is longer."""
    square = seconds * seconds * 1e12
    return min(int(square * square).bit_length(), BUCKETS - 1)


def quantiles_of(counts: list[int], quantiles: Iterable[float]) -> list[float]:
    """In seconds: the upper end of the bucket in which each quantile lies, at most a fifth too much."""
    total = sum(counts)
    if total == 0:
        return [nan for _ in quantiles]
    return [_upper_end(counts, quantile * total) for quantile in quantiles]


def _upper_end(counts: list[int], rank: float) -> float:
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= rank:
            return float(2.0 ** (bucket / 4)) / 1e6
    raise AssertionError("a rank beyond the last observation")


class Family(NamedTuple):
    """What is known of a name before there is a number: its kind, its labels, and a sentence."""

    name: str
    kind: str  # counter, gauge, summary, histogram
    labels: tuple[str, ...]
    help: str


def read_families(rows: str) -> dict[str, Family]:
    """A table of families, one a line: name, kind, labels joined by commas (- for none), a sentence."""
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
        """One sample. Labels in the family's order; an empty one is the same as none, and is left out."""
        self._add(name, "", value, zip(self._families[name].labels, labels, strict=False))

    def add_summary(
        self, name: str, histogram: Histogram, now: float, *labels: str, scale: float = 1.0
    ) -> None:
        """Recent quantiles, the number of all and their sum; `scale` is how many of its unit a second has."""
        named = list(zip(self._families[name].labels, labels, strict=False))
        for quantile, seconds in zip(QUANTILES, histogram.recent_quantiles(now), strict=True):
            self._add(name, "", seconds * scale, [*named, ("quantile", _quantile_text(quantile))])
        self._add(name, "_sum", histogram.seconds * scale, named)
        self._add(name, "_count", histogram.count, named)

    def add_histogram(self, name: str, histogram: Histogram, octaves: Iterable[int], *labels: str) -> None:
        """Cumulative buckets that end at 2^octave microseconds, the number of all and their sum."""
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
        """The page in pieces that are quickly made, so that others may have their turn in between."""
        for name, lines in self._lines.items():
            if lines:
                kind, text = self._families[name].kind, self._families[name].help
                # OpenMetrics calls a counter by its name without the ending of its samples
                shown = name.removesuffix("_total") if openmetrics and kind == "counter" else name
                head = f"# HELP {shown} {text}\n# TYPE {shown} {kind}\n"
                yield head.encode()
                for at in range(0, len(lines), LINES_A_PIECE):
                    yield ("\n".join(lines[at : at + LINES_A_PIECE]) + "\n").encode()
        if openmetrics:
            yield b"# EOF\n"


def _quantile_text(quantile: float) -> str:
    """As exporters of Kafka's own metrics write it: 0.50, 0.999."""
    return f"{quantile:.2f}" if round(quantile, 2) == quantile else str(quantile)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
