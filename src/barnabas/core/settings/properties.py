"""Java's .properties format, in which Kafka's configuration files are written.

A key ends at the first `=`, `:` or blank without a backslash before it; a line that ends with an odd number
of backslashes continues on the next; lines that begin with `#` or `!` are comments; `\\uXXXX` is a UTF-16
unit. Java reads such files as Latin-1: decode bytes so for the same result. The last value of a repeated key
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.core.settings.definition import InvalidSetting

_BLANKS = " \t\f"
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a file's text; InvalidSetting names the line that cannot be read."""
    properties = {}
    for number, line in _logical_lines(text):
        end = _key_end(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        properties[_unescape(line[:end], number)] = _unescape(rest, number)
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """A file's text, one property a line, which Java reads back as these properties."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value)}\n" for key, value in properties.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, without comments and blank ones; each with its first line's number."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_BLANKS)
        if not parts:
            first = number
            if not line or line[0] in "#!":
                continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join((*parts, line))
        parts = []
    if parts:
        yield first, "".join(parts)


def _key_end(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    units = []
    at = 0
    while at < len(text):
        unit = text[at]
        at += 1
        if unit == "\\" and at < len(text):
            unit = text[at]
            at += 1
            if unit == "u":
                unit = _utf16_unit(text[at : at + 4], line_number)
                at += 4
            else:
                unit = _LETTERS.get(unit, unit)
        units.append(unit)
    joined = "".join(units)
    # a character beyond 16 bits is written as two escapes
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _utf16_unit(digits: str, line_number: int) -> str:
    try:
        if len(digits) < 4 or not digits.isalnum():
            raise ValueError
        return chr(int(digits, 16))
    except ValueError:
        raise InvalidSetting(
            f"line {line_number}: \\u{digits} is not \\u and four hexadecimal digits"
        ) from None


def _escape(text: str, *, is_key: bool = False) -> str:
    escaped = "".join(_escape_one(character, is_key=is_key) for character in text)
    return "\\" + escaped if not is_key and text.startswith(" ") else escaped


def _escape_one(character: str, *, is_key: bool) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if is_key and character in " =:#!":
        return "\\" + character
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
