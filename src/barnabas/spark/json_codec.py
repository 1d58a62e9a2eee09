"""JSON to columns and back, by Spark's own functions inside the JVM, but with strict checks.

`from_json` alone is lenient: it stops reading after the first object, accepts bytes that are not UTF-8 and
single quotes, and lets required fields be missing. So a value is parsed inside a wrapper, `{"data":
[[<value>], []], "end": true}`, in Spark's permissive mode:

- the text is a single JSON value to its last byte if `end` was reached, `data` has two elements and the first
  of them has one (the second detects texts that close a bracket of the wrapper, and open another);
- it is an object if that element is not null;
- every field had its type exactly if Spark noted no corrupt record;
- required fields (not nullable in the schema, at any depth) are checked afterwards.

The reason of an error is computed for bad rows only. Two things are as lenient as Spark: a string field takes
any JSON value, as its text, and fields that are not in the schema are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StringType, StructField, StructType

from barnabas.spark.codec_columns import first_error, once, packed, put_value
from barnabas.spark.framing import FRAME_BYTES, Framed, frame

_PARSED = "__barnabas_json"
_TEXT = "__barnabas_json_text"
_ERROR = "__barnabas_json_error"
_SHOWN_CHARACTERS = 60
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
# Spark would silently truncate times to the millisecond
_WRITTEN = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}


def decode_json(
    df: DataFrame, schema: StructType | str, column: str = "value", *, framed: Framed = "auto"
) -> DataFrame:
    """Add `data` (a struct of that schema), `error` (null for a good value) and `schema_id` (a registry's).

    A schema is a StructType, or DDL as `id bigint NOT NULL, name string`. A null value is a tombstone, and
    not bad: data, error and schema id are null.
    """
    fields = _fields(schema)
    wrapper = StructType(
        [
            StructField("data", ArrayType(ArrayType(fields))),
            StructField("end", BooleanType()),
            StructField("corrupt", StringType()),
        ]
    )
    value = f.col(column).cast("binary")
    text, schema_id = _unframed(value, framed)
    wrapped = f.concat(f.lit('{"data":[['), text, f.lit('],[]],"end":true}'))
    parsed = once(f.from_json(wrapped, wrapper, _OPTIONS))
    error = _error(fields, f.col(column), _is_framed(value) if framed is True else None)
    return (
        df.withColumns({_PARSED: parsed, _TEXT: once(text)})
        .withColumn(_ERROR, once(error))
        .withColumns(
            {
                "data": f.when(f.col(_ERROR).isNull(), _first(_first(f.col(f"{_PARSED}.data")))),
                "error": first_error(df, f.col(_ERROR)),
                "schema_id": schema_id,
            }
        )
        .drop(_PARSED, _TEXT, _ERROR)
    )


def encode_json(
    df: DataFrame, column: str | Sequence[str] = "data", *, schema_id: int | None = None
) -> DataFrame:
    """Replace a struct column (or several columns, packed into one) by `value`: its JSON.

    Null fields are left out; times have all their microseconds. A null struct is a tombstone: a null value.
    Rows marked bad (`error`) keep the value that they came with.
    """
    data = packed(df, column)
    text = f.to_json(data, _WRITTEN).cast("binary")
    value = text if schema_id is None else f.concat(f.lit(frame(schema_id)), text)
    return put_value(df, column, f.when(data.isNotNull(), value))


def _fields(schema: StructType | str) -> StructType:
    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise TypeError(
            f"a schema has fields, as `id bigint, name string`; this one is {parsed.simpleString()}"
        )
    return parsed


def _is_framed(value: Column) -> Column:
    return (f.substring(value, 1, 1) == f.lit(b"\0")) & (f.length(value) >= FRAME_BYTES)


def _unframed(value: Column, framed: Framed) -> tuple[Column, Column]:
    """The text and the schema id; JSON cannot begin with a zero byte, so a frame is recognised by it."""
    if framed is False:
        return value.cast("string"), f.lit(None).cast("int")
    body = f.substring(value, FRAME_BYTES + 1, 2**31 - 1)
    number = f.conv(f.hex(f.substring(value, 2, 4)), 16, 10).cast("bigint")
    signed = f.when(number < 2**31, number).otherwise(number - 2**32).cast("int")
    return (
        f.when(_is_framed(value), body).otherwise(value).cast("string"),
        f.when(_is_framed(value), signed),
    )


def _error(fields: StructType, value: Column, must_be_framed: Column | None) -> Column:
    """The error of a row; the branches below the first are evaluated for bad rows only."""
    both, end = f.col(f"{_PARSED}.data"), f.col(f"{_PARSED}.end")
    values = _first(both)
    data = _first(values)
    text = f.col(_TEXT)
    chain = f.when(value.isNull(), None)
    if must_be_framed is not None:
        chain = chain.when(~must_be_framed, "no registry frame before the JSON")
    chain = chain.when(~f.is_valid_utf8(text), "not UTF-8")
    is_corrupt = f.col(f"{_PARSED}.corrupt").isNotNull()
    # corrupt records are parsed once more: Spark may go on after a syntax error, and even reach the end
    as_array = f.try_parse_json(f.concat(f.lit("["), text, f.lit("]")))
    is_one = (f.size(both) == 2) & (f.size(values) == 1)
    is_no_json = end.isNull() | ~is_one | (is_corrupt & as_array.isNull())
    chain = chain.when(is_no_json, f.concat(f.lit("not JSON: "), _shown(text)))
    chain = chain.when(
        is_corrupt,
        f.coalesce(f.when(data.isNull(), _not_an_object(text)), _wrong_type(fields, data, text)),
    )
    chain = chain.when(data.isNull(), _not_an_object(text))
    for is_missing, path in _missing(fields, data, ""):
        chain = chain.when(is_missing, f"field {path} is missing")
    return chain.cast("string")


def _first(values: Column) -> Column:
    return f.get(values, f.lit(0))


def _not_an_object(text: Column) -> Column:
    return f.concat(f.lit("not a JSON object: "), _shown(text))


def _shown(text: Column) -> Column:
    return f.substring(text, 1, _SHOWN_CHARACTERS)


def _wrong_type(fields: StructType, data: Column, text: Column) -> Column:
    """The first field that has a value in the text and none in Spark's result."""
    found = [
        f.when(
            parsed.isNull() & f.get_json_object(text, path).isNotNull(),
            f.concat(
                f.lit(f"field {name} is not {kind.simpleString()}: "), _shown(f.get_json_object(text, path))
            ),
        )
        for name, path, parsed, kind in _leaves(fields, data, "", "$")
    ]
    return f.coalesce(*found, f.lit("a value inside an array or a map is not of its type"))


def _leaves(
    fields: StructType, data: Column, name: str, path: str
) -> Iterator[tuple[str, str, Column, DataType]]:
    """The fields that are not structs, then the structs: name, JSON path, parsed column, type."""
    for field in fields.fields:
        column, full = data.getField(field.name), f"{name}{field.name}"
        below = f"{path}['{field.name}']"
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, column, f"{full}.", below)
        yield full, below, column, field.dataType


def _missing(kind: DataType, data: Column, path: str) -> Iterator[tuple[Column, str]]:
    """Conditions under which a required field is missing, with its path."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            column, below = data.getField(field.name), f"{path}.{field.name}".lstrip(".")
            if not field.nullable:
                yield data.isNotNull() & column.isNull(), below
            yield from _missing(field.dataType, column, below)
    elif isinstance(kind, ArrayType):
        yield from _missing_within(kind.elementType, kind.containsNull, data, f"{path}[]")
    elif isinstance(kind, MapType):
        yield from _missing_within(kind.valueType, kind.valueContainsNull, f.map_values(data), f"{path}[]")


def _missing_within(
    kind: DataType, may_be_null: bool, elements: Column, path: str
) -> Iterator[tuple[Column, str]]:
    if not may_be_null:
        yield f.exists(elements, lambda each: each.isNull()), path
    for index, (_, below) in enumerate(_missing(kind, f.lit(None).cast(kind), path)):
        yield f.exists(elements, _nth_condition(kind, path, index)), below


def _nth_condition(kind: DataType, path: str, index: int) -> Callable[[Column], Column]:
    return lambda each: list(_missing(kind, each, path))[index][0]
