"""Avro as fastavro writes it becomes columns and the same bytes again; poison costs its own row only.

The first half runs what a Spark task runs, without Spark; the second has the session.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from barnabas.spark import avro_schema_of, decode_avro, encode_avro
from barnabas.spark.avro_codec import DecodeSpec, decode_values, encode_values
from barnabas.spark.avro_schema import AvroSchemaError, avro_type, canonical
from barnabas.spark.batches import EncodeError
from barnabas.spark.conforming import SchemaMismatch
from barnabas.spark.framing import Framed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

spark_marked = pytest.mark.spark


def record(*fields: tuple[str, Any], name: str = "post.Letter", **more: Any) -> dict[str, Any]:
    listed = [{"name": each, "type": kind, **more.get(each, {})} for each, kind in fields]
    return {"type": "record", "name": name, "fields": listed}


LETTER = record(
    ("id", "long"),
    ("to", ["null", "string"]),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("seen", {"type": "long", "logicalType": "timestamp-micros"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("time", {"type": "int", "logicalType": "time-millis"}),
    ("fee", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}),
    (
        "weight",
        {"type": "fixed", "name": "W", "size": 4, "logicalType": "decimal", "precision": 8, "scale": 1},
    ),
    ("uuid", {"type": "string", "logicalType": "uuid"}),
    ("stamp", {"type": "fixed", "name": "Stamp", "size": 3}),
    ("class", {"type": "enum", "name": "Class", "symbols": ["FIRST", "SECOND"]}),
    ("tags", {"type": "array", "items": "string"}),
    ("costs", {"type": "map", "values": ["null", "double"]}),
    ("from", record(("city", "string"), ("zip", ["int", "long"]), name="Place")),
    ("via", {"type": "array", "items": "post.Place"}),
    ("body", ["null", "string", "bytes", "post.Place", "post.Class"]),
)
VALUES: dict[str, Any] = {
    "id": 7,
    "to": None,
    "at": datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    "seen": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "local": datetime(2024, 3, 31, 2, 30),
    "day": date(1883, 7, 3),
    "time": 1234,
    "fee": Decimal("-12.50"),
    "weight": Decimal("70.5"),
    "uuid": UUID(int=7),
    "stamp": b"\0\1\2",
    "class": "SECOND",
    "tags": ["a", ""],
    "costs": {"k": 1.5, "m": None},
    "from": {"city": "Prague", "zip": 2**40},
    "via": [{"city": "Kierling", "zip": 1}],
    "body": ("post.Class", "FIRST"),
}
DECODED = VALUES | {
    "uuid": str(UUID(int=7)),
    "costs": [("k", 1.5), ("m", None)],
    "body": {"member0": None, "member1": None, "member2": None, "member3": "FIRST"},
}
SPARK_TYPE = (
    "struct<id:bigint,to:string,at:timestamp,seen:timestamp,local:timestamp_ntz,day:date,time:int,"
    "fee:decimal(6,2),weight:decimal(8,1),uuid:string,stamp:binary,class:string,tags:array<string>,"
    "costs:map<string,double>,from:struct<city:string,zip:bigint>,via:array<struct<city:string,zip:bigint>>,"
    "body:struct<member0:string,member1:binary,member2:struct<city:string,zip:bigint>,member3:string>>"
)


def written(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def decoded(
    values: list[bytes | None],
    schema: Any,
    *,
    reader: Any = None,
    by_id: dict[int, Any] | None = None,
    framed: Framed = "auto",
) -> list[dict[str, Any]]:
    spec = DecodeSpec(
        None if schema is None else canonical(schema),
        canonical(schema if reader is None else reader),
        None if by_id is None else tuple((n, canonical(each)) for n, each in by_id.items()),
        framed,
    )
    rows: list[dict[str, Any]] = decode_values(pa.array(values, pa.binary()), spec).to_pylist()
    return rows


def data_of(rows: list[dict[str, Any]]) -> list[Any]:
    assert [row["error"] for row in rows] == [None] * len(rows)
    return [row["data"] for row in rows]


def test_every_type_has_one_of_sparks() -> None:
    assert avro_type(LETTER).spark.simpleString() == SPARK_TYPE
    (row,) = data_of(decoded([written(LETTER, VALUES)], LETTER))
    assert row == DECODED


def test_only_unions_with_null_are_nullable() -> None:
    fields = avro_type(LETTER).spark.jsonValue()["fields"]
    assert [field["name"] for field in fields if field["nullable"]] == ["to", "body"]


def test_bytes_come_back_as_fastavro_wrote_them() -> None:
    before = written(LETTER, VALUES)
    spec = DecodeSpec(canonical(LETTER), canonical(LETTER), None, False)
    rows = decode_values(pa.array([before, None, before]), spec)
    after = encode_values(rows.field("data"), canonical(LETTER), b"", mark=False)
    assert after.to_pylist() == [before, None, before]


def scalars() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    int64 = st.integers(-(2**63), 2**63 - 1)
    kinds: list[tuple[Any, st.SearchStrategy[Any]]] = [
        ("boolean", st.booleans()),
        ("int", st.integers(-(2**31), 2**31 - 1)),
        ("long", int64),
        ("float", st.floats(width=32, allow_nan=False)),
        ("double", st.floats(allow_nan=False)),
        ("string", st.text(max_size=5)),
        ("bytes", st.binary(max_size=5)),
        ({"type": "int", "logicalType": "date"}, st.integers(-(2**31), 2**31 - 1)),
        ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(-(2**52), 2**52)),
        ({"type": "long", "logicalType": "timestamp-micros"}, int64),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, int64),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            st.decimals(-99_999, 99_999, places=3),
        ),
    ]
    return st.sampled_from(kinds)


@st.composite
def kinds(draw: st.DrawFn, depth: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema, and a strategy for its values as fastavro takes them."""
    shape = draw(st.sampled_from(["scalar", "optional", "array", "map", "record", "union"]))
    if depth > 2 or shape == "scalar":
        return draw(scalars())
    inner, values = draw(kinds(depth=depth + 1))
    if shape == "optional" and not isinstance(inner, list):
        return ["null", inner], st.none() | values
    if shape == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if shape == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)
    if shape == "record":
        name = f"R{draw(st.uuids()).hex}"
        return record(("a", inner), ("b", "long"), name=name), st.fixed_dictionaries(
            {"a": values, "b": st.integers(-(2**63), 2**63 - 1)}
        )
    members = ["string", "bytes", "double", "boolean"]
    return members, st.text(max_size=3) | st.binary(max_size=3) | st.floats(allow_nan=False) | st.booleans()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_of_any_schema_goes_both_ways(data: st.DataObject) -> None:
    inner, values = data.draw(kinds())
    schema = record(("x", inner), name="Top")
    before = [written(schema, {"x": each}) for each in data.draw(st.lists(values, min_size=1, max_size=4))]
    spec = DecodeSpec(canonical(schema), canonical(schema), None, False)
    rows = decode_values(pa.array(before), spec)
    assert rows.field("error").null_count == len(before)
    assert encode_values(rows.field("data"), canonical(schema), b"", mark=False).to_pylist() == before


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_at_all_cost_their_own_row_only(poison: bytes) -> None:
    row = written(LETTER, VALUES)
    rows = decoded([row, poison, row[: len(poison)], row + poison, row], LETTER, framed=False)
    assert rows[0]["data"] == rows[-1]["data"] == DECODED
    assert all((each["data"] is None) != (each["error"] is None) for each in rows)


