"""A timeline as an SVG picture: a lane for each node and client, numbered moments, and a legend below.

Bars show what a node is: serving, leading the partition that the story is about, dead or cut off. A client's
lane is as dark as many records were acknowledged or read at that time, so that a pause is white.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from barnabas.cli.stories.timeline import CUT_OFF, DEAD, GONE, LEADS, SERVES, Moment, Timeline

_WIDTH, _LEFT, _RIGHT = 960, 130, 20
_TOP, _LANE, _BAR, _LINE = 86, 34, 18, 19
_BINS = 160
_COLOURS = {SERVES: "#a9cfa4", LEADS: "#3b7d3a", DEAD: "#c0392b", CUT_OFF: "#e69f3c", GONE: "#dddddd"}
_WORDS = {SERVES: "serves", LEADS: "leads", DEAD: "dead", CUT_OFF: "cut off", GONE: "not there"}


def draw(title: str, timeline: Timeline, result: Sequence[str]) -> str:
    """The picture."""
    moments = sorted((*timeline.moments, *timeline.quiet), key=lambda each: each.at_s)
    lanes = list(dict.fromkeys(each.lane for each in moments if each.becomes)) + list(timeline.marks)
    lanes = sorted(dict.fromkeys(lanes), key=lambda lane: (lane in timeline.marks, lane))
    last = max((each.at_s for each in moments), default=1.0)
    end_s = max([last, *(max(found) for found in timeline.marks.values() if found)]) or 1.0
    told = timeline.moments
    bottom = _TOP + _LANE * len(lanes)
    height = bottom + 46 + _LINE * (len(told) + len(result)) + 14
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="14" y="26" font-size="17" font-weight="bold">{escape(title)}</text>',
        *_legend(moments),
    ]
    for number, lane in enumerate(lanes):
        y = _TOP + _LANE * number
        parts.append(f'<text x="14" y="{y + 14}">{escape(lane)}</text>')
        if lane in timeline.marks:
            parts += _density(timeline.marks[lane], end_s, y)
        else:
            parts += _bars([each for each in moments if each.lane == lane and each.becomes], end_s, y)
    parts += _axis(end_s, bottom)
    parts += _moments(told, end_s, bottom)
    y = bottom + 46 + _LINE * len(told)
    for number, text in enumerate(result):
        parts.append(f'<text x="14" y="{y + _LINE * number}" font-weight="bold">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(at_s: float, end_s: float) -> float:
    return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * min(at_s, end_s) / end_s, 1)


def _legend(moments: Sequence[Moment]) -> Iterator[str]:
    x = _LEFT
    for kind in (each for each in _COLOURS if any(moment.becomes == each for moment in moments)):
        yield f'<rect x="{x}" y="38" width="14" height="12" fill="{_COLOURS[kind]}"/>'
        yield f'<text x="{x + 19}" y="49" font-size="12">{_WORDS[kind]}</text>'
        x += 100


def _bars(turns: Sequence[Moment], end_s: float, y: int) -> Iterator[str]:
    for number, turn in enumerate(turns):
        until = turns[number + 1].at_s if number + 1 < len(turns) else end_s
        x, right = _x(max(0.0, turn.at_s), end_s), _x(until, end_s)
        colour = _COLOURS[turn.becomes or SERVES]
        yield f'<rect x="{x}" y="{y}" width="{max(1.0, right - x):.1f}" height="{_BAR}" fill="{colour}"/>'


def _density(times: Sequence[float], end_s: float, y: int) -> Iterator[str]:
    counts = [0] * _BINS
    for at_s in times:
        counts[min(_BINS - 1, max(0, int(at_s / end_s * _BINS)))] += 1
    most = max(counts) or 1
    for number, count in enumerate(counts):
        if count:
            x, right = _x(number * end_s / _BINS, end_s), _x((number + 1) * end_s / _BINS, end_s)
            shade = 0.25 + 0.75 * count / most
            yield (
                f'<rect x="{x}" y="{y}" width="{right - x:.1f}" height="{_BAR}" fill="#2c5f8a" '
                f'fill-opacity="{shade:.2f}"/>'
            )


def _axis(end_s: float, y: int) -> Iterator[str]:
    step = next(each for each in (1, 2, 5, 10, 20, 60, 600) if end_s / each <= 12 or each == 600)
    for second in range(0, int(end_s) + 1, step):
        x = _x(second, end_s)
        yield f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{y}" stroke="#000" stroke-opacity="0.12"/>'
        yield f'<text x="{x}" y="{y + 12}" font-size="11" text-anchor="middle">{second} s</text>'


def _moments(told: Sequence[Moment], end_s: float, bottom: int) -> Iterator[str]:
    for number, moment in enumerate(told, 1):
        x, y = _x(moment.at_s, end_s), bottom + 40 + _LINE * number - 13
        yield f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{bottom}" stroke="#444" stroke-dasharray="2 3"/>'
        # those that are close to each other stand at two heights
        above = _TOP - 8 - 10 * (number % 2)
        yield f'<text x="{x + 2}" y="{above}" font-size="10" fill="#444">{number}</text>'
        text = f"{number}.  {moment.at_s:.2f} s  {moment.lane}: {moment.text}"
        yield f'<text x="14" y="{y}" font-size="12">{escape(text)}</text>'
