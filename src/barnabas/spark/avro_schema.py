"""Avro schemas as Spark's types, and as schemas for fastavro and Arrow.

A value goes fastavro -> Arrow -> Spark without Python code of this package for every field. That needs a
schema with the same bytes that yields the values that Arrow takes, the *storage* schema:

- logical types are numbers in it, which Arrow holds as times without a Python object for each; only decimals
  stay, since Arrow cannot read their bytes as a number;
- a union of several types is a union of records with one field each, `member0`, `member1` ... (a record's
  bytes are those of its fields). So it is known which member it was, and the value has the shape that Spark's
  own reader of Avro produces: a struct of members, of which one is set;
- for writing, a map is an array of entries: again the same bytes, and Arrow converts to entries ten times
  faster than to dicts.

Unions with null are nullable; unions of int and long are long; those of float and double are double.
Recursive types are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import types as T  # noqa: N812

Schema = str | Mapping[str, Any] | list[Any]

_UTC = "UTC"


class AvroSchemaError(ValueError):
    """The Avro schema is invalid, or Spark has no such type."""


class Shape(NamedTuple):
    """One type: for fastavro, for Arrow from fastavro's values, and for Spark."""

    storage: Any
    arrow: pa.DataType
    spark: T.DataType
    is_nullable: bool = False


class AvroType(NamedTuple):
    """A whole schema; `plain` is the storage schema with the original unions, for schema resolution."""

    name: str
    storage: Any
    storage_to_write: Any
    plain: Any
    arrow: pa.DataType
    spark: T.DataType
    has_members: bool


_PRIMITIVES: dict[str, Shape] = {
    "boolean": Shape("boolean", pa.bool_(), T.BooleanType()),
    "int": Shape("int", pa.int32(), T.IntegerType()),
    "long": Shape("long", pa.int64(), T.LongType()),
    "float": Shape("float", pa.float32(), T.FloatType()),
    "double": Shape("double", pa.float64(), T.DoubleType()),
    "bytes": Shape("bytes", pa.binary(), T.BinaryType()),
    "string": Shape("string", pa.string(), T.StringType()),
    "null": Shape("null", pa.null(), T.NullType(), is_nullable=True),
}
_LOGICAL: dict[tuple[str, str], Shape] = {
    ("int", "date"): Shape("int", pa.date32(), T.DateType()),
    ("long", "timestamp-millis"): Shape("long", pa.timestamp("ms", _UTC), T.TimestampType()),
    ("long", "timestamp-micros"): Shape("long", pa.timestamp("us", _UTC), T.TimestampType()),
    ("long", "local-timestamp-millis"): Shape("long", pa.timestamp("ms"), T.TimestampNTZType()),
    ("long", "local-timestamp-micros"): Shape("long", pa.timestamp("us"), T.TimestampNTZType()),
}
# a union of only these is the wider type
_WIDENED = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def avro_type(schema: Schema) -> AvroType:
    """Read a schema: JSON, or the parsed objects. AvroSchemaError if it is invalid."""
    text = canonical(schema)
    try:
        parsed = fastavro.parse_schema(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, fastavro.schema.SchemaParseException) as error:
        raise AvroSchemaError(f"not an Avro schema: {error!r}") from error
    reading = _Reading()
    shape = reading.shape(parsed)
    return AvroType(
        _name(parsed),
        fastavro.parse_schema(shape.storage),
        fastavro.parse_schema(_Reading(with_entries=True).shape(parsed).storage),
        fastavro.parse_schema(_Reading(with_members=False).shape(parsed).storage),
        shape.arrow,
        shape.spark,
        reading.members > 0,
    )


def canonical(schema: Schema) -> str:
    """A schema as a text that can be sent to tasks and compared."""
    try:
        return json.dumps(json.loads(schema) if isinstance(schema, str) else schema, sort_keys=True)
    except (ValueError, TypeError) as error:
        raise AvroSchemaError(
            f"not an Avro schema: {str(schema)[:60]!r} is not JSON ({error}); a file is read first, as "
            "Path(...).read_text()"
        ) from error


