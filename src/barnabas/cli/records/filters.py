"""Which records are wanted: `key=K.`, `value~error`, `header.trace=abc`, `value.order.state!=open`.

A field, `=` `!=` or `~` (a regular expression found somewhere in it), and a text. `value.a.b` looks into a
value that is JSON. What a record does not have is equal to nothing; a null key or value equals `null`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any

from barnabas.cli.records.formats import as_json
from barnabas.client.fetched import ConsumerRecord

Filter = Callable[[ConsumerRecord], bool]

_FILTER = re.compile(r"(?P<field>[^=!~]+)(?P<operator>!=|=|~)(?P<text>.*)", re.DOTALL)
_NULL = b"null"


def parse_filter(text: str) -> Filter:
    """The filter that a command line describes."""
    found = _FILTER.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write it as key=TEXT, value~REGEX or header.NAME=TEXT")
    fields = _fields(found["field"].strip())
    wanted = found["text"].encode()
    if found["operator"] == "=":
        return lambda record: wanted in fields(record)
    if found["operator"] == "!=":
        return lambda record: wanted not in fields(record)
    try:
        pattern = re.compile(wanted)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r}: not a regular expression ({error})") from None
    return lambda record: any(pattern.search(data) for data in fields(record))


def _fields(name: str) -> Callable[[ConsumerRecord], list[bytes]]:
    """Where to look: everything that a record has under that name."""
    if name == "key":
        return lambda record: [_NULL if record.key is None else record.key]
    if name == "value":
        return lambda record: [_NULL if record.value is None else record.value]
    head, _, rest = name.partition(".")
    if head == "header" and rest:
        return lambda record: [_NULL if data is None else data for key, data in record.headers if key == rest]
    if head == "value" and rest:
        path = rest.split(".")
        return lambda record: _inside(as_json(record.value), path)
    raise argparse.ArgumentTypeError(f"{name!r} is none of key, value, value.PATH and header.NAME")


def _inside(document: Any, path: list[str]) -> list[bytes]:
    for name in path:
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
            document = document[int(name)]
        else:
            return []
    text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
    return [text.encode(errors="surrogatepass")]