@pytest.mark.parametrize(
    ("poison", "error"),
    [
        (b"", "not Avro of A: it ends too early"),
        (b"\x02", "not Avro of A: it ends too early"),
        (b"\x02\x08ab", "not Avro of A: it ends too early"),
        (b"\x02\x02\xff\x00", "not Avro of A: UnicodeDecodeError"),
        (b"\x02\x02a\x04", "not Avro of A: a union or an enum has no such index"),
        (b"\x02\x02a\x00\x00\x00", "not Avro of A: 2 bytes are left over"),
    ],
)
def test_poison_is_told_what_is_wrong_with_it(poison: bytes, error: str) -> None:
    schema = record(
        ("n", "int"), ("s", "string"), ("e", {"type": "enum", "name": "E", "symbols": ["X"]}), name="A"
    )
    (row,) = decoded([poison], schema, framed=False)
    assert row["error"].startswith(error)


def test_what_no_timestamp_can_hold_is_bad_alone() -> None:
    schema = record(("at", {"type": "long", "logicalType": "timestamp-millis"}))
    rows = decoded([written(schema, {"at": n}) for n in (0, 2**62, 1)], schema)
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert rows[2]["data"]["at"] == datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)


V1 = record(("id", "int"), ("name", "string"))
V2 = record(("id", "long"), ("note", ["null", "string"]), note={"default": None})
V3 = record(("id", "long"), ("what", ["null", "string", "long"]), ("name", "string"), what={"default": None})


