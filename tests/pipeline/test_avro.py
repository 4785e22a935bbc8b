"""Avro with a registry: given schemas and values, expected columns; what is wrong is a letter."""

import datetime
import decimal
import io
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.kit import Log, rows_of
from tests.pipeline.schemas import Schemas

from chronik.pipeline import sql_duckdb
from chronik.pipeline.avro_table import NOT_AVRO, NOT_OF_SCHEMA, AvroShape
from chronik.pipeline.decode import SCHEMA
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.json_columns import OTHER_TYPE, Fields
from chronik.pipeline.registry import Registry, RegistryError
from chronik.pipeline.registry_shape import NO_HEADER
from chronik.pipeline.warehouse import Warehouse

fastavro = pytest.importorskip("fastavro")
USER = "reader:secret"
UTC = datetime.UTC


def record(*fields: Any) -> dict[str, Any]:
    named = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "Event", "fields": named}


def encoded(number: int, schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def shaped(schemas: Schemas, *values: bytes | None, fixed: Fields | None = None) -> Any:
    """The shape, rows without their place, reasons."""
    shape = AvroShape(fixed or {}, schemas.registry)
    batch = pa.RecordBatch.from_pylist(
        [{"partition": 0, "offset": at, "value": value} for at, value in enumerate(values)],
        schema=pa.schema([SCHEMA.field(name) for name in AvroShape.columns]),
    )
    rows, reasons = shape.rows(batch)
    names = [name for name in rows.schema.names if not name.startswith("_")]
    return shape, rows.select(names).to_pylist(), reasons.to_pylist()


def test_types_and_unions_with_null(schemas: Schemas) -> None:
    inner = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "int"}]}
    schema = record(
        ("id", "int"),
        ("price", "float"),
        ("name", ["null", "string"]),
        ("place", ["null", inner]),
        ("again", "Place"),
        ("tags", {"type": "array", "items": "string"}),
        ("sizes", {"type": "map", "values": "long"}),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        ("mixed", ["null", "int", "string"]),
        ("day", {"type": "int", "logicalType": "date"}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("cost", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("who", {"type": "string", "logicalType": "uuid"}),
    )
    schemas.add(1, schema)
    when = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    value = {
        "id": 1,
        "price": 1.5,
        "name": None,
        "place": {"x": 3},
        "again": {"x": 4},
        "tags": ["a", "b"],
        "sizes": {"s": 1},
        "kind": "B",
        "mixed": 5,
        "day": when.date(),
        "at": when,
        "cost": decimal.Decimal("12.34"),
        "who": uuid.UUID(int=7),
    }
    shape, rows, reasons = shaped(schemas, encoded(1, schema, value), None)
    assert reasons == [None, None]
    assert rows[0] == value | {"mixed": "5", "who": str(uuid.UUID(int=7)), "sizes": [("s", 1)]}
    assert set(rows[1].values()) == {None}
    assert shape.new["at"] == pa.timestamp("us", tz="UTC")
    assert schemas.asked == ["/schemas/ids/1"]


def test_schemas_evolve_and_columns_are_added(schemas: Schemas) -> None:
    old, new = record(("id", "int")), record(("id", "long"), ("name", "string"))
    schemas.add(1, old)
    schemas.add(2, new)
    values = [encoded(1, old, {"id": 1}), encoded(2, new, {"id": 1 << 40, "name": "b"})]
    shape, rows, reasons = shaped(schemas, *values)
    assert rows == [{"id": 1, "name": None}, {"id": 1 << 40, "name": "b"}]
    assert (reasons, shape.widened) == ([None, None], False)


def test_a_nested_record_gets_new_members(schemas: Schemas) -> None:
    def place(*members: str) -> Any:
        named = [{"name": name, "type": "int"} for name in members]
        return record(("place", {"type": "record", "name": "Place", "fields": named}))

    old, new = place("x"), place("x", "y")
    schemas.add(1, old)
    schemas.add(2, new)
    values = [
        encoded(1, old, {"place": {"x": 1}}),
        encoded(2, new, {"place": {"x": 2, "y": 3}}),
    ]
    narrow: Fields = {"place": pa.struct([("x", pa.int64())])}
    for fixed in ({}, narrow):
        shape, rows, reasons = shaped(schemas, *values, fixed=fixed)
        assert rows == [{"place": {"x": 1, "y": None}}, {"place": {"x": 2, "y": 3}}]
        assert (reasons, shape.widened) == ([None, None], True)
        assert shape.new == {"place": pa.struct([("x", pa.int64()), ("y", pa.int64())])}


def test_bad_values_have_reasons(schemas: Schemas) -> None:
    schema = record(("id", "string"))
    schemas.add(1, schema)
    schemas.add(3, "syntax = 'proto3';", schemaType="PROTOBUF")
    good = encoded(1, schema, {"id": "x"})
    bad = [b"", b"{}", b"\x01" + good[1:], good[:-1], good + b"x"]
    bad += [b"\0" + (9).to_bytes(4, "big"), b"\0" + (3).to_bytes(4, "big")]
    _, rows, reasons = shaped(schemas, good, *bad)
    assert reasons == [
        None,
        *(NO_HEADER, NO_HEADER, NO_HEADER, NOT_OF_SCHEMA, NOT_OF_SCHEMA),
        *("schema 9 is not in the registry", NOT_AVRO),
    ]
    assert rows[0] == {"id": "x"}


def test_a_field_of_another_type_than_its_column_is_bad(schemas: Schemas) -> None:
    schema = record(("id", ["string", "long"]), ("name", "string"))
    schemas.add(1, schema)
    values = [encoded(1, schema, {"id": one, "name": "n"}) for one in ("x", 5)]
    _, rows, reasons = shaped(schemas, *values, fixed={"id": pa.int64(), "name": pa.string()})
    assert reasons[0] == OTHER_TYPE
    assert rows[0]["id"] is None


def test_the_registry_gets_its_password_and_shows_it_nowhere(schemas: Schemas) -> None:
    schemas.add(1, record(("id", "int")))
    registry = Registry(schemas.registry.url, {"basic.auth.user.info": USER})
    registry.schema(1)
    assert schemas.authorisation == "Basic cmVhZGVyOnNlY3JldA=="
    assert "secret" not in repr(registry)
    Registry(schemas.registry.url, {"bearer.auth.token": "t"}).schema(1)
    assert schemas.authorisation == "Bearer t"


@pytest.mark.parametrize(
    ("url", "settings"), [("registry:8081", {}), ("http://registry", {"password": "x"})]
)
def test_settings_are_checked_at_once(url: str, settings: dict[str, str]) -> None:
    with pytest.raises(RegistryError):
        Registry(url, settings)


@pytest.mark.integration
def test_ingest_of_avro_and_its_dead_letters(log: Log, tmp_path: Path, schemas: Schemas) -> None:
    schema = record(("id", "int"), ("at", {"type": "long", "logicalType": "timestamp-micros"}))
    schemas.add(1, schema)
    when = datetime.datetime(2024, 5, 6, 7, 8, 9, 123, tzinfo=UTC)
    topic = log.topic()
    values = [encoded(1, schema, {"id": n, "at": when}) for n in range(50)]
    log.send(topic, [(None, one) for one in [*values, b"bad"]])
    job = Job(log.bootstrap, Warehouse(tmp_path), "avro", records_max=20, registry=schemas.registry)
    result = ingest_topic(job, topic)
    assert (result.rows, result.bad, result.commits) == (50, 1, 3)
    table = Warehouse(tmp_path).of_topic(topic)
    letters = Warehouse(tmp_path).load(f"{result.table}__dlq")
    assert table is not None
    assert letters is not None
    found = table.scan().to_arrow().sort_by("_offset").to_pylist()
    assert [(row["_offset"], row["id"], row["at"]) for row in found] == [
        (n, n, when) for n in range(50)
    ]
    assert rows_of(letters) == [(0, 50, None, b"bad")]
    answer = sql_duckdb.query(log.bootstrap, tmp_path, f"SELECT sum(id) AS s FROM {result.table}")
    assert answer.to_pylist() == [{"s": sum(range(50))}]


@pytest.mark.integration
def test_a_registry_that_is_away_stops_the_ingest_and_loses_nothing(
    log: Log, tmp_path: Path, schemas: Schemas
) -> None:
    schema = record(("id", "int"))
    topic = log.topic()
    log.send(topic, [(None, encoded(1, schema, {"id": 1}))])
    away = Registry("http://127.0.0.1:9")
    job = Job(log.bootstrap, Warehouse(tmp_path), "avro", registry=away)
    with pytest.raises(RegistryError):
        ingest_topic(job, topic)
    schemas.add(1, schema)
    job.registry = schemas.registry
    assert ingest_topic(job, topic).rows == 1