def _name(parsed: Any) -> str:
    if isinstance(parsed, dict):
        return str(parsed.get("name", parsed["type"]))
    return "a union" if isinstance(parsed, list) else str(parsed)


class _Reading:
    """One walk over a schema parsed by fastavro: names are full, and defined at their first use."""

    def __init__(self, *, with_members: bool = True, with_entries: bool = False) -> None:
        self.members = 0
        self._entries = 0
        self._with_members = with_members
        self._with_entries = with_entries
        self._named: dict[str, Shape | None] = {}  # None while the type is being read

    def shape(self, schema: Any) -> Shape:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return _PRIMITIVES[schema] if schema in _PRIMITIVES else self._reference(schema)
        kind = schema["type"]
        read = self._COMPLEX.get(kind) if isinstance(kind, str) else None
        if read is not None:
            return read(self, schema)
        if not isinstance(kind, str) or kind not in _PRIMITIVES:
            return self.shape(kind)
        if kind == "bytes" and schema.get("logicalType") == "decimal":
            return self._decimal(schema)
        return _LOGICAL.get((kind, schema.get("logicalType", "")), _PRIMITIVES[kind])

    def _reference(self, name: str) -> Shape:
        known = self._named[name]
        if known is None:
            raise AvroSchemaError(f"{name} contains itself, and Spark has no type for that")
        return known._replace(storage=name)

    def _record(self, schema: Any) -> Shape:
        name = schema["name"]
        self._named[name] = None
        shapes = [(field, self.shape(field["type"])) for field in schema["fields"]]
        storage = {
            "type": "record",
            "name": name,
            **({"aliases": schema["aliases"]} if "aliases" in schema else {}),
            "fields": [self._field(field, shape) for field, shape in shapes],
        }
        arrow = pa.struct([pa.field(f["name"], s.arrow) for f, s in shapes])
        spark = T.StructType([T.StructField(f["name"], s.spark, s.is_nullable) for f, s in shapes])
        self._named[name] = shape = Shape(storage, arrow, spark)
        return shape

    def _field(self, field: Any, shape: Shape) -> dict[str, Any]:
        """Keep the attributes for schema resolution; a default is only for that, and does not fit union
        members."""
        kept = ("name", "aliases") if self._with_members else ("name", "aliases", "default")
        return {**{key: field[key] for key in kept if key in field}, "type": shape.storage}

    def _enum(self, schema: Any) -> Shape:
        kept = ("type", "name", "aliases", "symbols", "default")
        storage = {key: schema[key] for key in kept if key in schema}
        self._named[schema["name"]] = shape = Shape(storage, pa.string(), T.StringType())
        return shape

    def _fixed(self, schema: Any) -> Shape:
        if schema.get("logicalType") == "decimal":
            shape = self._decimal(schema)
        else:
            storage = {key: schema[key] for key in ("type", "name", "aliases", "size") if key in schema}
            shape = Shape(storage, pa.binary(), T.BinaryType())
        self._named[schema["name"]] = shape
        return shape

    def _decimal(self, schema: Any) -> Shape:
        precision, scale = schema["precision"], schema.get("scale", 0)
        if not (0 < precision <= 38 and 0 <= scale <= precision):
            raise AvroSchemaError(f"decimal({precision},{scale}): Spark has them up to 38 digits")
        return Shape(dict(schema), pa.decimal128(precision, scale), T.DecimalType(precision, scale))

    def _array(self, schema: Any) -> Shape:
        items = self.shape(schema["items"])
        return Shape(
            {"type": "array", "items": items.storage},
            pa.list_(pa.field("element", items.arrow)),
            T.ArrayType(items.spark, items.is_nullable),
        )

    def _map(self, schema: Any) -> Shape:
        values = self.shape(schema["values"])
        return Shape(
            self._entry(values) if self._with_entries else {"type": "map", "values": values.storage},
            pa.map_(pa.string(), pa.field("value", values.arrow)),
            T.MapType(T.StringType(), values.spark, values.is_nullable),
        )

    def _entry(self, values: Shape) -> dict[str, Any]:
        self._entries += 1
        fields = [{"name": "key", "type": "string"}, {"name": "value", "type": values.storage}]
        entry = {"type": "record", "name": f"barnabas.entry_{self._entries}", "fields": fields}
        return {"type": "array", "items": entry}

    def _union(self, branches: list[Any]) -> Shape:
        nullable = "null" in branches
        others = [each for each in branches if each != "null"]
        if len(others) <= 1:
            only = self.shape(others[0]) if others else _PRIMITIVES["null"]
            return only._replace(storage=_in_place(branches, [only.storage]), is_nullable=nullable)
        if all(isinstance(each, str) for each in others) and frozenset(others) in _WIDENED:
            return _PRIMITIVES[_WIDENED[frozenset(others)]]._replace(storage=branches, is_nullable=nullable)
        return self._members(branches, others, nullable)

    def _members(self, branches: list[Any], others: list[Any], nullable: bool) -> Shape:
        shapes = [self.shape(each) for each in others]
        storage = [each.storage for each in shapes]
        if self._with_members:
            storage = [self._wrapper(index, each) for index, each in enumerate(storage)]
        names = [f"member{index}" for index in range(len(shapes))]
        return Shape(
            _in_place(branches, storage),
            pa.struct([pa.field(name, s.arrow) for name, s in zip(names, shapes, strict=True)]),
            T.StructType([T.StructField(name, s.spark) for name, s in zip(names, shapes, strict=True)]),
            nullable,
        )

    def _wrapper(self, index: int, storage: Any) -> dict[str, Any]:
        self.members += 1
        field = {"name": f"member{index}", "type": storage}
        return {"type": "record", "name": f"barnabas.member_{self.members}", "fields": [field]}

    _COMPLEX: Mapping[str, Callable[[_Reading, Any], Shape]] = {
        "record": _record,
        "error": _record,
        "enum": _enum,
        "fixed": _fixed,
        "array": _array,
        "map": _map,
    }


