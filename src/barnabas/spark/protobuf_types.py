"""Protobuf messages as Spark's types, and the conversion of their values to Arrow arrays and back.

Messages become arrays a field at a time: all values of one field, of all messages of a batch, then the next
field; nested messages are gathered first. No dict is built for a row.

A field with presence (message fields, `optional`, members of a oneof, proto2) is null if it was not set; any
other has its value, which is the default if nothing was sent. Enums are their names, or the number as text if
it has no name; unsigned numbers have the next wider type, so that none is negative. Timestamp, Duration and
the wrappers are plain values; Struct, Value and ListValue are JSON. Recursive messages are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from google.protobuf import descriptor_pb2, json_format  # type: ignore[import-untyped]
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from pyspark.sql import types as T  # noqa: N812

from barnabas.spark.protobuf_schema import ProtobufSchemaError

_MICROS = 1_000_000


class Kind(NamedTuple):
    """The type of a value: conversion to Arrow by column, where None is null, and to message values one by
    one."""

    spark: T.DataType
    arrow: pa.DataType
    to_array: Callable[[list[Any]], pa.Array]
    to_proto: Callable[[Any], Any] | None = None  # None: no conversion


class Field(NamedTuple):
    """A field of a message: its type, and how its values are gathered from messages."""

    name: str
    kind: Kind
    gather: Callable[[list[Any]], pa.Array]
    oneof: str | None


def message_kind(descriptor: Any, inside: tuple[str, ...] = ()) -> Kind:
    """The type of a message; ProtobufSchemaError if it is recursive."""
    if descriptor.full_name in inside:
        raise ProtobufSchemaError(
            f"{descriptor.full_name} contains itself ({' > '.join(inside)}): Spark has no type for that"
        )
    repeated = _repeated(descriptor)
    path = (*inside, descriptor.full_name)
    fields = [_field(each, path, is_repeated=each.name in repeated) for each in descriptor.fields]
    make = GetMessageClass(descriptor)
    empty = make()
    arrow = pa.struct([pa.field(each.name, each.kind.arrow) for each in fields])

    def to_array(messages: list[Any]) -> pa.Array:
        is_null = [message is None for message in messages]
        if any(is_null):
            messages = [empty if message is None else message for message in messages]
        columns = [each.gather(messages) for each in fields]
        if not columns:
            return pa.array([None if null else {} for null in is_null], arrow)
        return pa.StructArray.from_arrays(columns, fields=list(arrow), mask=pa.array(is_null, pa.bool_()))

    spark = T.StructType([T.StructField(each.name, each.kind.spark) for each in fields])
    return Kind(spark, arrow, to_array, _maker(make, fields))


def _maker(make: Callable[..., Any], fields: list[Field]) -> Callable[[Any], Any]:
    """A function from a row, as a dict, to a message; null fields stay unset."""
    converters = [(each.name, each.kind.to_proto) for each in fields]
    oneofs = {each.name: each.oneof for each in fields if each.oneof is not None}

    def to_message(row: dict[str, Any]) -> Any:
        values = {
            name: row[name] if convert is None else convert(row[name])
            for name, convert in converters
            if row[name] is not None
        }
        if oneofs:
            _check_oneofs(values, oneofs)
        return make(**values)

    return to_message


def _check_oneofs(values: Iterable[str], oneofs: dict[str, str]) -> None:
    taken: dict[str, str] = {}
    for name in values:
        if name in oneofs and taken.setdefault(oneofs[name], name) != name:
            raise ValueError(f"{taken[oneofs[name]]} and {name} are both set, of which {oneofs[name]} is one")


def _repeated(descriptor: Any) -> set[str]:
    """The repeated fields, read from the file itself: the attribute of field descriptors has changed between
    versions."""
    proto = descriptor_pb2.DescriptorProto()
    descriptor.CopyToProto(proto)
    many = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    return {field.name for field in proto.field if field.label == many}


def _field(field: Any, inside: tuple[str, ...], *, is_repeated: bool) -> Field:
    oneof = field.containing_oneof.name if field.containing_oneof is not None else None
    if _is_map(field):
        kind = _map_kind(field, inside)
    elif is_repeated:
        kind = _list_kind(_value_kind(field, inside))
    else:
        kind = _value_kind(field, inside)
    return Field(field.name, kind, _gatherer(field, kind), oneof)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _gatherer(field: Any, kind: Kind) -> Callable[[list[Any]], pa.Array]:
    """All values of a field; a field that is always set is read with attrgetter, which is faster."""
    get, name, to_array = attrgetter(field.name), field.name, kind.to_array
    if not field.has_presence:
        return lambda messages: to_array(list(map(get, messages)))
    return lambda messages: to_array([get(each) if each.HasField(name) else None for each in messages])


def _list_kind(element: Kind) -> Kind:
    arrow = pa.list_(pa.field("element", element.arrow, nullable=False))

    def to_array(lists: list[Any]) -> pa.Array:
        values = element.to_array(list(chain.from_iterable(lists)))
        return pa.ListArray.from_arrays(_offsets(lists), values, type=arrow)

    convert = element.to_proto
    return Kind(
        T.ArrayType(element.spark, False),
        arrow,
        to_array,
        None if convert is None else lambda values: [convert(each) for each in values],
    )


def _map_kind(field: Any, inside: tuple[str, ...]) -> Kind:
    entry = field.message_type.fields_by_name
    keys, values = _value_kind(entry["key"], inside), _value_kind(entry["value"], inside)
    arrow = pa.map_(keys.arrow, pa.field("value", values.arrow, nullable=False))

    def to_array(maps: list[Any]) -> pa.Array:
        # ordered by key: Protobuf's maps have no order, and a batch read twice should be the same
        entries = [(key, each[key]) for each in maps for key in sorted(each)]
        return pa.MapArray.from_arrays(
            _offsets(maps),
            keys.to_array([key for key, _ in entries]),
            values.to_array([value for _, value in entries]),
            type=arrow,
        )

    def to_proto(entries: list[dict[str, Any]]) -> dict[Any, Any]:
        to_key, to_value = keys.to_proto or _same, values.to_proto or _same
        return {to_key(each["key"]): to_value(each["value"]) for each in entries}

    return Kind(T.MapType(keys.spark, values.spark, False), arrow, to_array, to_proto)


def _same(value: Any) -> Any:
    return value


def _offsets(lists: list[Any]) -> pa.Array:
    return pa.array([0, *accumulate(map(len, lists))], pa.int32())


def _plain(spark: T.DataType, arrow: pa.DataType, to_proto: Callable[[Any], Any] | None = None) -> Kind:
    return Kind(spark, arrow, lambda values: pa.array(values, arrow), to_proto)


_SCALARS: dict[int, Kind] = {
    FieldDescriptor.CPPTYPE_INT32: _plain(T.IntegerType(), pa.int32()),
    FieldDescriptor.CPPTYPE_INT64: _plain(T.LongType(), pa.int64()),
    FieldDescriptor.CPPTYPE_UINT32: _plain(T.LongType(), pa.int64()),
    FieldDescriptor.CPPTYPE_UINT64: _plain(T.DecimalType(20, 0), pa.decimal128(20, 0), int),
    FieldDescriptor.CPPTYPE_DOUBLE: _plain(T.DoubleType(), pa.float64()),
    FieldDescriptor.CPPTYPE_FLOAT: _plain(T.FloatType(), pa.float32()),
    FieldDescriptor.CPPTYPE_BOOL: _plain(T.BooleanType(), pa.bool_()),
    FieldDescriptor.CPPTYPE_STRING: _plain(T.StringType(), pa.string()),
}
_BYTES = _plain(T.BinaryType(), pa.binary())
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_JSON = frozenset(f"google.protobuf.{name}" for name in ("ListValue", "Struct", "Value"))


def _value_kind(field: Any, inside: tuple[str, ...]) -> Kind:
    """The type of one value of a field."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _BYTES
    if field.enum_type is not None:
        return _enum_kind(field.enum_type)
    if field.message_type is None:
        return _SCALARS[field.cpp_type]
    return _known_kind(field.message_type) or message_kind(field.message_type, inside)


