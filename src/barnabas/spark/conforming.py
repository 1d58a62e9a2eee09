"""Converts a column to the type that an encoder wants: fields by name, numbers widened without loss.

All type errors are reported when the query is planned, with the path of the field: a field that the schema
lacks would be lost silently, and a missing required field would fail every row.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as T  # noqa: N812


class SchemaMismatch(ValueError):
    """The type of a column does not fit the schema."""


_WIDER: dict[type[T.DataType], tuple[type[T.DataType], ...]] = {
    T.ByteType: (T.ShortType, T.IntegerType, T.LongType),
    T.ShortType: (T.IntegerType, T.LongType),
    T.IntegerType: (T.LongType, T.DoubleType),
    T.FloatType: (T.DoubleType,),
}
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}


def conform(column: Column, have: T.DataType, want: T.DataType, path: str = "data") -> Column:
    """The column with the wanted type; SchemaMismatch if that is impossible."""
    if _same(have, want):
        return column
    if isinstance(have, T.StructType) and isinstance(want, T.StructType):
        return _struct(column, have, want, path)
    if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
        inner, wanted = have.elementType, want.elementType
        return f.transform(column, lambda each: conform(each, inner, wanted, f"{path}[]"))
    if isinstance(have, T.MapType) and isinstance(want, T.MapType) and _same(have.keyType, want.keyType):
        inner, wanted = have.valueType, want.valueType
        return f.transform_values(column, lambda _, each: conform(each, inner, wanted, f"{path}[]"))
    if not _widens(have, want):
        raise SchemaMismatch(
            f"{path} is {have.simpleString()}, and the schema asks for {want.simpleString()}"
        )
    return column.cast(want)


def _same(have: T.DataType, want: T.DataType) -> bool:
    """Whether the types are equal, except for nullability, which shows in the values."""
    return have.simpleString() == want.simpleString()


def _struct(column: Column, have: T.StructType, want: T.StructType, path: str) -> Column:
    wanted = {field.name for field in want.fields}
    unknown = [name for name in have.names if name not in wanted]
    if unknown:
        raise SchemaMismatch(f"{path}: the schema has no field {', '.join(unknown)}; leave it out, or add it")
    fields = []
    for field in want.fields:
        if field.name in have.names:
            inner = column.getField(field.name)
            made = conform(inner, have[field.name].dataType, field.dataType, f"{path}.{field.name}")
        elif field.nullable:
            made = f.lit(None).cast(field.dataType)
        else:
            raise SchemaMismatch(f"{path}: the schema requires a field {field.name}, and there is none")
        fields.append(made.alias(field.name))
    return f.when(column.isNotNull(), f.struct(*fields))


def _widens(have: T.DataType, want: T.DataType) -> bool:
    if isinstance(have, T.NullType):
        return True
    if isinstance(have, T.DecimalType) and isinstance(want, T.DecimalType):
        return want.scale >= have.scale and want.precision - want.scale >= have.precision - have.scale
    if isinstance(want, T.DecimalType):
        digits = _DIGITS.get(type(have))
        return digits is not None and want.precision - want.scale >= digits
    return isinstance(want, _WIDER.get(type(have), ()))
