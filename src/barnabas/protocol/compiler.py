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
    end = len(view)
    try:
        message, position = decoder(cls, version)(view, position, end)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"no {cls.__name__} of version {version}: {error}") from None
    if position != end:
        raise MalformedMessage(f"no {cls.__name__} of version {version}: {_length_told(position, end)}")
    return message  # type: ignore[no-any-return]


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
    "skip_tags": skip_tags,
    "bad_length": bad_length,
    "size_of": size_of,
    "put_records": put_records,
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "MalformedMessage": MalformedMessage,
}


# ---- source ----------------------------------------------------------------------------------------------


class _Source:
    """Lines of a function, and the names they refer to."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls, self.version, self.flexible = cls, version, flexible
        self.names: dict[str, Any] = dict(_HELPERS, cls=cls, new=cls.__new__)
        self.lines: list[str] = []
        self.plain = [f for f in cls.__fields__ if f.first <= version <= f.last and f.tag is None]
        self.tagged = sorted(
            (f for f in cls.__fields__ if f.first <= version <= f.last and f.tag is not None),
            key=lambda f: f.tag or 0,
        )

    def put(self, *lines: str, indent: int = 1) -> None:
        self.lines.extend("    " * indent + line for line in lines)

    def named(self, value: Any, prefix: str) -> str:
        """A name by which the generated code can refer to `value`."""
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def nullable(self, field: Field) -> bool:
        return self.version >= field.nullable_from

    def runs(self) -> list[list[Field]]:
        """The plain fields, those of fixed size gathered with their neighbours."""
        runs: list[list[Field]] = []
        for field in self.plain:
            if field.type_text in _FIXED and runs and runs[-1][0].type_text in _FIXED:
                runs[-1].append(field)
            else:
                runs.append([field])
        return runs

    def inner(self, type_text: str, kind: str) -> str:
        """The codec of a structure inside this one, under a name."""
        cls = getattr(sys.modules[self.cls.__module__], type_text)
        return self.named(_codec(cls, self.version, self.flexible, kind), "codec")

    def finish(self, signature: str) -> Callable[..., Any]:
        source = "\n".join([f"def codec({signature}):", *self.lines])
        exec(compile(source, f"<{self.cls.__name__} v{self.version}>", "exec"), self.names)
        made: Callable[..., Any] = self.names["codec"]
        return made


class _DecoderSource(_Source):
    """`codec(view, p, end) -> (object, position after it)`."""

    def compile(self) -> Callable[..., Any]:
        self.put("o = new(cls)")
        for run in self.runs():
            if run[0].type_text in _FIXED:
                self._fixed(run, 1)
            else:
                self._value(run[0], f"o.{run[0].name}", run[0].type_text, 1)
        if self.flexible:
            self._tags()
        self.put("return o, p")
        return self.finish("view, p, end")

    def _fixed(self, run: list[Field], indent: int) -> None:
        layout = struct.Struct(">" + "".join(_FIXED[f.type_text] for f in run))
        targets = "".join(f"o.{f.name}, " for f in run)
        self.put(
            f"{targets}= {self.named(layout.unpack_from, 'unpack')}(view, p)",
            f"p += {layout.size}",
            indent=indent,
        )

    def _tags(self) -> None:
        self.put("n = view[p]; p += 1")
        if not self.tagged:
            self.put(
                "if n:", "    if n > 127: n, p = read_varint(view, p - 1)", "    p = skip_tags(view, p, n)"
            )
            return
        self.put("if n > 127: n, p = read_varint(view, p - 1)", "for _ in range(n):")
        self.put(
            "tag, p = read_varint(view, p)", "size, p = read_varint(view, p)", "after = p + size", indent=2
        )
        for position, field in enumerate(self.tagged):
            self.put(f"{'el' if position else ''}if tag == {field.tag}:", indent=2)
            if field.type_text in _FIXED:
                self._fixed([field], 3)
            else:
                self._value(field, f"o.{field.name}", field.type_text, 3)
        self.put(
            "else: p = after",
            "if p != after: raise MalformedMessage('a tagged field of the wrong length')",
            indent=2,
        )

    def _value(self, field: Field, target: str, type_text: str, indent: int) -> None:
        plain = type_text.removesuffix(" | None")
        nullable = self.nullable(field)
        if plain.startswith("list["):
            self._list(field, target, plain[5:-1], nullable, indent)
        elif plain in ("String", "Bytes", "Records"):
            self._sized(field, target, plain, nullable, indent)
        elif plain in _FIXED:
            layout = struct.Struct(">" + _FIXED[plain])
            self.put(
                f"{target}, = {self.named(layout.unpack_from, 'unpack')}(view, p)",
                f"p += {layout.size}",
                indent=indent,
            )
        else:
            self._inner_struct(field, target, plain, nullable, indent)

    def _inner_struct(self, field: Field, target: str, plain: str, nullable: bool, indent: int) -> None:
        codec = self.inner(plain, "decode")
        if nullable and field.tag is None:
            self.put(
                "present = view[p]; p += 1", f"if present >= 128: {target} = None", "else:", indent=indent
            )
            indent += 1
        self.put(f"{target}, p = {codec}(view, p, end)", indent=indent)

    def _length(self, type_text: str, indent: int) -> None:
        if self.flexible:
            self.put(
                "n = view[p]; p += 1", "if n > 127: n, p = read_varint(view, p - 1)", "n -= 1", indent=indent
            )
        elif type_text == "String":
            self.put("n, = int16.unpack_from(view, p); p += 2", indent=indent)
        else:
            self.put("n, = int32.unpack_from(view, p); p += 4", indent=indent)

    def _null_check(self, field: Field, target: str, nullable: bool, indent: int) -> None:
        if nullable:
            self.put(f"if n == -1: {target} = None", "else:", indent=indent)

    def _sized(self, field: Field, target: str, plain: str, nullable: bool, indent: int) -> None:
        self._length(plain, indent)
        self._null_check(field, target, nullable, indent)
        taken = {"String": "str(view[p:q], 'utf-8')", "Bytes": "bytes(view[p:q])", "Records": "view[p:q]"}[
            plain
        ]
        self.put(
            "q = p + n",
            f"if n < 0 or q > end: raise bad_length({field.name!r}, n, end - p)",
            f"{target} = {taken}",
            "p = q",
            indent=indent + nullable,
        )

    def _list(self, field: Field, target: str, element: str, nullable: bool, indent: int) -> None:
        self._length("list", indent)
        self._null_check(field, target, nullable, indent)
        deeper = indent + nullable
        self.put(f"if n < 0 or n > end - p: raise bad_length({field.name!r}, n, end - p)", indent=deeper)
        if element in _FIXED:
            self._fixed_list(field, target, element, deeper)
            return
        if element in ("String", "Bytes"):
            self.put(f"items = {target} = []", "for _ in range(n):", indent=deeper)
            self._sized(field, "item", element, False, deeper + 1)
            self.put("items.append(item)", indent=deeper + 1)
            return
        codec = self.inner(element, "decode")
        self.put(f"items = {target} = []", "for _ in range(n):", indent=deeper)
        self.put(f"item, p = {codec}(view, p, end)", "items.append(item)", indent=deeper + 1)

    def _fixed_list(self, field: Field, target: str, element: str, indent: int) -> None:
        layout = _FIXED[element]
        size = struct.calcsize(">" + layout)
        if element == "Uuid":
            self.put(
                f"q = p + {size} * n",
                f"{target} = [bytes(view[at:at + 16]) for at in range(p, q, 16)]",
                indent=indent,
            )
        else:
            unpack = self.named(struct.unpack_from, "unpack")
            self.put(
                f"q = p + {size} * n", f"{target} = list({unpack}(f'>{{n}}{layout}', view, p))", indent=indent
            )
        self.put(f"if q > end: raise bad_length({field.name!r}, n, end - p)", "p = q", indent=indent)


class _EncoderSource(_Source):
    """`codec(o, out, beside)`: appended to `out`, large records left out and noted in `beside`."""

    def compile(self) -> Callable[..., Any]:
        for run in self.runs():
            if run[0].type_text in _FIXED:
                layout = struct.Struct(">" + "".join(_FIXED[f.type_text] for f in run))
                values = ", ".join(f"o.{f.name}" for f in run)
                self.put(f"out += {self.named(layout.pack, 'pack')}({values})")
            else:
                self._value(run[0], f"o.{run[0].name}", run[0].type_text, "out", 1)
        if self.flexible:
            self._tags()
        self.put("return None")
        return self.finish("o, out, beside")

    def _tags(self) -> None:
        if not self.tagged:
            self.put("out.append(0)")
            return
        self.put("tags = []")
        for field in self.tagged:
            # an empty list is not written where it is the default, but is not the same as null where that is
            is_set = "v" if field.default == () else f"v != {self.named(field.default, 'default')}"
            self.put(f"v = o.{field.name}", f"if {is_set}:", "    at = bytearray()")
            self._value(field, "v", field.type_text, "at", 2)
            self.put(f"    tags.append(({field.tag}, at))")
        self.put("write_varint(out, len(tags))", "for tag, at in tags:")
        self.put("write_varint(out, tag)", "write_varint(out, len(at))", "out += at", indent=2)

    def _value(self, field: Field, value: str, type_text: str, out: str, indent: int) -> None:
        plain = type_text.removesuffix(" | None")
        nullable = self.nullable(field)
        if plain in _FIXED:
            pack = self.named(struct.Struct(">" + _FIXED[plain]).pack, "pack")
            self.put(f"{out} += {pack}({value})", indent=indent)
        elif plain.startswith("list["):
            self._list(field, value, plain[5:-1], nullable, out, indent)
        elif plain in ("String", "Bytes", "Records"):
            self._sized(value, plain, nullable, out, indent)
        else:
            self._inner_struct(field, value, plain, nullable, out, indent)

    def _inner_struct(
        self, field: Field, value: str, plain: str, nullable: bool, out: str, indent: int
    ) -> None:
        codec = self.inner(plain, "encode")
        if nullable and field.tag is None:
            self.put(f"if {value} is None: {out}.append(255)", "else:", f"    {out}.append(1)", indent=indent)
            indent += 1
        self.put(f"{codec}({value}, {out}, beside)", indent=indent)

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
            null = (
                r"b'\0'"
                if self.flexible
                else r"b'\xff\xff'"
                if type_text == "String"
                else r"b'\xff\xff\xff\xff'"
            )
            self.put(f"if {variable} is None: {out} += {null}", "else:", indent=indent)

    def _sized(self, value: str, plain: str, nullable: bool, out: str, indent: int) -> None:
        self.put(f"s = {value}", indent=indent)
        self._null_check("s", plain, nullable, out, indent)
        deeper = indent + nullable
        if plain == "String":
            self.put("s = s.encode()", indent=deeper)
        self._length(plain, "size_of(s)" if plain == "Records" else "len(s)", out, deeper)
        self.put("put_records(s, out, beside)" if plain == "Records" else f"{out} += s", indent=deeper)

    def _list(self, field: Field, value: str, element: str, nullable: bool, out: str, indent: int) -> None:
        self.put(f"items = {value}", indent=indent)
        self._null_check("items", "list", nullable, out, indent)
        deeper = indent + nullable
        self._length("list", "len(items)", out, deeper)
        if element in _FIXED and element != "Uuid":
            self.put(
                f"{out} += {self.named(struct.pack, 'pack')}(f'>{{len(items)}}{_FIXED[element]}', *items)",
                indent=deeper,
            )
        elif element == "Uuid":
            self.put(f"{out} += b''.join(items)", indent=deeper)
        elif element in ("String", "Bytes"):
            self.put("for item in items:", indent=deeper)
            self._sized("item", element, False, out, deeper + 1)
        else:
            codec = self.inner(element, "encode")
            self.put(f"for item in items: {codec}(item, {out}, beside)", indent=deeper)
