"""Protobuf with a registry: given schemas and values, expected columns; the rest are letters."""

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.kit import Log, rows_of
from tests.pipeline.schemas import Schemas

from chronik.pipeline import sql_duckdb
from chronik.pipeline.decode import SCHEMA
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.json_columns import OTHER_TYPE, Fields
from chronik.pipeline.protobuf_schema import BadSchema, compiled, library
from chronik.pipeline.protobuf_table import (
    NO_INDEX,
    NO_MESSAGE,
    NOT_COMPILED,
    NOT_OF_SCHEMA,
    NOT_PROTOBUF,
    UNKNOWN_FIELDS,
    ProtobufShape,
    message_indexes,
)
from chronik.pipeline.registry_shape import NO_HEADER
from chronik.pipeline.warehouse import Warehouse

pytest.importorskip("google.protobuf", reason="chronik[protobuf] is not installed")
pytest.importorskip("grpc_tools.protoc", reason="chronik[protobuf] is not installed")
WHEN = datetime.datetime(2024, 5, 6, 7, 8, 9, 123, tzinfo=datetime.UTC)
SIMPLE = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string name = 2; }'
WIDE = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";

enum Kind { KIND_UNKNOWN = 0; KIND_NEW = 1; }
message Order {
  int32 id = 1;
  uint64 big = 2;
  float price = 3;
  bool ok = 4;
  bytes raw = 5;
  Kind kind = 6;
  optional string note = 7;
  repeated string tags = 8;
  map<string, int64> sizes = 9;
  message Place { sint32 x = 1; optional double y = 2; Place within = 3; }
  Place place = 10;
  repeated Place places = 11;
  oneof payment { string card = 12; int64 cash = 13; }
  google.protobuf.Timestamp at = 14;
  google.protobuf.Int64Value maybe = 15;
  google.protobuf.Struct free = 16;
  message Nothing {}
  Nothing nothing = 17;
  map<int32, Place> by_number = 18;
  repeated Kind kinds = 19;
}
"""


def made(text: str, name: str, /, **fields: Any) -> bytes:
    """A message as a producer encodes it."""
    descriptor = compiled(text).pool.FindMessageTypeByName(name)
    message = library("google.protobuf.message_factory").GetMessageClass(descriptor)()
    parse = library("google.protobuf.json_format").ParseDict
    return bytes(parse(fields, message).SerializeToString())


def framed(number: int, payload: bytes, indexes: bytes = b"\0") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + payload


def shaped(schemas: Schemas, *values: bytes | None, fixed: Fields | None = None) -> Any:
    """The shape, rows without their place, reasons."""
    shape = ProtobufShape(fixed or {}, schemas.registry)
    batch = pa.RecordBatch.from_pylist(
        [{"partition": 0, "offset": at, "value": value} for at, value in enumerate(values)],
        schema=pa.schema([SCHEMA.field(name) for name in ProtobufShape.columns]),
    )
    rows, reasons = shape.rows(batch)
    names = [name for name in rows.schema.names if not name.startswith("_")]
    return shape, rows.select(names).to_pylist(), reasons.to_pylist()


def test_every_type(schemas: Schemas) -> None:
    schemas.add(1, WIDE, schemaType="PROTOBUF")
    value = made(
        WIDE,
        "shop.v1.Order",
        id=-1,
        big=str(2**64 - 1),
        price=1.5,
        ok=True,
        raw="AAE=",
        kind="KIND_NEW",
        tags=["a", "b"],
        sizes={"s": 1},
        place={"x": -3, "within": {"x": 4}},
        places=[{"x": 1, "y": 2.5}],
        cash=7,
        at=WHEN.isoformat(),
        maybe=0,
        free={"a": [1, "ä"]},
        nothing={},
        by_number={"5": {"x": 6}},
        kinds=["KIND_NEW", 9],
    )
    shape, (row, empty), reasons = shaped(schemas, framed(1, value), None)
    assert reasons == [None, None]
    assert set(empty.values()) == {None}
    assert row == {
        "id": -1,
        "big": decimal.Decimal(2**64 - 1),
        "price": 1.5,
        "ok": True,
        "raw": b"\0\1",
        "kind": "KIND_NEW",
        "note": None,
        "tags": ["a", "b"],
        "sizes": [("s", 1)],
        "place": {"x": -3, "y": None, "within": '{"x":4}'},
        "places": [{"x": 1, "y": 2.5, "within": None}],
        "card": None,
        "cash": 7,
        "at": WHEN,
        "maybe": 0,
        "free": '{"a":[1.0,"ä"]}',
        "nothing": "{}",
        "by_number": [(5, {"x": 6, "y": None, "within": None})],
        "kinds": ["KIND_NEW", "9"],
    }
    assert shape.new["at"] == pa.timestamp("us", tz="UTC")
    assert schemas.asked == ["/schemas/ids/1"]


def test_fields_without_presence_have_their_default(schemas: Schemas) -> None:
    schemas.add(1, WIDE, schemaType="PROTOBUF")
    _, [row], _ = shaped(schemas, framed(1, b""))
    unset = {name for name, value in row.items() if value is None}
    assert unset == {"note", "place", "card", "cash", "at", "maybe", "free", "nothing"}
    assert (row["id"], row["kind"], row["tags"], row["sizes"]) == (0, "KIND_UNKNOWN", [], [])


def test_proto2_knows_what_is_missing(schemas: Schemas) -> None:
    text = """syntax = "proto2"; message M { required int32 a = 1;
    optional int32 b = 2 [default = 5]; optional group Inner = 3 { optional string s = 4; } }"""
    schemas.add(1, text, schemaType="PROTOBUF")
    good = made(text, "M", a=1, inner={"s": "x"})
    _, rows, reasons = shaped(schemas, framed(1, good), framed(1, b""))
    assert rows[0] == {"a": 1, "b": None, "inner": {"s": "x"}}
    assert reasons == [None, NOT_OF_SCHEMA]


@pytest.mark.parametrize(
    ("header", "indexes", "begin"),
    [(b"\0", (0,), 1), (b"\2\2", (1,), 2), (b"\4\0\2", (0, 1), 3), (b"\2\xd0\x0f", (1000,), 3)],
)
def test_message_indexes(header: bytes, indexes: tuple[int, ...], begin: int) -> None:
    assert message_indexes(header + b"rest") == (indexes, begin)


@pytest.mark.parametrize("header", [b"", b"\1", b"\2", b"\x80", b"\xff" * 9, b"\xfe\x03"])
def test_no_message_indexes(header: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        message_indexes(header)


def test_a_value_says_which_message_it_is_and_map_entries_do_not_count(schemas: Schemas) -> None:
    text = """syntax = "proto3"; message First { string a = 1; }
    message Second { map<string, string> m = 1; message Inner { int32 b = 1; } }"""
    schemas.add(1, text, schemaType="PROTOBUF")
    first = framed(1, made(text, "First", a="x"), b"\2\0")
    inner = framed(1, made(text, "Second.Inner", b=5), b"\4\2\0")
    none = framed(1, b"", b"\4\2\2")
    _, rows, reasons = shaped(schemas, first, inner, none)
    assert rows[:2] == [{"a": "x", "b": None}, {"a": None, "b": 5}]
    assert reasons == [None, None, NO_MESSAGE]


def test_schemas_evolve_and_columns_are_added_nested_ones_too(schemas: Schemas) -> None:
    head = (
        'syntax = "proto3"; message M { int32 id = 1; message P { int32 x = 1; %s } P p = 2; %s }'
    )
    old, new = head % ("", ""), head % ("int64 y = 2;", "string name = 3;")
    schemas.add(1, old, schemaType="PROTOBUF")
    schemas.add(2, new, schemaType="PROTOBUF")
    first = framed(1, made(old, "M", id=1, p={"x": 1}))
    second = framed(2, made(new, "M", id=2, p={"x": 1, "y": 2}, name="b"))
    narrow: Fields = {"id": pa.int64(), "p": pa.struct([("x", pa.int64())])}
    _, rows, reasons = shaped(schemas, first, second, fixed=narrow)
    assert rows == [
        {"id": 1, "p": {"x": 1, "y": None}, "name": None},
        {"id": 2, "p": {"x": 1, "y": 2}, "name": "b"},
    ]
    assert reasons == [None, None]


def test_imports_are_the_registrys_references(schemas: Schemas) -> None:
    one = 'syntax = "proto3"; package a; import "b/two.proto"; message One { b.Two two = 1; }'
    two = 'syntax = "proto3"; package b; import "three.proto"; message Two { Three three = 1; }'
    three = 'syntax = "proto3"; message Three { string s = 1; }'
    to_three = [{"name": "three.proto", "subject": "three", "version": 1}]
    to_two = [{"name": "b/two.proto", "subject": "b/two", "version": 4}]
    schemas.add(1, one, schemaType="PROTOBUF", references=to_two)
    schemas.add_version("b/two", 4, two, references=to_three)
    schemas.add_version("three", 1, three)
    schemas.add(2, one, schemaType="PROTOBUF", references=to_three)
    payload = bytes.fromhex("0a050a030a0178")
    _, rows, reasons = shaped(schemas, framed(1, payload), framed(2, payload))
    assert rows[0] == {"two": {"three": {"s": "x"}}}
    assert reasons == [None, NOT_COMPILED]


def test_an_import_cannot_leave_its_folder() -> None:
    with pytest.raises(BadSchema, match="no name of a file"):
        compiled(SIMPLE, (("../outside.proto", SIMPLE),))


def test_bad_values_have_reasons(schemas: Schemas) -> None:
    schemas.add(1, SIMPLE, schemaType="PROTOBUF")
    schemas.add(2, "message {", schemaType="PROTOBUF")
    schemas.add(3, {"type": "string"})
    good = made(SIMPLE, "shop.Order", id=1, name="x")
    cases = [
        (framed(1, good), None),
        (b"", NO_HEADER),
        (b"{}", NO_HEADER),
        (framed(1, b"", b""), NO_INDEX),
        (framed(1, good, b"\2\2"), NO_MESSAGE),
        (framed(1, good[:-1]), NOT_OF_SCHEMA),
        (framed(1, b"\x12\x01\xff"), NOT_OF_SCHEMA),
        (framed(1, good + b"\x18\x01"), UNKNOWN_FIELDS),
        (framed(9, good), "schema 9 is not in the registry"),
        (framed(2, good), NOT_COMPILED),
        (framed(3, good), NOT_PROTOBUF),
    ]
    _, rows, reasons = shaped(schemas, *(value for value, _ in cases))
    assert reasons == [reason for _, reason in cases]
    assert rows[0] == {"id": 1, "name": "x"}


def test_a_field_of_another_type_than_its_column_is_bad(schemas: Schemas) -> None:
    schemas.add(1, SIMPLE, schemaType="PROTOBUF")
    value = framed(1, made(SIMPLE, "shop.Order", id=1, name="x"))
    _, _, reasons = shaped(schemas, value, fixed={"name": pa.int64()})
    assert reasons == [OTHER_TYPE]


@pytest.mark.integration
def test_ingest_of_protobuf_its_evolution_and_its_dead_letters(
    log: Log, tmp_path: Path, schemas: Schemas
) -> None:
    head = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    message M { int32 id = 1; google.protobuf.Timestamp at = 2;
    message P { int32 x = 1; %s } P p = 3; repeated P ps = 4; map<string, P> m = 5; %s }"""
    old, new = head % ("", ""), head % ("uint64 y = 2;", "optional string name = 6;")
    schemas.add(1, old, schemaType="PROTOBUF")
    schemas.add(2, new, schemaType="PROTOBUF")
    topic = log.topic()

    def values(number: int, text: str, ids: range, **more: Any) -> list[Any]:
        at = WHEN.isoformat()
        return [(None, framed(number, made(text, "M", id=n, at=at, **more))) for n in ids]

    p = {"x": 1}
    sent = values(1, old, range(50), p=p, ps=[p], m={"k": p})
    log.send(topic, [*sent, (None, b"bad")])
    job = Job(
        log.bootstrap, Warehouse(tmp_path), "protobuf", records_max=20, registry=schemas.registry
    )
    result = ingest_topic(job, topic)
    assert (result.rows, result.bad, result.commits) == (50, 1, 3)
    p = {"x": 1, "y": 2}
    log.send(topic, values(2, new, range(51, 60), p=p, ps=[p], m={"k": p}, name="n"))
    assert ingest_topic(job, topic).rows == 9
    table = Warehouse(tmp_path).of_topic(topic)
    letters = Warehouse(tmp_path).load(f"{result.table}__dlq")
    assert table is not None
    assert letters is not None
    found = table.scan().to_arrow().sort_by("_offset").to_pylist()
    assert [(row["_offset"], row["id"]) for row in found] == [(n, n) for n in range(60) if n != 50]
    assert {row["at"] for row in found} == {WHEN}
    assert [found[at]["name"] for at in (0, -1)] == [None, "n"]
    for at, y in (0, None), (-1, decimal.Decimal(2)):
        assert found[at]["p"] == {"x": 1, "y": y}
        assert found[at]["ps"] == [{"x": 1, "y": y}]
        assert found[at]["m"] == [("k", {"x": 1, "y": y})]
    assert rows_of(letters) == [(0, 50, None, b"bad")]
    query = f"SELECT sum(id) AS s, sum(p.y) AS y FROM {result.table}"
    answer = sql_duckdb.query(log.bootstrap, tmp_path, query)
    assert answer.to_pylist() == [{"s": sum(range(60)) - 50, "y": decimal.Decimal(18)}]
