"""What is to be written, read from standard input or files a piece at a time, so that no size is too large.

Pipes and terminals are waited for on the event loop, so that Ctrl-C works while nothing comes; files are read
as they are. A line ends with a newline, which is no part of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.cli.failures import CommandFailed
from barnabas.cli.payload import BASE64, BadPayload, headers_from_json, take_bytes
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.records.record import Headers
from barnabas.records.validate import MAX_TIMESTAMP

_READ_BYTES = 1 << 18
STANDARD_INPUT = "-"


class NewRecord(NamedTuple):
    """A record to be written; None where the producer is to decide."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Defaults(NamedTuple):
    """What holds for every record that does not say otherwise."""

    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    null: bytes | None = None  # a key or value of exactly these bytes is null
    is_repartitioned: bool = False  # partitions in JSON are not heeded


Parse = Callable[[bytes], NewRecord]


# ---- bytes -----------------------------------------------------------------------------------------------


def size_of_inputs(names: list[str]) -> int | None:
    """How many bytes there are to read; None where that cannot be known."""
    total = 0
    for name in names:
        try:
            status = os.fstat(sys.stdin.fileno()) if name == STANDARD_INPUT else os.stat(name)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


async def chunks(name: str) -> AsyncGenerator[bytes, None]:
    """The bytes of an input, as they come."""
    if name == STANDARD_INPUT:
        async for data in _chunks_of(sys.stdin.fileno()):
            yield data
        return
    try:
        descriptor = os.open(name, os.O_RDONLY)
    except OSError as error:
        raise CommandFailed(f"cannot read {name}: {error.strerror}") from error
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise CommandFailed(f"cannot read {name}: it is a directory", f"name the files in it: {name}/*")
        async for data in _chunks_of(descriptor):
            yield data
    finally:
        os.close(descriptor)


async def _chunks_of(descriptor: int) -> AsyncGenerator[bytes, None]:
    is_waited_for = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    if is_waited_for:
        try:
            loop.add_reader(descriptor, readable.set)
        except (OSError, ValueError):  # /dev/null and the like are always readable
            is_waited_for = False
    try:
        while True:
            if is_waited_for:
                await readable.wait()
                readable.clear()
            data = os.read(descriptor, _READ_BYTES)
            if not data:
                return
            yield data
    finally:
        if is_waited_for:
            loop.remove_reader(descriptor)


async def lines(name: str, max_bytes: int) -> AsyncGenerator[tuple[bytes | None, int], None]:
    """The lines of an input, each with how many bytes it takes there; None for one too long to be held."""
    rest = b""
    dropped_bytes = 0  # of the line that is being read
    async with aclosing(chunks(name)) as source:
        async for data in source:
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield None if dropped_bytes else line, dropped_bytes + len(line) + 1
                dropped_bytes = 0
            if dropped_bytes or len(rest) > max_bytes:
                dropped_bytes += len(rest)
                rest = b""
    if rest or dropped_bytes:
        yield None if dropped_bytes else rest, dropped_bytes + len(rest)


async def whole(name: str, max_bytes: int) -> bytes:
    """All of an input."""
    parts: list[bytes] = []
    size = 0
    async with aclosing(chunks(name)) as source:
        async for data in source:
            parts.append(data)
            size += len(data)
            if size > max_bytes:
                raise CommandFailed(
                    f"{shown_name(name)} is longer than {max_bytes} bytes",
                    "raise --max-bytes and the topic's max.message.bytes",
                )
    return b"".join(parts)


def shown_name(name: str) -> str:
    """An input's name, for people."""
    return "standard input" if name == STANDARD_INPUT else str(Path(name))


# ---- records ---------------------------------------------------------------------------------------------


def plain_parser(defaults: Defaults, separator: bytes | None) -> Parse:
    """A line is a value or, with a separator, a key and a value."""

    def parse(line: bytes) -> NewRecord:
        key, value = defaults.key, line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                raise BadPayload(f"no {separator.decode(errors='replace')!r} between a key and a value")
        return NewRecord(
            None if key == defaults.null else key,
            None if value == defaults.null else value,
            defaults.headers,
            defaults.partition,
        )

    return parse


def json_parser(defaults: Defaults) -> Parse:
    """A line is an object: value, and key, headers, partition and timestamp if it has them."""

    def parse(line: bytes) -> NewRecord:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadPayload(f"no JSON: {error}") from None
        if not isinstance(fields, dict) or not {"value", "value" + BASE64} & fields.keys():
            raise BadPayload('no JSON object with a "value"')
        has_key = {"key", "key" + BASE64} & fields.keys()
        partition = None if defaults.is_repartitioned else _whole_number(fields, "partition")
        return NewRecord(
            take_bytes(fields, "key") if has_key else defaults.key,
            take_bytes(fields, "value"),
            headers_from_json(fields.get("headers")) + defaults.headers,
            defaults.partition if defaults.partition is not None else partition,
            _timestamp(fields),
        )

    return parse


def _timestamp(fields: dict[str, Any]) -> int | None:
    """When it was; None for now, also where a record was read that has no time."""
    if fields.get("timestamp") == NO_TIMESTAMP:
        return None
    time_ms = _whole_number(fields, "timestamp")
    if time_ms is not None and time_ms > MAX_TIMESTAMP:
        raise BadPayload(f"timestamp is beyond {MAX_TIMESTAMP} ms: {time_ms}")
    return time_ms


def _whole_number(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise BadPayload(f"{name} is no whole number from 0 on: {value!r}")
    return value