def _in_place(branches: list[Any], others: list[Any]) -> list[Any]:
    """The union with its branches except null replaced, in order: positions are written in the data."""
    left = iter(others)
    return ["null" if each == "null" else next(left) for each in branches]


def derive_schema(spark: T.DataType, name: str = "Record") -> dict[str, Any]:
    """The Avro schema of a Spark struct; AvroSchemaError if Avro has no such type."""
    if not isinstance(spark, T.StructType):
        raise AvroSchemaError(f"a schema is derived of a struct, not of {spark.simpleString()}")
    derived: dict[str, Any] = _derive(spark, name)
    return derived


_DERIVED: dict[type[T.DataType], Any] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
    T.BinaryType: "bytes",
    T.DateType: {"type": "int", "logicalType": "date"},
    T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    T.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def _derive(spark: T.DataType, name: str) -> Any:
    if isinstance(spark, T.StructType):
        fields = [
            {"name": f.name, "type": _optional(f.dataType, f.nullable, f"{name}_{f.name}")}
            for f in spark.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(spark, T.ArrayType):
        return {"type": "array", "items": _optional(spark.elementType, spark.containsNull, f"{name}_item")}
    if isinstance(spark, T.MapType) and isinstance(spark.keyType, T.StringType):
        return {"type": "map", "values": _optional(spark.valueType, spark.valueContainsNull, f"{name}_value")}
    if isinstance(spark, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": spark.precision, "scale": spark.scale}
    if type(spark) not in _DERIVED:
        raise AvroSchemaError(f"{name}: Avro has no type for {spark.simpleString()}")
    return _DERIVED[type(spark)]


def _optional(spark: T.DataType, nullable: bool, name: str) -> Any:
    derived = _derive(spark, name)
    return ["null", derived] if nullable else derived