def test_schemas_by_id_are_resolved_to_the_readers() -> None:
    values = [
        b"\0\0\0\0\1" + written(V1, {"id": 1, "name": "a"}),
        b"\0\0\0\0\7" + written(V2, {"id": 2, "note": "b"}),
        b"\0\0\0\0\x09" + written(V2, {"id": 3, "note": "c"}),
        written(V2, {"id": 4, "note": None}),
    ]
    rows = decoded(values, V2, by_id={1: V1, 7: V2})
    assert [(row["data"], row["schema_id"]) for row in rows] == [
        ({"id": 1, "note": None}, 1),
        ({"id": 2, "note": "b"}, 7),
        (None, None),
        ({"id": 4, "note": None}, None),
    ]
    assert rows[2]["error"] == "schema id 9 is not among those given: 1, 7"
    only_framed = decoded(values, None, reader=V2, by_id={1: V1, 7: V2})
    assert only_framed[3]["error"] == "no registry frame, and no schema for values without"


def test_members_are_told_apart_after_resolution() -> None:
    old = record(("id", "int"), ("what", ["long", "string"]), ("name", "string"))
    values = [written(old, {"id": 1, "what": each, "name": "n"}) for each in ("text", 5)]
    assert [row["what"] for row in data_of(decoded(values, old, reader=V3))] == [
        {"member0": "text", "member1": None},
        {"member0": None, "member1": 5},
    ]
    assert data_of(decoded([written(V1, {"id": 1, "name": "n"})], V1, reader=V3)) == [
        {"id": 1, "what": None, "name": "n"}
    ]


def test_a_frame_is_seen_by_itself_or_asked_for() -> None:
    plain = written(V1, {"id": 0, "name": "abcdef"})  # begins with a zero byte as a frame does
    rows = decoded([plain, b"\0\0\0\0\5" + plain], V1)
    assert [(row["data"]["name"], row["schema_id"]) for row in rows] == [("abcdef", None), ("abcdef", 5)]
    rows = decoded([written(V1, {"id": 1, "name": ""})], V1, framed=True)
    assert rows[0]["error"].startswith("no registry frame")


def test_schemas_that_spark_cannot_hold_are_refused() -> None:
    tree = record(("left", ["null", "Tree"]), name="Tree")
    with pytest.raises(AvroSchemaError, match="Tree contains itself"):
        avro_type(tree)
    with pytest.raises(AvroSchemaError, match="not an Avro schema"):
        avro_type('{"type": "recrod"}')
    with pytest.raises(AvroSchemaError, match="up to 38 digits"):
        avro_type({"type": "bytes", "logicalType": "decimal", "precision": 40})
    with pytest.raises(AvroSchemaError, match=r"'orders.avsc' is not JSON .* a file is read first"):
        canonical("orders.avsc")


def test_what_cannot_be_encoded_fails_or_is_marked() -> None:
    schema = canonical(record(("class", {"type": "enum", "name": "Class", "symbols": ["FIRST"]})))
    rows = pa.array([{"class": "FIRST"}, {"class": "THIRD"}, None])
    with pytest.raises(EncodeError, match=r"cannot be encoded.*THIRD"):
        encode_values(rows, schema, b"", mark=False)
    marked = encode_values(rows, schema, b"", mark=True).to_pylist()
    assert [row["value"] for row in marked] == [b"\0", None, None]
    assert [row["error"] is None for row in marked] == [True, False, True]


