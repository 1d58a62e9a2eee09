"""JSON becomes columns, and what is not what the schema says becomes an error that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark import decode_json, encode_json, good
from barnabas.spark.framing import unframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = (
    "id bigint NOT NULL, name string, price decimal(5,2), small tinyint, ratio double, paid boolean, "
    "at timestamp, tags array<string>, counts map<string, int>, to struct<city: string NOT NULL, zip: int>, "
    "lines array<struct<sku: string NOT NULL, n: int>>"
)

GOOD: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"id": 1}', {"id": 1}),
    (b' {"id": 1, "unknown": [1, {}]}\n', {"id": 1}),
    (b'{"id": 1, "name": null, "name": "b"}', {"id": 1, "name": "b"}),
    ('{"id": 1, "name": "Amália ✉"}'.encode(), {"id": 1, "name": "Amália ✉"}),
    (
        b'{"id": 1, "tags": ["a", null], "counts": {"x": 1}}',
        {"id": 1, "tags": ["a", None], "counts": {"x": 1}},
    ),
    (b'{"id": 1, "to": {"city": "K."}}', {"id": 1, "to": {"city": "K.", "zip": None}}),
    (b'{"id": 1, "lines": [{"sku": "a"}]}', {"id": 1, "lines": [{"sku": "a", "n": None}]}),
    (b'{"id": 1, "name": "\\"},{\\""}', {"id": 1, "name": '"},{"'}),
]

BAD = [
    (b"", "not JSON: "),
    (b"  ", "not JSON:   "),
    (b"dear sir", "not JSON: dear sir"),
    (b'{"id": 1', 'not JSON: {"id": 1'),
    (b'{"id": 1} and more', 'not JSON: {"id": 1} and more'),
    (b'{"id": 1}{"id": 2}', 'not JSON: {"id": 1}{"id": 2}'),
    (b'{"id": 1}}', 'not JSON: {"id": 1}}'),
    (b'{"id": 1}]', 'not JSON: {"id": 1}]'),
    (b'{"id": 1}, {"id": 2}', 'not JSON: {"id": 1}, {"id": 2}'),
    (b'{"id": 1}, "name": "b"', 'not JSON: {"id": 1}, "name": "b"'),
    (b'{"id": 1}], "more": [2', 'not JSON: {"id": 1}], "more": [2'),
    (b'{"id": 1}], "data": [{"id": 2}', 'not JSON: {"id": 1}], "data": [{"id": 2}'),
    (b'{"id": 1}], [{"id": 2}', 'not JSON: {"id": 1}], [{"id": 2}'),
    (b"{'id': 1}", "not JSON: {'id': 1}"),
    (b'{"id": 01}', 'not JSON: {"id": 01}'),
    (b'{"id": 1, "ratio": NaN}', 'not JSON: {"id": 1, "ratio": NaN}'),
    (b'{"id": 1, "name": "\xff"}', "not UTF-8"),
    (b"\xff\xfe\x00", "not UTF-8"),
    (b"null", "not a JSON object: null"),
    (b"5", "not a JSON object: 5"),
    (b'"text"', 'not a JSON object: "text"'),
    (b'[{"id": 1}]', 'not a JSON object: [{"id": 1}]'),
    (b'{"id": "1"}', "field id is not bigint: 1"),
    (b'{"id": 1.5}', "field id is not bigint: 1.5"),
    (b'{"id": 9223372036854775808}', "field id is not bigint: 9223372036854775808"),
    (b'{"id": 1, "small": 300}', "field small is not tinyint: 300"),
    (b'{"id": 1, "price": 1234567.5}', "field price is not decimal(5,2): 1234567.5"),
    (b'{"id": 1, "paid": "true"}', "field paid is not boolean: true"),
    (b'{"id": 1, "at": "yesterday"}', "field at is not timestamp: yesterday"),
    (b'{"id": 1, "tags": "a"}', "field tags is not array<string>: a"),
    (b'{"id": 1, "counts": {"x": "y"}}', 'field counts is not map<string,int>: {"x":"y"}'),
    (b'{"id": 1, "to": {"city": "K.", "zip": "x"}}', "field to.zip is not int: x"),
    (b'{"id": 1, "to": [1]}', "field to is not struct<city:string,zip:int>: [1]"),
    (b'{"id": 1, "lines": [{"sku": "a", "n": "x"}]}', "a value inside an array or a map is not of its type"),
    (b"{}", "field id is missing"),
    (b'{"id": null}', "field id is missing"),
    (b'{"ID": 1}', "field id is missing"),
    (b'{"id": 1, "to": {"zip": 1}}', "field to.city is missing"),
    (b'{"id": 1, "lines": [{"sku": "a"}, {"n": 1}]}', "field lines[].sku is missing"),
]


def frame_of(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = [(n, None if value is None else bytearray(value)) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, "n int, value binary")


def set_fields(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.asDict(recursive=True).items() if value is not None}


def test_what_fits_the_schema_is_good(spark: SparkSession) -> None:
    decoded = frame_of(spark, [value for value, _ in GOOD]).transform(decode_json, SCHEMA)
    assert decoded.columns == ["n", "value", "data", "error", "schema_id"]
    rows = decoded.orderBy("n").collect()
    assert [row.error for row in rows] == [None] * len(GOOD)
    assert [set_fields(row.data) for row in rows] == [expected for _, expected in GOOD]


def test_what_does_not_is_told_by_field(spark: SparkSession) -> None:
    rows = frame_of(spark, [value for value, _ in BAD]).transform(decode_json, SCHEMA).orderBy("n").collect()
    assert [(bytes(row.value), row.error) for row in rows] == BAD
    assert all(row.data is None for row in rows)


def judged(value: bytes) -> bool:
    """Whether it is good, by Python's own parser; of a field of each kind."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        parsed = json.loads(value.decode(), parse_constant=refuse)
    except ValueError:
        return False
    if not isinstance(parsed, dict) or parsed.get("id") is None:
        return False
    checks: dict[str, Callable[[Any], bool]] = {
        "id": lambda each: type(each) is int and abs(each) < 2**63,
        "ratio": lambda each: type(each) in (int, float),
        "paid": lambda each: type(each) is bool,
        "tags": lambda each: type(each) is list and all(t is None or (type(t) is int) for t in each),
    }
    return all(check(parsed[name]) for name, check in checks.items() if parsed.get(name) is not None)


