"""Makes the pictures of docs/architecture.md: `python -m tools.architecture --write`.

`layers.svg` has the layers of the import-linter contract in pyproject.toml, so it cannot differ from what is
enforced; what a layer is for stands here. `produce.svg` is the exchange between a producer, a leader and a
follower. Both have colours for light and for dark readers. A test holds the files to this.
"""

from __future__ import annotations

import sys
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"

WIDTH, EDGE, GAP = 920, 16, 8
LINE = 15
LETTER = 6.3  # of a description, on average

# what each layer is for, and the band that it belongs to
PRODUCTS, NODE, DECISIONS, DATA, GROUND = "products", "node", "decisions", "data", "ground"
LAYERS = {
    "cli": (PRODUCTS, "the command line: one module a command"),
    "sim": (PRODUCTS, "nodes and clients in virtual time, under faults, from a seed"),
    "testing": (PRODUCTS, "a real broker, or three, inside your pytest"),
    "spark": (PRODUCTS, "topics as Spark's tables and streams, and pipelines"),
    "mirror": (PRODUCTS, "copies topics"),
    "registry": (PRODUCTS, "keeps schemas"),
    "console": (PRODUCTS, "shows a cluster"),
    "client": (NODE, "producer, consumer, admin, on any Kafka"),
    "broker": (NODE, "nodes: connections, one handler an API, replicas, coordinators, the quorum over disk"),
    "transport": (NODE, "connections to another node, versions, back-off"),
    "controller": (DECISIONS, "topics, brokers, elections, settings"),
    "groups": (DECISIONS, "members and committed offsets"),
    "transactions": (DECISIONS, "producers and how transactions end"),
    "raft": (DECISIONS, "consensus on the metadata log"),
    "metadata": (DECISIONS, "its records, and the image they are replayed into"),
    "coordination": (DECISIONS, "what groups and transactions share"),
    "log": (DATA, "a partition on disk, in Kafka's own files"),
    "records": (DATA, "record batches, compression, the compiled kernel"),
    "protocol": (DATA, "messages, their codecs, headers, frames"),
    "core": (GROUND, "clock, disk, network, workers, randomness as seams; settings; errors"),
}
BANDS = {
    PRODUCTS: ("what people start", "#dbeafe", "#93b4e8", "#16263f", "#3b5f94"),
    NODE: ("does I/O, through seams", "#dcfce7", "#8cc9a1", "#12301f", "#3b7a54"),
    DECISIONS: ("decides, without I/O", "#fef3c7", "#d9b95c", "#33290d", "#8a7021"),
    DATA: ("bytes and files", "#ede9fe", "#b3a4e3", "#261f42", "#6553a3"),
    GROUND: ("the ground", "#e5e7eb", "#a8adb7", "#23272e", "#5b626d"),
}


Row = list[tuple[str, bool]]  # names, and whether each exists yet


def layers() -> list[Row]:
    """The rows of the contract, top down. `__main__` only calls `cli`."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    rows = [[name.strip() for name in row.split("|")] for row in contract["layers"]]
    return [[(name.strip("()"), "(" not in name) for name in row] for row in rows if row != ["__main__"]]


def _svg(height: int, style: str, body: Sequence[str], title: str) -> str:
    sheet = f"""<style>
