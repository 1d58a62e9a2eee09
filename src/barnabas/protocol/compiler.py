"""Codecs made from declarations: for a structure at a version, source text that reads or writes it.

Each function is plain straight-line Python: a run of fields of fixed size is one `struct` call, nothing is
looked up by name of a type or by version while a message is read. Made when first used, kept for good.

What a reader may rely on: every byte read lies inside the message, a count is never more than the bytes that
are left (so a lie costs no memory), and whatever is wrong ends as a MalformedMessage. Records come out as
views of what was read, never copied; large ones are written beside the buffer, not into it (see Encoded).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from barnabas.core.disk import Buffer, FileRange
from barnabas.core.errors import BarnabasError, wire_error
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
# how the bytes from p to q become a value
_SIZED = {"String": "str(view[p:q], 'utf-8')", "Bytes": "bytes(view[p:q])", "Records": "view[p:q]"}
COPY_LIMIT_BYTES = 4096

M = TypeVar("M", bound=Message)
Decoder = Callable[[memoryview, int, int], tuple[Any, int]]
Encoder = Callable[[Any, bytearray, list["Beside"]], None]


class MalformedMessage(BarnabasError):
    """Bytes that are no message of the version they claim to be."""

    wire = wire_error("INVALID_REQUEST")


class Beside(NamedTuple):
    """Records that stand at `position` of an encoded message without having been copied into it."""

    position: int
    records: Buffer | FileRange


_codecs: dict[tuple[type[Struct], int, bool, str], Callable[..., Any]] = {}


def decode(cls: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """The message that `data` holds from `position` to its end."""
    view = data if isinstance(data, memoryview) else memoryview(data)
    message: M = decode_with(decoder(cls, version), view, position)
    return message


def decode_with(codec: Decoder, view: memoryview, position: int, *, exact: bool = True) -> Any:
    """The same, by a codec that was looked up before; unless `exact`, it may end before the data does."""
    end = len(view)
    try:
        message, position = codec(view, position, end)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"no {codec.__name__}: {error}") from None
    if position > end or (exact and position < end):
        raise MalformedMessage(f"no {codec.__name__}: {_length_told(position, end)}")
    return message


def encode(message: Message, version: int) -> bytes:
    """The message in one piece; its records must be in memory."""
    out, beside = bytearray(), list[Beside]()
    encoder(type(message), version)(message, out, beside)
    return b"".join(parts(out, beside))  # type: ignore[arg-type]


def parts(out: bytearray, beside: list[Beside]) -> list[Buffer | FileRange]:
    """An encoded message as what a connection writes: the buffer, cut where records stand beside it."""
    if not beside:
        return [out]
    view, done, pieces = memoryview(out), 0, list[Buffer | FileRange]()
    for position, records in beside:
        if position > done:
            pieces.append(view[done:position])
        pieces.append(records)
        done = position
    if done < len(out):
        pieces.append(view[done:])
    return pieces


def decoder(cls: type[Message], version: int) -> Decoder:
    return _codec(cls, version, version >= cls.__flexible__, "decode")


def encoder(cls: type[Message], version: int) -> Encoder:
    return _codec(cls, version, version >= cls.__flexible__, "encode")


def _codec(cls: type[Struct], version: int, flexible: bool, kind: str) -> Callable[..., Any]:
    key = (cls, version, flexible, kind)
    codec = _codecs.get(key)
    if codec is None:
        writer = (
            _DecoderSource(cls, version, flexible)
            if kind == "decode"
            else _EncoderSource(cls, version, flexible)
        )
        codec = _codecs[key] = writer.compile()
    return codec


def _length_told(position: int, end: int) -> str:
    return f"{end - position} bytes too many" if position < end else f"{position - end} bytes are missing"


# ---- what the generated code calls -----------------------------------------------------------------------


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of up to 32 bits whose first byte says that there are more."""
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                raise MalformedMessage("a number of more than 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedMessage("a number of more than 32 bits")


def write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_tags(out: bytearray, tags: list[tuple[int, bytearray]]) -> None:
    write_varint(out, len(tags))
    for tag, value in tags:
        write_varint(out, tag)
        write_varint(out, len(value))
        out += value


def skip_tags(view: memoryview, position: int, count: int) -> int:
    for _ in range(count):
        _, position = read_varint(view, position)
        size, position = read_varint(view, position)
        position += size
    return position


def bad_length(name: str, size: int, left: int) -> MalformedMessage:
    if size < 0:
        return MalformedMessage(f"{name} must not be null (length {size})")
    return MalformedMessage(f"{name} claims a length of {size} where {left} bytes are left")


def bad_tag(tag: int) -> MalformedMessage:
    return MalformedMessage(f"the tagged field {tag} has another length than it claims")


def size_of(records: Buffer | FileRange) -> int:
    return records.size if isinstance(records, FileRange) else len(records)


def put_records(records: Buffer | FileRange, out: bytearray, beside: list[Beside]) -> None:
    if isinstance(records, FileRange) or len(records) > COPY_LIMIT_BYTES:
        beside.append(Beside(len(out), records))
    else:
        out += records


_HELPERS: dict[str, Any] = {
    "read_varint": read_varint,
    "write_varint": write_varint,
    "write_tags": write_tags,
    "skip_tags": skip_tags,
    "bad_tag": bad_tag,
    "new": object.__new__,
    "bad_length": bad_length,
    "size_of": size_of,
    "put_records": put_records,
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
}


# ---- source ----------------------------------------------------------------------------------------------


class _Source:
    """Lines of a function, and the names they refer to. Structures inside others are written in place: a call
    costs more than most of them. Variables end with how deep they stand (`o0`, `items1`)."""

    kind = ""
    signature = ""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls, self.version, self.flexible = cls, version, flexible
        self.names: dict[str, Any] = dict(_HELPERS)
        self.lines: list[str] = []

    def compile(self) -> Callable[..., Any]:
        self.body()
        source = "\n".join([f"def codec({self.signature}):", *self.lines])
        exec(compile(source, f"<{self.kind} {self.cls.__name__} v{self.version}>", "exec"), self.names)
        made: Callable[..., Any] = self.names["codec"]
        made.__name__ = (
            f"{self.cls.__name__} of version {self.version}"  # what it is about, for whoever fails
        )
        return made

    def body(self) -> None:
        raise NotImplementedError

    def put(self, *lines: str, indent: int) -> None:
        self.lines.extend("    " * indent + line for line in lines)

    def named(self, value: Any, prefix: str) -> str:
        """A name by which the generated code can refer to `value`."""
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def fields(self, cls: type[Struct]) -> tuple[list[list[Field]], list[Field]]:
        """The fields of this version: plain ones, those of fixed size with their neighbours; tagged ones."""
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
        """A structure that another one names."""
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
            self.put(
                "n = view[p]; p += 1", "if n > 127: n, p = read_varint(view, p - 1)", "n -= 1", indent=indent
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
    """`codec(o0, out, beside)`: appended to `out`, large records left out and noted in `beside`."""

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