def test_python_agrees_about_texts_that_were_tampered_with(spark: SparkSession) -> None:
    random = Random(8)
    whole = (
        b'{"id": -12, "name": "K.", "ratio": 1.5e3, "paid": true, "tags": [1, null, 30], "to": {"a": [2]}}'
    )
    pieces = [b"", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"1", b"-", b".", b"e", b"x", b" ", b"\n"]
    pieces += [b"null", b"true", b'"a"', b"\xff", "é".encode(), b"\0", b"NaN", b'"b": 2,', b"{}", b"[]"]
    values = []
    for _ in range(3000):
        value = whole
        for _ in range(random.choice([1, 1, 2, 3])):
            start = random.randrange(len(value) + 1)
            stop = min(len(value), start + random.choice([0, 0, 1, 1, 2, 5, 20]))
            value = value[:start] + random.choice(pieces) + value[stop:]
        values.append(value)
    schema = "id bigint NOT NULL, name string, ratio double, paid boolean, tags array<bigint>"
    rows = frame_of(spark, list(values)).transform(decode_json, schema).orderBy("n").collect()
    differ = [
        (value, row.error)
        for value, row in zip(values, rows, strict=True)
        if judged(value) != (row.error is None)
    ]
    assert differ == []
    assert 300 < sum(row.error is None for row in rows) < 2700  # there are many of both


def test_a_tombstone_is_neither_data_nor_bad(spark: SparkSession) -> None:
    row = frame_of(spark, [None]).transform(decode_json, SCHEMA).first()
    assert row is not None
    assert (row.data, row.error, row.schema_id) == (None, None, None)


def test_elements_that_must_not_be_null(spark: SparkSession) -> None:
    from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType

    schema = (
        StructType().add("l", ArrayType(LongType(), False)).add("m", MapType(StringType(), LongType(), False))
    )
    values: list[bytes | None] = [
        b'{"l": [1], "m": {"a": 1}}',
        b'{"l": [1, null]}',
        b'{"m": {"a": null}}',
        b"{}",
    ]
    rows = frame_of(spark, values).transform(decode_json, schema).orderBy("n").collect()
    assert [row.error for row in rows] == [None, "field l[] is missing", "field m[] is missing", None]


