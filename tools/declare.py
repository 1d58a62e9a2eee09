"""Print a first declaration of an API, folded from the independent implementation `kio` (a dev dependency).

    .venv/bin/python -m tools.declare fetch > src/barnabas/protocol/messages/fetch.py

kio has one set of classes a version; here they are folded into one class for all versions. The result is a
start: from then on the file is kept by hand, and tests/protocol compares it with kio byte for byte.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import pkgutil
import sys
import types
import typing
import uuid
from typing import Any

_NAMES = {"timedelta_i32": "Int32", "timedelta_i64": "Int64", "datetime_i64": "Int64", "error_code": "Int16"}
_NAMES |= {"uint16": "UInt16", "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64"}
_NAMES |= {"bool": "Bool", "float64": "Float64", "string": "String", "bytes": "Bytes", "uuid": "Uuid"}
_NAMES |= {"records": "Records"}


class Folded:
    """One field over all the versions that have it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.type_text = ""
        self.versions: list[int] = []
        self.nullable: list[int] = []
        self.tag: int | None = None
        self.default: Any = dataclasses.MISSING


def _unpacked(hint: Any) -> tuple[Any, bool]:
    """A type without its `| None`, and whether it had one."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        arguments = [a for a in typing.get_args(hint) if a is not type(None)]
        return arguments[0], True
    return hint, False


def _wire_type(hint: Any, kafka_type: str | None, structs: dict[str, type]) -> tuple[str, bool]:
    plain, optional = _unpacked(hint)
    if typing.get_origin(plain) is tuple:
        element = typing.get_args(plain)[0]
        inner, _ = _wire_type(element, kafka_type, structs)
        return f"list[{inner}]", optional
    if kafka_type is not None:
        return _NAMES[kafka_type], optional and kafka_type not in ("uuid", "datetime_i64")
    structs[plain.__name__] = plain
    return plain.__name__, optional


def _default(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, uuid.UUID) or dataclasses.is_dataclass(value) or value == ():
        return dataclasses.MISSING
    if isinstance(value, (bool, str, bytes)) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return dataclasses.MISSING


def _fold(cls: type, version: int, into: dict[str, dict[str, Folded]]) -> None:
    fields = into.setdefault(cls.__name__, {})
    hints = typing.get_type_hints(cls, vars(sys.modules[cls.__module__]))
    structs: dict[str, type] = {}
    previous: str | None = None
    for field in dataclasses.fields(cls):
        kafka_type = field.metadata.get("kafka_type")
        name = field.name
        if kafka_type in ("timedelta_i32", "timedelta_i64", "datetime_i64") and not name.endswith("_ms"):
            name += "_ms"
        text, optional = _wire_type(hints[field.name], kafka_type, structs)
        if name not in fields:
            names = list(fields)
            at = names.index(previous) + 1 if previous in fields else 0
            names.insert(at, name)
            folded = {known: fields.get(known) or Folded(known) for known in names}
            fields.clear()
            fields.update(folded)
        entry = fields[name]
        entry.type_text = text
        entry.versions.append(version)
        entry.nullable += (
            [version] if optional and (field.metadata.get("tag") is None or text != "struct") else []
        )
        entry.tag = field.metadata.get("tag", entry.tag)
        if field.default is not dataclasses.MISSING:
            entry.default = _default(field.default)
            if kafka_type == "datetime_i64" and field.default is None:
                entry.default = -1
            if kafka_type == "uuid":
                entry.default = dataclasses.MISSING
        previous = name
    for struct in structs.values():
        _fold(struct, version, into)


def _inner_first(name: str, into: dict[str, dict[str, Folded]], order: list[str]) -> list[str]:
    for field in into[name].values():
        inner = field.type_text.removeprefix("list[").removesuffix("]")
        if inner in into and inner not in order:
            _inner_first(inner, into, order)
    return order if name in order else (order.append(name) or order)


def _line(field: Folded, since: int, last: int) -> str:
    annotation = field.type_text
    arguments: list[str] = []
    first, final = min(field.versions), max(field.versions)
    is_struct = annotation not in _NAMES.values() and not annotation.startswith("list[")
    if field.nullable or (is_struct and field.tag is not None):
        annotation += " | None"
    if final != last:
        arguments = [str(first), str(final)]
    elif first > since:
        arguments = [str(first)]
    if field.nullable and min(field.nullable) > first:
        arguments.append(f"nullable={min(field.nullable)}")
    if field.tag is not None:
        arguments.append(f"tag={field.tag}")
    if field.default is not dataclasses.MISSING:
        arguments.append(f"default={field.default!r}")
    return f"    {field.name}: {annotation}" + (f" = field({', '.join(arguments)})" if arguments else "")


def declare(api: str) -> str:
    """The module text of one API."""
    package = importlib.import_module(f"kio.schema.{api}")
    versions = sorted(int(m.name[1:]) for m in pkgutil.iter_modules(package.__path__) if m.name[0] == "v")
    text: list[str] = []
    used: set[str] = set()
    seen: set[str] = set()
    for side in ("request", "response", "data"):
        into: dict[str, dict[str, Folded]] = {}
        last, flexible, first, key = versions[-1], None, versions[0], -1
        top = None
        for version in versions:
            try:
                module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
            except ModuleNotFoundError:
                continue
            top = next(
                c
                for c in vars(module).values()
                if dataclasses.is_dataclass(c)
                and c.__module__ == module.__name__
                and c.__type__.name != "nested"
            )
            key = int(getattr(top, "__api_key__", -1))
            if top.__flexible__ and flexible is None:
                flexible = version
            _fold(top, version, into)
        if top is None:
            continue
        for name in _inner_first(top.__name__, into, []):
            own = name if name not in seen or name == top.__name__ else name + side.capitalize()
            seen.add(own)
            if name == top.__name__:
                flex = f", flexible={flexible}" if flexible is not None else ""
                text.append(f"class {own}(Message, key={key}, versions=({first}, {last}){flex}):")
            else:
                text.append(f"class {own}(Struct):")
            # what stands inside appears with whoever holds it, so its first version goes without saying
            since = first if name == top.__name__ else min(min(f.versions) for f in into[name].values())
            lines = [_line(f, since, last) for f in into[name].values()]
            text += [*(lines or ["    pass"]), "", ""]
            for line in lines:
                used |= {w for w in set(_NAMES.values()) if f": {w}" in line or f"[{w}]" in line}
                used |= {"field"} if "field(" in line else set()
    names = sorted(used | {"Message"} | ({"Struct"} if any("(Struct)" in t for t in text) else set()))
    head = [
        "from __future__ import annotations",
        "",
        f"from barnabas.protocol.schema import {', '.join(names)}",
        "",
        "",
    ]
    return "\n".join(head + text).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(declare(sys.argv[1]))
