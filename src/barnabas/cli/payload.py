"""Bytes for people and for pipes: keys, values and headers as text where they are text, as hex where not.

For people a payload is text if it is UTF-8 without control characters; anything else is hex. For pipes it is
text if it is UTF-8 at all, for JSON keeps every such text exactly; anything else is base64 in a field whose
name says so. Both directions of the second form stand here, so that what `consume --json` prints is what
`produce --json` takes.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from barnabas.core.errors import BarnabasError
from barnabas.records.record import Headers

BASE64 = "_base64"
_HEX_SHOWN_BYTES = 256


class BadPayload(BarnabasError):
    """A line of JSON that is no record; the message says why."""


# ---- for people -----------------------------------------------------------------------------------------


def plain_text(data: bytes) -> str | None:
    """The text that a person would take the bytes for; None where they are none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or all(c.isprintable() or c in "\n\t\r" for c in text) else None


def shown(data: bytes | None, *, limit_bytes: int | None = _HEX_SHOWN_BYTES) -> str:
    """A payload on one line or more: `null`, text, or hex, cut where it is longer than the limit."""
    if data is None:
        return "null"
    text = plain_text(data)
    if text is not None:
        return text if limit_bytes is None or len(text) <= limit_bytes else f"{text[:limit_bytes]}..."
    cut = data if limit_bytes is None else data[:limit_bytes]
    return f"0x{cut.hex()}{'...' * (len(cut) < len(data))}"


def one_line(text: str) -> str:
    """The text with what would leave its line, or do something to a terminal, written as escapes."""
    return text if text.isprintable() else repr(text)[1:-1]


def shown_headers(headers: Headers) -> str:
    """`name=value` for each header, on one line."""
    return ", ".join(one_line(f"{name}={shown(value)}") for name, value in headers)


# ---- for pipes ------------------------------------------------------------------------------------------


def put_bytes(fields: dict[str, Any], name: str, data: bytes | None) -> None:
    """Add a payload to an object: under its name as text or null, else under `<name>_base64`."""
    if data is None:
        fields[name] = None
        return
    try:
        fields[name] = data.decode()
    except UnicodeDecodeError:
        fields[name + BASE64] = base64.b64encode(data).decode()


def take_bytes(fields: dict[str, Any], name: str) -> bytes | None:
    """The payload that `put_bytes` added; what is neither text nor null is taken as JSON."""
    encoded = fields.get(name + BASE64)
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise BadPayload(f"{name}{BASE64} is not base64") from None
    value = fields.get(name)
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _encoded(name, text)


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadPayload(f"{name} holds half of a surrogate pair, which no bytes stand for") from None


def headers_to_json(headers: Headers) -> list[dict[str, Any]]:
    """Headers in their order, each `{"key": ..., "value": ...}`: a name may come twice."""
    listed = []
    for name, value in headers:
        header: dict[str, Any] = {"key": name}
        put_bytes(header, "value", value)
        listed.append(header)
    return listed


def headers_from_json(given: Any) -> Headers:
    """The headers of such a list, or of a plain object of names and values."""
    if given is None:
        return ()
    if isinstance(given, dict):
        given = [{"key": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise BadPayload('headers are an object, or a list of {"key": ..., "value": ...}')
    headers = []
    for each in given:
        name = each.get("key")
        if not isinstance(name, str):
            raise BadPayload("a header has no key that is text")
        _encoded("a header's key", name)
        headers.append((name, take_bytes(each, "value")))
    return tuple(headers)
