"""Protobuf messages become columns and the same bytes again; poison costs its own row only.

There is no protoc here: the message types are built of protobuf's own descriptors, as protoc builds them.
The first half runs what a Spark task runs, without Spark; the second has the session.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from barnabas.spark import decode_protobuf, encode_protobuf
from barnabas.spark.batches import EncodeError
from barnabas.spark.conforming import SchemaMismatch
from barnabas.spark.framing import Framed
from barnabas.spark.protobuf_codec import decode_values, encode_values
from barnabas.spark.protobuf_schema import ProtobufSchemaError, message_indexes, message_spec
from barnabas.spark.protobuf_types import message_kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOGLE = "google/protobuf/"
IMPORTS = [f"{GOOGLE}{name}.proto" for name in ("timestamp", "duration", "wrappers", "struct")]


def add(message: Any, name: str, kind: int | str, *, label: int = Field.LABEL_OPTIONAL, **more: Any) -> None:
    """A field: by its number in Field.TYPE_*, or the full name of a message (".x") or an enum ("=.x")."""
    field = message.field.add(name=name, number=len(message.field) + 1, label=label, **more)
    if isinstance(kind, int):
        field.type = kind
    else:
        field.type = Field.TYPE_ENUM if kind.startswith("=") else Field.TYPE_MESSAGE
        field.type_name = kind.lstrip("=")


def add_map(message: Any, owner: str, name: str, key: int, value: int | str) -> None:
    entry_name = f"{name.capitalize()}Entry"
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    add(entry, "key", key)
    add(entry, "value", value)
    add(message, name, f"{owner}.{entry_name}", label=Field.LABEL_REPEATED)


def letter_file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="post.proto", package="post", syntax="proto3")
    file.dependency.extend(IMPORTS)
    place = file.message_type.add(name="Place")
    add(place, "city", Field.TYPE_STRING)
    add(place, "zip", Field.TYPE_INT32)
    inner = place.nested_type.add(name="First")
    add(inner, "x", Field.TYPE_INT32)
    inner = place.nested_type.add(name="Room")
    add(inner, "number", Field.TYPE_SINT64)
    kind = file.enum_type.add(name="Class")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="FIRST", number=1)
    letter = file.message_type.add(name="Letter")
    for name, number in SCALARS.items():
        add(letter, name, number)
    add(letter, "class", "=.post.Class")
    add(letter, "from", ".post.Place")
    add(letter, "via", ".post.Place", label=Field.LABEL_REPEATED)
    add(letter, "tags", Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    add(letter, "classes", "=.post.Class", label=Field.LABEL_REPEATED)
    add_map(letter, ".post.Letter", "costs", Field.TYPE_STRING, Field.TYPE_DOUBLE)
    add_map(letter, ".post.Letter", "places", Field.TYPE_INT32, ".post.Place")
    add(letter, "at", ".google.protobuf.Timestamp")
    add(letter, "took", ".google.protobuf.Duration")
    add(letter, "note", ".google.protobuf.StringValue")
    add(letter, "size", ".google.protobuf.UInt64Value")
    add(letter, "any", ".google.protobuf.Struct")
    letter.oneof_decl.add(name="body")
    add(letter, "text", Field.TYPE_STRING, oneof_index=0)
    add(letter, "room", ".post.Place.Room", oneof_index=0)
    letter.oneof_decl.add(name="_age")
    add(letter, "age", Field.TYPE_INT32, oneof_index=1, proto3_optional=True)
    return file


SCALARS = {
    "double_": Field.TYPE_DOUBLE,
    "float_": Field.TYPE_FLOAT,
    "int32_": Field.TYPE_INT32,
    "int64_": Field.TYPE_INT64,
    "uint32_": Field.TYPE_UINT32,
    "uint64_": Field.TYPE_UINT64,
    "sint32_": Field.TYPE_SINT32,
    "fixed64_": Field.TYPE_FIXED64,
    "sfixed32_": Field.TYPE_SFIXED32,
    "bool_": Field.TYPE_BOOL,
    "string_": Field.TYPE_STRING,
    "bytes_": Field.TYPE_BYTES,
}


def old_file() -> descriptor_pb2.FileDescriptorProto:
    """A proto2 file: required fields, defaults, and a message that contains itself."""
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    order = file.message_type.add(name="Order")
    add(order, "id", Field.TYPE_INT32, label=Field.LABEL_REQUIRED)
    add(order, "count", Field.TYPE_INT32, default_value="5")
    add(order, "name", Field.TYPE_STRING)
    tree = file.message_type.add(name="Tree")
    add(tree, "left", ".old.Tree")
    file.message_type.add(name="Nothing")
    return file


def descriptor_set(*files: descriptor_pb2.FileDescriptorProto) -> bytes:
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()


POST, OLD = descriptor_set(letter_file()), descriptor_set(old_file())
LETTER = message_spec((POST, "post.Letter"))
ORDER = message_spec((OLD, "old.Order"))


def class_of(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    """As generated code would have it: in a pool that has what it imports."""
    pool = descriptor_pool.DescriptorPool()
    for each in IMPORTS:
        proto = descriptor_pb2.FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(each).CopyToProto(proto)
        pool.Add(proto)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


Letter, Place, Order = (
    class_of(letter_file(), "post.Letter"),
    class_of(letter_file(), "post.Place"),
    class_of(old_file(), "old.Order"),
)

SPARK_TYPE = (
    "struct<double_:double,float_:float,int32_:int,int64_:bigint,uint32_:bigint,uint64_:decimal(20,0),"
    "sint32_:int,fixed64_:decimal(20,0),sfixed32_:int,bool_:boolean,string_:string,bytes_:binary,class:string,"
    "from:struct<city:string,zip:int>,via:array<struct<city:string,zip:int>>,tags:array<string>,"
    "classes:array<string>,costs:map<string,double>,places:map<int,struct<city:string,zip:int>>,at:timestamp,"
    "took:interval day to second,note:string,size:decimal(20,0),any:string,text:string,"
    "room:struct<number:bigint>,age:int>"
)
EMPTY: dict[str, Any] = {
    **dict.fromkeys(SCALARS, 0),
    "bool_": False,
    "string_": "",
    "bytes_": b"",
    "class": "UNKNOWN",
    "via": [],
    "tags": [],
    "classes": [],
    "costs": [],
    "places": [],
    **dict.fromkeys(["from", "at", "took", "note", "size", "any", "text", "room", "age"]),
}


def full() -> Any:
    message = Letter(
        double_=1.5,
        uint32_=2**32 - 1,
        uint64_=2**64 - 1,
        sint32_=-1,
        string_="Amália",
        bytes_=b"\0\xff",
        via=[{"city": "Kierling", "zip": 3400}, {}],
        tags=["a", ""],
        classes=[1, 0, 7],
        costs={"m": 2.0, "k": 1.5},
        places={5: {"city": "K."}, -1: {}},
        note={"value": ""},
        size={"value": 2**63},
        any={"k": [1, "two"]},
        room={"number": -5},
        age=0,
    )
    setattr(message, "class", 1)
    getattr(message, "from").city = "Prague"
    message.at.FromDatetime(datetime(1969, 12, 31, 23, 59, 59, 999999))
    message.took.FromTimedelta(timedelta(seconds=-2, microseconds=5))
    return message


FULL = EMPTY | {
    "double_": 1.5,
    "uint32_": 2**32 - 1,
    "uint64_": Decimal(2**64 - 1),
    "sint32_": -1,
    "string_": "Amália",
    "bytes_": b"\0\xff",
    "class": "FIRST",
    "from": {"city": "Prague", "zip": 0},
    "via": [{"city": "Kierling", "zip": 3400}, {"city": "", "zip": 0}],
    "tags": ["a", ""],
    "classes": ["FIRST", "UNKNOWN", "7"],
    "costs": [("k", 1.5), ("m", 2.0)],
    "places": [(-1, {"city": "", "zip": 0}), (5, {"city": "K.", "zip": 0})],
    "at": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "took": timedelta(seconds=-2, microseconds=5),
    "note": "",
    "size": Decimal(2**63),
    "any": '{"k": [1.0, "two"]}',
    "room": {"number": -5},
    "age": 0,
}


def decoded(values: list[bytes | None], spec: Any = LETTER, framed: Framed = "auto") -> list[dict[str, Any]]:
    indexes = message_indexes(Letter.DESCRIPTOR) if spec is LETTER else (0,)
    rows: list[dict[str, Any]] = decode_values(
        pa.array(values, pa.binary()), spec, framed, indexes
    ).to_pylist()
    return rows


def test_every_type_has_one_of_sparks() -> None:
    assert message_kind(Letter.DESCRIPTOR).spark.simpleString() == SPARK_TYPE


def test_what_was_set_and_what_was_not() -> None:
    rows = decoded([full().SerializeToString(), b"", None])
    assert [row["error"] for row in rows] == [None] * 3
    assert rows[0]["data"] == FULL
    assert rows[1]["data"] == EMPTY
    assert rows[2]["data"] is None


def test_bytes_come_back_as_protobuf_writes_them() -> None:
    before = [full().SerializeToString(deterministic=True), b"", None]
    rows = decode_values(pa.array(before, pa.binary()), LETTER, False, (1,))
    assert encode_values(rows.field("data"), LETTER, b"", mark=False).to_pylist() == before


def letters() -> st.SearchStrategy[Any]:
    """Letters with any values in any of their fields."""
    int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
    uint64, text = st.integers(0, 2**64 - 1), st.text(max_size=5)
    place = st.fixed_dictionaries({}, optional={"city": text, "zip": int32})
    seconds = st.integers(-62_135_596_800, 253_402_300_799)
    moment = st.builds(lambda s, us: {"seconds": s, "nanos": us * 1000}, seconds, st.integers(0, 999_999))
    span = st.builds(
        lambda s, us: {"seconds": s, "nanos": (us if s >= 0 else -us) * 1000},
        st.integers(-(2**40), 2**40),
        st.integers(0, 999_999),
    )
    body = st.one_of(
        st.just({}),
        st.builds(lambda value: {"text": value}, text),
        st.builds(lambda value: {"room": {"number": value}}, int64),
    )
    fields = st.fixed_dictionaries(
        {},
        optional={
            "double_": st.floats(allow_nan=False),
            "float_": st.floats(width=32, allow_nan=False),
            "int32_": int32,
            "int64_": int64,
            "uint32_": st.integers(0, 2**32 - 1),
            "uint64_": uint64,
            "sint32_": int32,
            "fixed64_": uint64,
            "sfixed32_": int32,
            "bool_": st.booleans(),
            "string_": text,
            "bytes_": st.binary(max_size=5),
            "class": int32,
            "from": place,
            "via": st.lists(place, max_size=3),
            "tags": st.lists(text, max_size=3),
            "classes": st.lists(int32, max_size=3),
            "costs": st.dictionaries(text, st.floats(allow_nan=False), max_size=3),
            "places": st.dictionaries(int32, place, max_size=3),
            "at": moment,
            "took": span,
            "note": st.fixed_dictionaries({}, optional={"value": text}),
            "size": st.fixed_dictionaries({}, optional={"value": uint64}),
            "age": int32,
        },
    )
    return st.builds(lambda some, one: Letter(**some, **one), fields, body)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.none() | letters(), min_size=1, max_size=4))
def test_any_messages_go_both_ways(messages: list[Any]) -> None:
    before = [None if each is None else each.SerializeToString(deterministic=True) for each in messages]
    rows = decode_values(pa.array(before, pa.binary()), LETTER, False, (1,))
    assert rows.field("error").null_count == len(before)
    assert encode_values(rows.field("data"), LETTER, b"", mark=False).to_pylist() == before


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_at_all_cost_their_own_row_only(poison: bytes) -> None:
    whole = full().SerializeToString()
    rows = decoded([whole, poison, whole[: len(poison)], whole + poison, whole])
    assert rows[0]["data"] == rows[-1]["data"] == FULL
    assert all((row["data"] is None) != (row["error"] is None) for row in rows)


def test_poison_is_told_what_is_wrong_with_it() -> None:
    bad_utf8 = Letter(bytes_=b"\xff").SerializeToString().replace(b"\x62", b"\x5a", 1)  # field 12 as field 11
    errors = [row["error"] for row in decoded([b"\x0a\xff", b"\x00\x01", bad_utf8])]
    assert all(error.startswith("not a post.Letter: ") for error in errors)


def test_what_no_timestamp_can_hold_is_bad_alone() -> None:
    values: list[bytes | None] = [Letter(at={"seconds": n}).SerializeToString() for n in (1, 2**60, 2)]
    rows = decoded(values)
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert rows[2]["data"]["at"] == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)


def test_what_json_cannot_say_is_bad_alone() -> None:
    rows = decoded([Letter(any={"n": n}).SerializeToString() for n in (1, float("nan"), 2)])
    assert [row["data"] and row["data"]["any"] for row in rows] == ['{"n": 1.0}', None, '{"n": 2.0}']
    assert "NaN" in rows[1]["error"]


def test_proto2_knows_what_was_set_and_what_is_required() -> None:
    values = [Order(id=1).SerializeToString(), Order(id=0, count=5).SerializeToString(), b""]
    bad_text = Order(id=3).SerializeToString() + b"\x1a\x01\xff"  # proto2 takes any bytes for a string
    rows = decoded([*values, bad_text], ORDER)
    assert [row["data"] for row in rows] == [
        {"id": 1, "count": None, "name": None},
        {"id": 0, "count": 5, "name": None},
        None,
        None,
    ]
    assert rows[2]["error"] == "not a old.Order: required fields are missing: id"
    assert "not a utf8 string" in rows[3]["error"]


def test_the_frame_names_the_message() -> None:
    body = Letter(int32_=7).SerializeToString()
    rows = decoded(
        [
            b"\0\0\0\1\0" + b"\x02\x02" + body,  # one index: 1
            body,
            b"\0\0\0\1\0" + b"\0" + body,  # the file's first message, which is Place
            b"\0\0\0\1\0" + b"\x04\x00",  # two indexes, of which one is there
            b"\0\0\0\1\0" + b"\xff\xff\xff\xff\xff\xff",
            b"\0\0\0\1\0" + b"\xfe\xff\x03" + body,
        ]
    )
    assert [(row["data"] and row["data"]["int32_"], row["schema_id"]) for row in rows[:3]] == [
        (7, 256),
        (7, None),
        (None, None),
    ]
    assert [row["error"] for row in rows[2:]] == [
        "not a post.Letter, which is message (1,) of its file: the frame says (0,)",
        "the message indexes after the schema id are cut short",
        "a message index after the schema id is too long",
        "32767 message indexes after the schema id",
    ]
    assert decoded([body], framed=True)[0]["error"].startswith("no registry frame")


def test_nested_messages_have_their_path() -> None:
    room = Place.DESCRIPTOR.nested_types_by_name["Room"]
    assert (message_indexes(Place.DESCRIPTOR), message_indexes(Letter.DESCRIPTOR)) == ((0,), (1,))
    assert message_indexes(room) == (0, 1)


def test_a_message_is_found_by_class_bytes_or_path(tmp_path: Path) -> None:
    path = tmp_path / "post.desc"
    path.write_bytes(POST)
    for source in (Letter, (path, "post.Letter"), (str(path), "post.Letter")):
        assert decoded([full().SerializeToString()], message_spec(source))[0]["data"] == FULL
    with pytest.raises(
        ProtobufSchemaError, match=r"no message post.Leter; there are post.Place, post.Letter"
    ):
        message_spec((POST, "post.Leter"))
    nothing: Any = "post.Letter"
    with pytest.raises(ProtobufSchemaError, match=r"a class, or \(descriptor set, name\), and not 'post.Let"):
        message_spec(nothing)
    with pytest.raises(ProtobufSchemaError, match="not a descriptor set"):
        message_spec((b"\xff", "post.Letter"))
    file = letter_file()
    file.dependency.append("missing.proto")
    with pytest.raises(ProtobufSchemaError, match="--include_imports"):
        message_spec((descriptor_set(file), "post.Letter"))


def test_messages_that_spark_cannot_hold_are_refused() -> None:
    with pytest.raises(ProtobufSchemaError, match=r"old.Tree contains itself"):
        message_kind(class_of(old_file(), "old.Tree").DESCRIPTOR)


def test_a_message_without_fields() -> None:
    spec = message_spec((OLD, "old.Nothing"))
    rows = decode_values(pa.array([b"", None, b"\x08\x01"]), spec, False, (2,))
    assert rows.field("data").to_pylist() == [{}, None, {}]
    assert encode_values(rows.field("data"), spec, b"", mark=False).to_pylist() == [b"", None, b""]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("class", "THIRD", "THIRD is not a value of post.Class"),
        ("uint32_", -1, "-1"),
        ("any", "{", "Failed to load JSON"),
    ],
)
def test_what_cannot_be_encoded_fails_or_is_marked(field: str, value: Any, told: str) -> None:
    kind = message_kind(Letter.DESCRIPTOR).arrow
    rows = pa.array([dict(FULL), {**EMPTY, field: value}], kind)
    with pytest.raises(EncodeError, match=told):
        encode_values(rows, LETTER, b"", mark=False)
    marked = encode_values(rows, LETTER, b"", mark=True).to_pylist()
    assert [row["error"] is None for row in marked] == [True, False]
    assert marked[0]["value"] == full().SerializeToString(deterministic=True)


def test_two_members_of_a_oneof_are_one_too_many() -> None:
    both = pa.array([{**EMPTY, "text": "a", "room": {"number": 1}}], message_kind(Letter.DESCRIPTOR).arrow)
    with pytest.raises(EncodeError, match="text and room are both set, of which body is one"):
        encode_values(both, LETTER, b"", mark=False)


@pytest.mark.spark
def test_in_spark_and_back(spark: SparkSession) -> None:
    value = full().SerializeToString(deterministic=True)
    rows = [(0, bytearray(value)), (1, None), (2, bytearray(b"\x0a\xff")), (3, bytearray(b""))]
    df = spark.createDataFrame(rows, "n int, value binary").transform(decode_protobuf, Letter)
    assert df.columns == ["n", "value", "data", "error", "schema_id"]
    assert df.schema["data"].dataType.simpleString() == SPARK_TYPE
    first, *_, last = df.select("n", "data.*", "error").orderBy("n").collect()
    assert first.asDict(recursive=True) == FULL | {
        "n": 0,
        "error": None,
        "at": datetime(1969, 12, 31, 23, 59, 59, 999999),
        "costs": dict(FULL["costs"]),
        "places": dict(FULL["places"]),
    }
    assert (last.string_, last.age, last.tags, last["from"]) == ("", None, [], None)
    again = df.transform(encode_protobuf, (POST, "post.Letter"), schema_id=3).orderBy("n").collect()
    prefix = b"\0\0\0\0\3\x02\x02"
    assert [row.value if row.value is None else bytes(row.value) for row in again] == [
        prefix + value,
        None,
        b"\x0a\xff",
        prefix,
    ]


@pytest.mark.spark
def test_columns_are_matched_by_name(spark: SparkSession) -> None:
    df = spark.sql("select 'k' as key, cast(5 as tinyint) as zip, 'K.' as city")
    row = df.transform(encode_protobuf, Place, ["zip", "city"]).first()
    assert row is not None
    assert row.asDict() == {"key": "k", "value": Place(city="K.", zip=5).SerializeToString()}
    row = df.transform(encode_protobuf, Place, ["city"]).first()
    assert row is not None
    assert bytes(row.value) == Place(city="K.").SerializeToString()
    with pytest.raises(SchemaMismatch, match=r"data.city is int, and the schema asks for string"):
        encode_protobuf(spark.sql("select 1 as city"), Place, ["city"])
