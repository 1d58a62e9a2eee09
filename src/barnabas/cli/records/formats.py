"""A record as bytes of output: for people, as a line of JSON, or by a template.

For people: a line of where and when, key and headers, and the value below it, indented; JSON is laid out, and
coloured at a terminal. By a template: names in braces, `{key} {value}`, with the payloads as the bytes they
are. A newline follows each record unless the template ends with `\\c`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from barnabas.cli.failures import CommandFailed
from barnabas.cli.payload import headers_to_json, one_line, put_bytes, shown, shown_headers
from barnabas.cli.times import time_text
from barnabas.client.fetched import ConsumerRecord

Format = Callable[[ConsumerRecord], bytes]

_RESET, _DIM = "\x1b[0m", "\x1b[2m"
_NAME, _STRING, _NUMBER, _WORD = "\x1b[36m", "\x1b[32m", "\x1b[33m", "\x1b[35m"
_JSON_TOKENS = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=:)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>true|false|null)'
    r"|(?P<number>-?\d[\d.eE+-]*)"
)
_COLOURS = {"name": _NAME, "string": _STRING, "word": _WORD, "number": _NUMBER}


# ---- for people ------------------------------------------------------------------------------------------


class Readable:
    """Records for people."""

    def __init__(self, *, is_coloured: bool) -> None:
        self._is_coloured = is_coloured

    def __call__(self, record: ConsumerRecord) -> bytes:
        parts = [f"{record.partition}@{record.offset}", time_text(record.timestamp_ms)]
        if record.key is not None:
            parts.append(f"key={one_line(shown(record.key))}")
        if record.headers:
            parts.append(f"headers: {shown_headers(record.headers)}")
        line = "  ".join(parts)
        if self._is_coloured:
            line = f"{_DIM}{line}{_RESET}"
        value = self._value(record.value).replace("\n", "\n    ")
        # half of a surrogate pair, which JSON may name, is shown as JSON writes it
        return f"{line}\n    {value}\n".encode(errors="backslashreplace")

    def _value(self, value: bytes | None) -> str:
        document = as_json(value)
        if document is None:
            return shown(value, limit_bytes=None)
        text = json.dumps(document, indent=2, ensure_ascii=False)
        return _coloured(text) if self._is_coloured else text


def as_json(value: bytes | None) -> Any:
    """The JSON object or list that a value is; None where it is none."""
    if not value or value[:1] not in b"{[ \n\t\r":
        return None
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, (dict, list)) else None


def _coloured(text: str) -> str:
    return _JSON_TOKENS.sub(lambda found: f"{_COLOURS[found.lastgroup or 'name']}{found[0]}{_RESET}", text)


# ---- for machines ----------------------------------------------------------------------------------------


def json_line(record: ConsumerRecord) -> bytes:
    """One object on a line, in the form that `produce --json` takes."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    put_bytes(fields, "key", record.key)
    put_bytes(fields, "value", record.value)
    if record.headers:
        fields["headers"] = headers_to_json(record.headers)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECES = re.compile(
    r"\\(?P<escape>.)|(?P<brace>\{\{|\}\})|\{(?P<name>[^{}]*)\}|(?P<plain>[^\\{}]+)|(?P<odd>.)"
)
_NOTHING_FOLLOWS = "\\c"


def template(text: str, null: str = "") -> Format:
    """The format that a template describes; `null` stands where a key or value is null."""
    follows = b"\n"
    if text.endswith(_NOTHING_FOLLOWS):
        text, follows = text.removesuffix(_NOTHING_FOLLOWS), b""
    pieces = [_piece(found, null.encode()) for found in _PIECES.finditer(text)]

    def format_record(record: ConsumerRecord) -> bytes:
        return b"".join([each if isinstance(each, bytes) else each(record) for each in pieces]) + follows

    return format_record


def _piece(found: re.Match[str], null: bytes) -> bytes | Format:
    kind = found.lastgroup
    if kind == "plain":
        return found[0].encode()
    if kind == "brace":
        return found[0][:1].encode()
    if kind == "escape" and found["escape"] in _ESCAPES:
        return _ESCAPES[found["escape"]]
    if kind == "name":
        name = found["name"]
        if name in FIELDS:
            return FIELDS[name]
        if name in ("key", "value"):
            return _payload(name, null)
        raise CommandFailed(
            f"--format: there is no {{{name}}}", f"there are {', '.join(['key', 'value', *FIELDS])}"
        )
    raise CommandFailed(
        f"--format: {found[0]!r} at character {found.start() + 1} means nothing",
        "braces hold names, {{ and }} are braces; \\n \\t \\r \\0 \\\\ and, at the end, \\c are known",
    )


def _payload(name: str, null: bytes) -> Format:
    def payload(record: ConsumerRecord) -> bytes:
        data: bytes | None = getattr(record, name)
        return null if data is None else data

    return payload


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


FIELDS: dict[str, Format] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: b"%d" % record.timestamp_ms,
    "time": lambda record: time_text(record.timestamp_ms).encode(),
    "headers": lambda record: shown_headers(record.headers).encode(),
    "key_size": lambda record: _size(record.key),
    "value_size": lambda record: _size(record.value),
}