text {{ font: 13px ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }}
.name {{ font: bold 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }}
.small {{ font-size: 12px; fill: #57606a }}
.page {{ fill: #ffffff }} .line {{ stroke: #57606a; fill: none }} .head {{ fill: #57606a }}
.note {{ fill: #fef3c7; stroke: #d9b95c }}
{style}@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }} .small {{ fill: #9da7b3 }} .page {{ fill: #0d1117 }}
.line {{ stroke: #9da7b3 }} .head {{ fill: #9da7b3 }} .note {{ fill: #33290d; stroke: #8a7021 }}
{_dark()}}}
</style>"""
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    page = f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>'
    return "\n".join([start, f"<title>{escape(title)}</title>", sheet, page, *body, "</svg>", ""])


def _light() -> str:
    return "".join(f".{name} {{ fill: {each[1]}; stroke: {each[2]} }}\n" for name, each in BANDS.items())


def _dark() -> str:
    return "".join(f".{name} {{ fill: {each[3]}; stroke: {each[4]} }}\n" for name, each in BANDS.items())


def _text(x: float, y: float, said: str, kind: str = "", anchor: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    anchor = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:g}" y="{y:g}"{kind}{anchor}>{escape(said)}</text>'


# ---- the layers


def layers_picture() -> str:
    """The layers, top down, neighbours side by side."""
    rows, body, y = layers(), [], EDGE
    band = ""
    for row in rows:
        now = LAYERS[row[0][0]][0]
        if now != band:
            band = now
            body.append(_text(EDGE, y + 14, BANDS[band][0], "small"))
            y += 22
        height = 30 + LINE * max(len(_lines(row, name, exists)) for name, exists in row)
        body += _row(row, y, height)
        y += height + GAP
    title = "The layers: each imports only what stands below it"
    return _svg(y + EDGE - GAP, _light(), body, title)


def _width(row: Row) -> float:
    return (WIDTH - 2 * EDGE - GAP * (len(row) - 1)) / len(row)


def _lines(row: Row, name: str, exists: bool) -> list[str]:
    told = LAYERS[name][1] + ("" if exists else " (to come)")
    return textwrap.wrap(told, int((_width(row) - 20) / LETTER))


def _row(row: Row, y: int, height: int) -> Iterator[str]:
    width = _width(row)
    for number, (name, exists) in enumerate(row):
        x = EDGE + number * (width + GAP)
        dashes = "" if exists else ' stroke-dasharray="5 4" fill-opacity="0.3"'
        place = f'x="{x:g}" y="{y}" width="{width:g}" height="{height}"'
        yield f'<rect class="{LAYERS[name][0]}" {place} rx="6"{dashes}/>'
        yield _text(x + 12, y + 19, name, "name")
        for line, part in enumerate(_lines(row, name, exists)):
            yield _text(x + 12, y + 36 + line * LINE, part, "small")


# ---- the exchange of a produce


class Arrow(NamedTuple):
    """A message from one column to another."""

    start: int
    end: int
    said: str


class Note(NamedTuple):
    """What happens in one column."""

    at: int
    said: str


COLUMNS = (("producer", 110), ("leader", 430), ("follower (each in the ISR)", 760))
EXCHANGE: tuple[Arrow | Note, ...] = (
    Arrow(2, 1, "Fetch from offset 7: waits for records"),
    Arrow(0, 1, "Produce, acks=all"),
    Note(1, "append at offset 7: the log ends at 8, the high watermark stays at 7"),
    Arrow(1, 2, "answer: the batch, high watermark 7"),
    Note(2, "append the same bytes at 7"),
    Arrow(2, 1, "Fetch from offset 8: it holds all below 8"),
    Note(1, "every in-sync replica holds 7: the high watermark moves to 8"),
    Arrow(1, 0, "Produce response: offset 7"),
    Arrow(1, 2, "answer: high watermark 8"),
)
STEP = 46
HEAD = '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
HEAD += '<path class="head" d="M0,0 L9,4 L0,8 z"/></marker></defs>'


def produce_picture() -> str:
    """A record with acks=all, from the producer to the acknowledgement; time runs downwards."""
    height = 64 + STEP * len(EXCHANGE) + EDGE
    body = [HEAD]
    for name, x in COLUMNS:
        body.append(_text(x, 30, name, "name", "middle"))
        body.append(f'<line class="line" x1="{x}" y1="42" x2="{x}" y2="{height - EDGE}" opacity="0.45"/>')
    for number, each in enumerate(EXCHANGE, 1):
        y = 34 + STEP * number
        body += _arrow(each, y, number) if isinstance(each, Arrow) else _note(each, y, number)
    return _svg(height, _light(), body, "A produce with acks=all: leader, follower, acknowledgement")


def _arrow(arrow: Arrow, y: int, number: int) -> Iterator[str]:
    start, end = COLUMNS[arrow.start][1], COLUMNS[arrow.end][1]
    yield f'<line class="line" x1="{start}" y1="{y}" x2="{end}" y2="{y}" marker-end="url(#head)"/>'
    yield _text((start + end) / 2, y - 7, f"{number}. {arrow.said}", "", "middle")


def _note(note: Note, y: int, number: int) -> Iterator[str]:
    said = f"{number}. {note.said}"
    width = len(said) * 6.6 + 20
    x = min(COLUMNS[note.at][1] - width / 2, WIDTH - EDGE - width)
    yield f'<rect class="note" x="{x:g}" y="{y - 19}" width="{width:g}" height="28" rx="5"/>'
    yield _text(x + width / 2, y, said, "", "middle")


PICTURES = {"layers.svg": layers_picture, "produce.svg": produce_picture}


def main() -> None:
    for name, draw in PICTURES.items():
        if "--write" in sys.argv[1:]:
            (IMAGES / name).write_text(draw())
        else:
            sys.stdout.write(draw())


if __name__ == "__main__":
    main()