def test_the_registrys_frame_is_taken_off(spark: SparkSession) -> None:
    framed = b"\0\0\0\1\2" + b'{"id": 1}'
    decoded = frame_of(spark, [framed, b'{"id": 2}', b"\0\0"]).transform(decode_json, "id bigint")
    rows = decoded.orderBy("n").collect()
    assert [(row.data and row.data.id, row.schema_id) for row in rows] == [(1, 258), (2, None), (None, None)]
    assert rows[2].error.startswith("not JSON")
    strict = frame_of(spark, [framed, b'{"id": 2}', None]).transform(decode_json, "id bigint", framed=True)
    errors = [row.error for row in strict.orderBy("n").collect()]
    assert errors == [None, "no registry frame before the JSON", None]
    plain = frame_of(spark, [framed]).transform(decode_json, "id bigint", framed=False).first()
    assert plain is not None
    assert plain.error.startswith("not JSON")


def test_any_five_bytes_may_be_a_frame(spark: SparkSession) -> None:
    values = [b"\0\xff\xff\xff\xfe" + b'{"id": 1}', b"\0\x80\0\0\0", b"\0\x7f\xff\xff\xff"]
    rows = frame_of(spark, [*values]).transform(decode_json, "id bigint").orderBy("n").collect()
    assert [row.schema_id for row in rows] == [unframe(value).schema_id for value in values]
    assert [row.error for row in rows] == [None, "not JSON: ", "not JSON: "]


def test_the_first_error_stays_when_key_and_value_are_decoded(spark: SparkSession) -> None:
    records = [(1, b"poison", b'{"id": 1}'), (2, b'{"id": 2}', b"{}"), (3, b'{"id": 3}', b'{"id": 4}')]
    keyed = spark.createDataFrame(records, "n int, key binary, value binary")
    keyed = keyed.transform(decode_json, "id bigint", "key").withColumnRenamed("data", "of_key")
    both = keyed.transform(decode_json, "id bigint NOT NULL").orderBy("n").collect()
    assert [row.error for row in both] == ["not JSON: poison", "field id is missing", None]
    assert [row.data and row.data.id for row in both] == [1, None, 4]
    assert keyed.transform(decode_json, "id bigint").transform(good).count() == 2


def test_what_is_encoded_is_decoded_to_the_same(spark: SparkSession) -> None:
    decoded = frame_of(spark, [*(value for value, _ in GOOD), None]).transform(decode_json, SCHEMA)
    again = good(decoded).drop("value").transform(encode_json, schema_id=7)
    assert "data" not in again.columns
    rows = again.transform(decode_json, SCHEMA, framed=True).orderBy("n").collect()
    assert [row.data and set_fields(row.data) for row in rows] == [*(expected for _, expected in GOOD), None]
    assert [row.schema_id for row in rows] == [7] * len(GOOD) + [None]
    assert rows[-1].value is None


def test_times_keep_their_microseconds(spark: SparkSession) -> None:
    clock = "2026-03-01 12:30:00.123456"
    times = spark.sql(f"SELECT timestamp'{clock}' AS at, timestamp_ntz'{clock}' AS local")
    encoded = times.transform(encode_json, ["at", "local"])
    row = encoded.first()
    assert row is not None
    assert json.loads(row.value) == {
        "at": "2026-03-01T12:30:00.123456Z",
        "local": "2026-03-01T12:30:00.123456",
    }
    decoded = encoded.transform(decode_json, "at timestamp, local timestamp_ntz").select("data.*")
    assert decoded.collect() == times.collect()


def test_bad_rows_keep_the_value_they_came_with(spark: SparkSession) -> None:
    decoded = frame_of(spark, [b' {"id": 1}', b"poison"]).transform(decode_json, "id bigint")
    rows = decoded.transform(encode_json).orderBy("n").collect()
    assert [bytes(row.value) for row in rows] == [b'{"id":1}', b"poison"]


def test_several_columns_are_packed(spark: SparkSession) -> None:
    df = spark.createDataFrame([("k", 1, "a")], "key string, id int, name string")
    row = df.transform(encode_json, ["id", "name"]).first()
    assert row is not None
    assert row.asDict() == {"key": "k", "value": b'{"id":1,"name":"a"}'}


def test_a_value_is_parsed_once_however_its_rows_are_filtered(spark: SparkSession) -> None:
    decoded = frame_of(spark, [b"{}"]).transform(decode_json, "id bigint, b string")
    plan = good(decoded)._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json") == 1


def test_a_schema_has_fields(spark: SparkSession) -> None:
    with pytest.raises(TypeError, match="a schema has fields"):
        decode_json(frame_of(spark, []), "bigint")