def _enum_kind(enum: Any) -> Kind:
    names = {value.number: value.name for value in reversed(enum.values)}
    numbers = {value.name: value.number for value in enum.values}

    def to_array(values: list[Any]) -> pa.Array:
        return pa.array(
            [None if each is None else names.get(each) or str(each) for each in values], pa.string()
        )

    def to_proto(name: str) -> int:
        if name not in numbers and not name.lstrip("-").isdecimal():
            raise ValueError(f"{name} is not a value of {enum.full_name}")
        return numbers[name] if name in numbers else int(name)

    return Kind(T.StringType(), pa.string(), to_array, to_proto)


def _known_kind(descriptor: Any) -> Kind | None:
    """The well-known messages that are plain values."""
    name = descriptor.full_name
    make = GetMessageClass(descriptor)
    if name == "google.protobuf.Timestamp":
        return _time_kind(make, T.TimestampType(), pa.timestamp("us", "UTC"))
    if name == "google.protobuf.Duration":
        return _time_kind(make, T.DayTimeIntervalType(), pa.duration("us"))
    if name in _WRAPPERS:
        return _wrapper_kind(make, descriptor.fields_by_name["value"])
    if name in _JSON:
        return _json_kind(make)
    return None


def _time_kind(make: Callable[..., Any], spark: T.DataType, arrow: pa.DataType) -> Kind:
    """Seconds and nanoseconds, truncated to Spark's microseconds."""

    def to_array(values: list[Any]) -> pa.Array:
        micros = [None if each is None else each.seconds * _MICROS + each.nanos // 1000 for each in values]
        return pa.array(micros, pa.int64()).cast(arrow)

    def to_proto(micros: int) -> Any:
        seconds, rest = divmod(micros, _MICROS)
        if rest and seconds < 0 and isinstance(spark, T.DayTimeIntervalType):
            seconds, rest = seconds + 1, rest - _MICROS  # both parts of a duration have one sign
        return make(seconds=seconds, nanos=rest * 1000)

    return Kind(spark, arrow, to_array, to_proto)


def _wrapper_kind(make: Callable[..., Any], field: Any) -> Kind:
    inner = _value_kind(field, ())
    convert = inner.to_proto or _same

    def to_array(values: list[Any]) -> pa.Array:
        return inner.to_array([None if each is None else each.value for each in values])

    return Kind(inner.spark, inner.arrow, to_array, lambda value: make(value=convert(value)))


def _json_kind(make: Callable[[], Any]) -> Kind:
    def to_text(message: Any) -> str | None:
        try:
            return None if message is None else json_format.MessageToJson(message, indent=None)
        except json_format.Error as error:  # such as a number that JSON cannot express
            raise ValueError(str(error)) from error

    def to_proto(text: str) -> Any:
        try:
            return json_format.Parse(text, make())
        except json_format.Error as error:
            raise ValueError(str(error)) from error

    return Kind(
        T.StringType(),
        pa.string(),
        lambda values: pa.array([to_text(each) for each in values], pa.string()),
        to_proto,
    )
