"""Compiles a declaration to a function: source text that reads or writes a structure at one version.

The code is straight-line Python: a run of fields of fixed size is one `struct` call, nested structures are
inlined (a call costs more than most of them), and nothing is looked up by type or version while a message is
read. Variables end with their nesting depth (`o0`, `items1`).
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from barnabas.protocol import wire
from barnabas.protocol.schema import Field, Message, Struct

_FIXED = {
    "Bool": "?",
    "Int8": "b",
    "Int16": "h",
    "UInt16": "H",
    "Int32": "i",
    "UInt32": "I",
    "Int64": "q",
    "Float64": "d",
    "Uuid": "16s",
}
# converts the bytes from p to q to a value
_SIZED = {"String": "str(view[p:q], 'utf-8')", "Bytes": "bytes(view[p:q])", "Records": "view[p:q]"}
_HELPERS: dict[str, Any] = {
    "read_varint": wire.read_varint,
    "read_text_size": wire.read_text_size,
    "write_varint": wire.write_varint,
    "write_tags": wire.write_tags,
    "skip_tags": wire.skip_tags,
    "bad_tag": wire.bad_tag,
    "new": object.__new__,
    "bad_length": wire.bad_length,
    "size_of": wire.size_of,
    "put_records": wire.put_records,
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
}


def compile_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """A function `(view, position, end) -> (message, its end)`."""
    return _DecoderSource(cls, version).compile()


def compile_encoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """A function `(message, out, beside) -> None`."""
    return _EncoderSource(cls, version).compile()


class _Source(ABC):
    """The lines of a function, and the names that they refer to."""

    kind = ""
    signature = ""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls, self.version, self.flexible = cls, version, version >= cls.__flexible__
        self.names: dict[str, Any] = dict(_HELPERS)
        self.lines: list[str] = []

    def compile(self) -> Callable[..., Any]:
        self.body()
        source = "\n".join([f"def codec({self.signature}):", *self.lines])
        exec(compile(source, f"<{self.kind} {self.cls.__name__} v{self.version}>", "exec"), self.names)
        made: Callable[..., Any] = self.names["codec"]
        made.__name__ = f"{self.cls.__name__} of version {self.version}"  # used in error messages
        return made

    @abstractmethod
    def body(self) -> None:
        """Add the lines of the function."""

    def put(self, *lines: str, indent: int) -> None:
        self.lines.extend("    " * indent + line for line in lines)

    def named(self, value: Any, prefix: str) -> str:
        """A name for `value` in the generated code."""
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def fields(self, cls: type[Struct]) -> tuple[list[list[Field]], list[Field]]:
        """The fields of this version: untagged ones, in runs if of fixed size; and tagged ones."""
        runs: list[list[Field]] = []
        tagged: list[Field] = []
        for field in cls.__fields__:
            if not field.first <= self.version <= field.last:
                continue
            if field.tag is not None:
                tagged.append(field)
            elif field.type_text in _FIXED and runs and runs[-1][0].type_text in _FIXED:
                runs[-1].append(field)
            else:
                runs.append([field])
        return runs, sorted(tagged, key=lambda field: field.tag or 0)

    def layout(self, run: list[Field]) -> struct.Struct:
        return struct.Struct(">" + "".join(_FIXED[field.type_text] for field in run))

    def is_nullable(self, field: Field) -> bool:
        return self.version >= field.nullable_from

    def inner(self, owner: type[Struct], name: str) -> type[Struct]:
        """A structure that another one refers to by name."""
        cls: type[Struct] = getattr(sys.modules[owner.__module__], name)
        return cls


class _DecoderSource(_Source):
    """`codec(view, p, end) -> (object, position after it)`."""

    kind = "decode"
    signature = "view, p, end"

    def body(self) -> None:
        self._struct(self.cls, 0, 1)
        self.put("return o0, p", indent=1)

    def _struct(self, cls: type[Struct], depth: int, indent: int) -> None:
        """Read a structure into `o<depth>`."""
        target = f"o{depth}"
        self.put(f"{target} = new({self.named(cls, 'cls')})", indent=indent)
        runs, tagged = self.fields(cls)
        for run in runs:
            if run[0].type_text in _FIXED:
                self._fixed(run, target, indent)
            else:
                self._value(cls, run[0], f"{target}.{run[0].name}", depth, indent)
        if self.flexible:
            self._tags(cls, tagged, depth, indent)

    def _fixed(self, run: list[Field], target: str, indent: int) -> None:
        layout = self.layout(run)
        targets = "".join(f"{target}.{field.name}, " for field in run)
        unpack = self.named(layout.unpack_from, "unpack")
        self.put(f"{targets}= {unpack}(view, p)", f"p += {layout.size}", indent=indent)

    def _tags(self, cls: type[Struct], tagged: list[Field], depth: int, indent: int) -> None:
        self.put("n = view[p]; p += 1", indent=indent)
        if not tagged:
            self.put("if n:", indent=indent)
            self.put(
                "if n > 127: n, p = read_varint(view, p - 1)", "p = skip_tags(view, p, n)", indent=indent + 1
            )
            return
        self.put("if n > 127: n, p = read_varint(view, p - 1)", "for _ in range(n):", indent=indent)
        within, after = indent + 1, f"after{depth}"
        self.put(
            "tag, p = read_varint(view, p)", "n, p = read_varint(view, p)", f"{after} = p + n", indent=within
        )
        for position, field in enumerate(tagged):
            self.put(f"{'el' if position else ''}if tag == {field.tag}:", indent=within)
            if field.type_text in _FIXED:
                self._fixed([field], f"o{depth}", within + 1)
            else:
                self._value(cls, field, f"o{depth}.{field.name}", depth, within + 1)
        self.put(f"else: p = {after}", f"if p != {after}: raise bad_tag(tag)", indent=within)

    def _value(self, cls: type[Struct], field: Field, target: str, depth: int, indent: int) -> None:
        plain = field.type_text.removesuffix(" | None")
        nullable = self.is_nullable(field)
        if plain.startswith("list["):
            self._list(cls, field, target, plain[5:-1], nullable, depth, indent)
        elif plain in _SIZED:
            self._sized(field, target, plain, nullable, indent)
        else:
            if nullable and field.tag is None:
                self.put("n = view[p]; p += 1", f"if n > 127: {target} = None", "else:", indent=indent)
                indent += 1
            self._struct(self.inner(cls, plain), depth + 1, indent)
            self.put(f"{target} = o{depth + 1}", indent=indent)

    def _length(self, type_text: str, indent: int) -> None:
        if self.flexible:
            read = "read_text_size" if type_text == "String" else "read_varint"
            self.put(
                "n = view[p]; p += 1", f"if n > 127: n, p = {read}(view, p - 1)", "n -= 1", indent=indent
            )
        elif type_text == "String":
            self.put("n, = int16.unpack_from(view, p); p += 2", indent=indent)
        else:
            self.put("n, = int32.unpack_from(view, p); p += 4", indent=indent)

    def _null_check(self, target: str, nullable: bool, indent: int) -> None:
        if nullable:
            self.put(f"if n == -1: {target} = None", "else:", indent=indent)

    def _sized(self, field: Field, target: str, plain: str, nullable: bool, indent: int) -> None:
        self._length(plain, indent)
        self._null_check(target, nullable, indent)
        self.put(
            "q = p + n",
            f"if n < 0 or q > end: raise bad_length({field.name!r}, n, end - p)",
            f"{target} = {_SIZED[plain]}",
            "p = q",
            indent=indent + nullable,
        )

    def _list(
        self,
        cls: type[Struct],
        field: Field,
        target: str,
        element: str,
        nullable: bool,
        depth: int,
        indent: int,
    ) -> None:
        self._length("list", indent)
        self._null_check(target, nullable, indent)
        indent += nullable
        self.put(f"if n < 0 or n > end - p: raise bad_length({field.name!r}, n, end - p)", indent=indent)
        if element in _FIXED:
            self._fixed_list(field, target, element, indent)
            return
        items = f"items{depth}"
        self.put(f"{items} = {target} = []", "for _ in range(n):", indent=indent)
        if element in _SIZED:
            self._sized(field, "item", element, False, indent + 1)
            self.put(f"{items}.append(item)", indent=indent + 1)
        else:
            self._struct(self.inner(cls, element), depth + 1, indent + 1)
            self.put(f"{items}.append(o{depth + 1})", indent=indent + 1)

    def _fixed_list(self, field: Field, target: str, element: str, indent: int) -> None:
        size = struct.calcsize(">" + _FIXED[element])
        if element == "Uuid":
            taken = f"[bytes(view[at:at + {size}]) for at in range(p, q, {size})]"
        else:
            unpack = self.named(struct.unpack_from, "unpack")
            taken = f"list({unpack}(f'>{{n}}{_FIXED[element]}', view, p))"
        self.put(
            f"q = p + {size} * n",
            f"if q > end: raise bad_length({field.name!r}, n, end - p)",
            f"{target} = {taken}",
            "p = q",
            indent=indent,
        )


class _EncoderSource(_Source):
    """`codec(o0, out, beside)`: appends to `out`; large records are added to `beside` instead."""

    kind = "encode"
    signature = "o0, out, beside"

    def body(self) -> None:
        self._struct(self.cls, "out", 0, 1)
        self.put("return None", indent=1)

    def _struct(self, cls: type[Struct], out: str, depth: int, indent: int) -> None:
        """Write the structure `o<depth>`."""
        runs, tagged = self.fields(cls)
        for run in runs:
            if run[0].type_text in _FIXED:
                values = ", ".join(f"o{depth}.{field.name}" for field in run)
                self.put(f"{out} += {self.named(self.layout(run).pack, 'pack')}({values})", indent=indent)
            else:
                self._value(cls, run[0], f"o{depth}.{run[0].name}", out, depth, indent)
        if not self.flexible:
            return
        if tagged:
            self._tags(cls, tagged, out, depth, indent)
        else:
            self.put(f"{out}.append(0)", indent=indent)

    def _tags(self, cls: type[Struct], tagged: list[Field], out: str, depth: int, indent: int) -> None:
        tags, at = f"tags{depth}", f"at{depth}"
        self.put(f"{tags} = None", indent=indent)
        for field in tagged:
            value = f"v{depth}"
            default = self.named(field.default, "default")
            differs = f"{value} != {default}"
            if field.type_text.startswith("list[") and field.default == ():
                differs = value if not self.is_nullable(field) else f"{value} is None or {value}"
            self.put(f"{value} = o{depth}.{field.name}", f"if {differs}:", indent=indent)
            self.put(f"if {tags} is None: {tags} = []", f"{at} = bytearray()", indent=indent + 1)
            self._value(cls, field, value, at, depth, indent + 1)
            self.put(f"{tags}.append(({field.tag}, {at}))", indent=indent + 1)
        self.put(f"write_tags({out}, {tags}) if {tags} else {out}.append(0)", indent=indent)

    def _value(self, cls: type[Struct], field: Field, value: str, out: str, depth: int, indent: int) -> None:
        plain = field.type_text.removesuffix(" | None")
        nullable = self.is_nullable(field)
        if plain in _FIXED:
            pack = self.named(struct.Struct(">" + _FIXED[plain]).pack, "pack")
            self.put(f"{out} += {pack}({value})", indent=indent)
        elif plain.startswith("list["):
            self._list(cls, field, value, plain[5:-1], nullable, out, depth, indent)
        elif plain in _SIZED:
            self._sized(value, plain, nullable, out, indent)
        else:
            inner = f"o{depth + 1}"
            self.put(f"{inner} = {value}", indent=indent)
            if nullable and field.tag is None:
                self.put(f"if {inner} is None: {out}.append(255)", "else:", indent=indent)
                indent += 1
                self.put(f"{out}.append(1)", indent=indent)
            self._struct(self.inner(cls, plain), out, depth + 1, indent)

    def _length(self, type_text: str, count: str, out: str, indent: int) -> None:
        if self.flexible:
            self.put(
                f"n = {count} + 1", f"{out}.append(n) if n < 128 else write_varint({out}, n)", indent=indent
            )
        elif type_text == "String":
            self.put(f"{out} += int16.pack({count})", indent=indent)
        else:
            self.put(f"{out} += int32.pack({count})", indent=indent)

    def _null_check(self, variable: str, type_text: str, nullable: bool, out: str, indent: int) -> None:
        if nullable:
            size = 1 if self.flexible else 2 if type_text == "String" else 4
            null = b"\0" if self.flexible else b"\xff" * size
            self.put(f"if {variable} is None: {out} += {null!r}", "else:", indent=indent)

    def _sized(self, value: str, plain: str, nullable: bool, out: str, indent: int) -> None:
        self.put(f"s = {value}", indent=indent)
        self._null_check("s", plain, nullable, out, indent)
        indent += nullable
        if plain == "String":
            self.put("s = s.encode()", indent=indent)
        self._length(plain, "size_of(s)" if plain == "Records" else "len(s)", out, indent)
        self.put("put_records(s, out, beside)" if plain == "Records" else f"{out} += s", indent=indent)

    def _list(
        self,
        cls: type[Struct],
        field: Field,
        value: str,
        element: str,
        nullable: bool,
        out: str,
        depth: int,
        indent: int,
    ) -> None:
        items = f"items{depth}"
        self.put(f"{items} = {value}", indent=indent)
        self._null_check(items, "list", nullable, out, indent)
        indent += nullable
        self._length("list", f"len({items})", out, indent)
        if element == "Uuid":
            self.put(f"{out} += b''.join({items})", indent=indent)
        elif element in _FIXED:
            pack = self.named(struct.pack, "pack")
            self.put(f"{out} += {pack}(f'>{{len({items})}}{_FIXED[element]}', *{items})", indent=indent)
        elif element in _SIZED:
            self.put(f"for item in {items}:", indent=indent)
            self._sized("item", element, False, out, indent + 1)
        else:
            self.put(f"for o{depth + 1} in {items}:", indent=indent)
            self._struct(self.inner(cls, element), out, depth + 1, indent + 1)