@spark_marked
def test_in_spark_and_back(spark: SparkSession) -> None:
    value = written(LETTER, VALUES)
    rows = [(0, bytearray(value)), (1, None), (2, bytearray(b"poison"))]
    df = spark.createDataFrame(rows, "n int, value binary").transform(decode_avro, LETTER)
    assert df.columns == ["n", "value", "data", "error", "schema_id"]
    assert df.schema["data"].dataType.simpleString() == SPARK_TYPE
    flat = (
        df.select("n", "data.fee", "data.at", "data.body.member3", "data.costs", "error")
        .orderBy("n")
        .collect()
    )
    assert flat[0].asDict() == {
        "n": 0,
        "fee": Decimal("-12.50"),
        "at": datetime(2024, 1, 2, 3, 4, 5, 678000),
        "member3": "FIRST",
        "costs": {"k": 1.5, "m": None},
        "error": None,
    }
    assert (flat[1].error, flat[1].fee, flat[2].fee, flat[2].costs) == (None, None, None, None)
    assert flat[2].error.startswith("not Avro of post.Letter")
    again = df.transform(encode_avro, LETTER, schema_id=3).orderBy("n").collect()
    assert [row.value and bytes(row.value) for row in again] == [b"\0\0\0\0\3" + value, None, b"poison"]
    twice = df.transform(decode_avro, LETTER, framed=True).orderBy("n").collect()
    assert [row.error and row.error[:12] for row in twice] == ["no registry ", None, "not Avro of "]


@spark_marked
def test_a_filter_above_does_not_decode_twice(spark: SparkSession) -> None:
    df = spark.createDataFrame([(bytearray(b""),)], "value binary").transform(decode_avro, V1)
    plan = df.filter("error is null").select("data.id")._jdf.queryExecution().executedPlan().toString()
    assert plan.count("ArrowEvalPython") == 1


@spark_marked
def test_a_schema_is_derived_and_anyone_can_read_it(spark: SparkSession) -> None:
    df = spark.sql(
        "select 'k' as key, 1 as id, cast(2 as tinyint) as small, array(named_struct('x', 1.5D)) as xs, "
        "map('a', date'2024-01-01') as days, timestamp'2024-01-01 00:00:00.123456' as at, "
        "cast(1.5 as decimal(4,1)) as d"
    )
    fields = ["id", "small", "xs", "days", "at", "d"]
    schema = avro_schema_of(df, fields)
    row = df.transform(encode_avro, None, fields).first()
    assert row is not None
    assert row.key == "k"
    assert fastavro.schemaless_reader(BytesIO(bytes(row.value)), fastavro.parse_schema(schema)) == {
        "id": 1,
        "small": 2,
        "xs": [{"x": 1.5}],
        "days": {"a": date(2024, 1, 1)},
        "at": datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
        "d": Decimal("1.5"),
    }


@spark_marked
def test_fields_are_matched_by_name_and_mismatches_told_when_planned(spark: SparkSession) -> None:
    df = spark.sql("select named_struct('name', 'n', 'id', cast(5 as tinyint)) as data")
    row = df.transform(encode_avro, V3).first()
    assert row is not None
    assert bytes(row.value) == written(V3, {"id": 5, "what": None, "name": "n"})
    for sql, told in [
        ("named_struct('id', 1)", "data: the schema requires a field name"),
        ("named_struct('id', 1, 'name', 'n', 'age', 2)", "data: the schema has no field age"),
        ("named_struct('id', 1, 'name', 2)", "data.name is int, and the schema asks for string"),
        ("named_struct('id', 1L, 'name', 'n')", "data.id is bigint, and the schema asks for int"),
    ]:
        with pytest.raises(SchemaMismatch, match=told):
            encode_avro(spark.sql(f"select {sql} as data"), V1)


@spark_marked
def test_a_null_where_there_must_be_none_is_marked(spark: SparkSession) -> None:
    df = spark.sql(
        "select named_struct('id', 1, 'name', cast(null as string)) as data, binary('old') as value"
    )
    row = df.transform(encode_avro, V1, on_error="mark").first()
    assert row is not None
    assert row.error.startswith("cannot be encoded")
    assert bytes(row.value) == b"old"
