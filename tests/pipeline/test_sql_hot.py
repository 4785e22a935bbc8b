"""The newest records in SQL, before ingest has committed them: in every mode, by every name."""

import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.kit import Ask, Log, rows_in
from tests.pipeline.schemas import Schemas

from chronik.pipeline import sql_duckdb
from chronik.pipeline.decode import SCHEMA
from chronik.pipeline.delta_table import DeltaWarehouse
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.json_columns import OTHER_TYPE
from chronik.pipeline.registry import Registry, RegistryError
from chronik.pipeline.registry_rows import COLUMNS, RegistryRows
from chronik.pipeline.registry_shape import NO_HEADER
from chronik.pipeline.sql_plan import LETTERS, plan
from chronik.pipeline.sql_text import BadQuery
from chronik.pipeline.warehouse import REGISTRY, Warehouse, table_name

fastavro = pytest.importorskip("fastavro")
AVRO: Any = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": "double"},
    ],
}
PROTO = """syntax = "proto3";
message Event { int64 id = 1; optional string name = 2; double price = 3; }"""
SECONDS_MAX = 1.0
NUMBERS = count()


def avro(number: int, schema: Any, **fields: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), fields)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def protobuf(number: int, text: str, **fields: Any) -> bytes:
    from chronik.pipeline.protobuf_schema import compiled, library

    descriptor = compiled(text).pool.FindMessageTypeByName("Event")
    message = library("google.protobuf.message_factory").GetMessageClass(descriptor)(**fields)
    return b"\0" + number.to_bytes(4, "big") + b"\0" + bytes(message.SerializeToString())


@dataclass
class Mode:
    """One mode of ingest, and how its producers encode."""

    name: str
    encode: Callable[[dict[str, Any]], bytes]
    registry: Registry | None = None

    def send(self, log: Log, topic: str, ids: range, *bad: bytes) -> None:
        values = [{"id": n, "name": None if n % 3 else f"n{n}", "price": n / 4} for n in ids]
        log.send(topic, [(b"k", one) for one in [*map(self.encode, values), *bad]])

    def ingest(self, log: Log, topic: str, tables: Any, alias: str = "") -> None:
        aliases = {topic: alias} if alias else {}
        job = Job(log.bootstrap, tables, self.name, registry=self.registry, aliases=aliases)
        ingest_topic(job, topic)


@pytest.fixture(params=["json", "avro", "protobuf"])
def mode(request: pytest.FixtureRequest, schemas: Schemas) -> Mode:
    if request.param == "json":
        return Mode("json", lambda fields: json.dumps(fields).encode())
    if request.param == "avro":
        schemas.add(1, AVRO)
        return Mode("avro", lambda fields: avro(1, AVRO, **fields), schemas.registry)
    pytest.importorskip("grpc_tools.protoc", reason="chronik[protobuf] is not installed")
    schemas.add(1, PROTO, schemaType="PROTOBUF")
    return Mode("protobuf", lambda fields: protobuf(1, PROTO, **fields), schemas.registry)


def shop(log: Log, partitions: int = 2) -> str:
    """A topic whose name SQL cannot say."""
    return log.topic(partitions, name=f"shop.orders-{next(NUMBERS)}-{id(log)}")


@pytest.mark.integration
@pytest.mark.parametrize("aliased", [False, True])
def test_records_are_seen_before_the_commit_and_the_commit_changes_nothing(
    ask: Ask, log: Log, tmp_path: Path, mode: Mode, aliased: bool
) -> None:
    topic = shop(log)
    alias = f"orders_{next(NUMBERS)}" if aliased else ""
    mode.send(log, topic, range(20), b"\x01 one")
    mode.ingest(log, topic, Warehouse(tmp_path), alias)
    mode.send(log, topic, range(20, 35), b"\x01 two", b"{")
    for name in {table_name(topic), alias or table_name(topic)}:
        assert ask(f"SELECT count(*), sum(id), count(name) FROM {name}") == [
            (35, sum(range(35)), 12)
        ]
    name = table_name(topic)

    def state() -> Any:
        letters = ask(f"SELECT partition, offset, value FROM {name}__dlq ORDER BY 1, 2")
        assert len(letters) == 3
        return ask(f"SELECT * FROM {name} ORDER BY _partition, _offset"), letters

    before = state()
    assert len(before[0]) == 35
    mode.ingest(log, topic, Warehouse(tmp_path), alias)
    assert state() == before


@pytest.mark.integration
def test_the_log_goes_on_where_a_delta_table_ends(log: Log, tmp_path: Path, mode: Mode) -> None:
    pytest.importorskip("deltalake", reason="chronik[delta] is not installed")
    topic = shop(log)
    mode.send(log, topic, range(5))
    mode.ingest(log, topic, DeltaWarehouse(tmp_path))
    mode.send(log, topic, range(5, 9))
    text = f"SELECT count(*), sum(id) FROM {table_name(topic)}"
    assert rows_in(sql_duckdb.query(log.bootstrap, tmp_path, text)) == [(9, 36)]


@pytest.mark.integration
def test_a_record_is_in_the_answer_within_a_second_of_its_ack(
    log: Log, tmp_path: Path, mode: Mode
) -> None:
    topic = shop(log, 1)
    mode.send(log, topic, range(1_000))
    mode.ingest(log, topic, Warehouse(tmp_path), "fast")
    took = []
    for number in range(1_000, 1_003):
        mode.send(log, topic, range(number, number + 1))
        acked = time.perf_counter()
        found = sql_duckdb.query(log.bootstrap, tmp_path, "SELECT max(id) FROM fast")
        took.append(time.perf_counter() - acked)
        assert rows_in(found) == [(number,)]
    assert min(took) < SECONDS_MAX


@pytest.mark.integration
def test_a_column_comes_with_the_commit_that_adds_it_and_its_record_at_once(
    ask: Ask, log: Log, tmp_path: Path, schemas: Schemas
) -> None:
    def event(*members: str) -> Any:
        place = [{"name": name, "type": "int"} for name in members]
        fields = [{"name": "place", "type": {"type": "record", "name": "P", "fields": place}}]
        return {"type": "record", "name": "Event", "fields": fields}

    old, new = event("x"), event("x", "y")
    schemas.add(1, old)
    schemas.add(2, new)
    topic = shop(log, 1)
    avro_mode = Mode("avro", lambda _: b"", schemas.registry)
    log.send(topic, [(None, avro(1, old, place={"x": 1}))])
    avro_mode.ingest(log, topic, Warehouse(tmp_path))
    log.send(topic, [(None, avro(2, new, place={"x": 2, "y": 3}))])
    text = f"SELECT place.x FROM {table_name(topic)} ORDER BY 1"
    assert ask(text) == [(1,), (2,)]
    with pytest.raises(Exception, match="y"):
        ask(text.replace("place.x", "place.y"))
    avro_mode.ingest(log, topic, Warehouse(tmp_path))
    assert ask(text.replace("place.x", "place.x, place.y")) == [(1, None), (2, 3)]


@pytest.mark.integration
def test_the_registry_is_the_tables_or_the_one_that_is_given(
    log: Log, tmp_path: Path, schemas: Schemas
) -> None:
    schemas.add(1, AVRO)
    away = Registry("http://user:secret@127.0.0.1:9", {"bearer.auth.token": "t"})
    topic = shop(log, 1)
    Mode("avro", lambda _: b"", away).ingest(log, topic, Warehouse(tmp_path), "apart")
    table = Warehouse(tmp_path).load("apart")
    assert table is not None
    assert table.properties[REGISTRY] == "http://127.0.0.1:9"
    log.send(topic, [(None, avro(1, AVRO, id=1, name=None, price=1.0))])
    text = "SELECT count(*) FROM apart"
    with pytest.raises(RegistryError):
        sql_duckdb.query(log.bootstrap, tmp_path, text)
    given = sql_duckdb.query(log.bootstrap, tmp_path, text, registry=schemas.registry)
    assert rows_in(given) == [(1,)]
    with table.transaction() as change:
        change.remove_properties(REGISTRY)
    with pytest.raises(BadQuery, match="--registry"):
        plan(text, log.bootstrap, tmp_path)
    assert rows_in(sql_duckdb.query(None, tmp_path, text)) == [(0,)]


@pytest.mark.integration
def test_an_alias_is_found_without_the_log_and_at_earlier_times(log: Log, tmp_path: Path) -> None:
    json_mode = Mode("json", lambda fields: json.dumps(fields).encode())
    topic = shop(log, 1)
    name = table_name(topic)
    for ids in (range(3), range(3, 5)):
        json_mode.send(log, topic, ids)
        json_mode.ingest(log, topic, Warehouse(tmp_path), "early")
    table = Warehouse(tmp_path).load("early")
    assert table is not None
    old = next(one for one in table.snapshots() if one.summary and one.summary["added-records"])
    for where in (None, log.bootstrap):
        for one in (name, "early"):
            text = f"SELECT count(*) FROM {one}"
            assert rows_in(sql_duckdb.query(where, tmp_path, text)) == [(5,)]
            text += f" VERSION AS OF {old.snapshot_id}"
            assert rows_in(sql_duckdb.query(where, tmp_path, text)) == [(3,)]


@pytest.mark.integration
def test_a_name_that_two_topics_could_have_is_refused(log: Log, tmp_path: Path) -> None:
    json_mode = Mode("json", lambda fields: json.dumps(fields).encode())
    one, other = (f"two{dash}names{dash}{id(tmp_path)}" for dash in "-_")
    for topic in (one, other):
        log.topic(name=topic)
    json_mode.ingest(log, one, Warehouse(tmp_path), "first")
    with pytest.raises(BadQuery, match="could be topic"):
        plan(f"SELECT * FROM {other}", log.bootstrap, tmp_path)


def test_rows_and_letters_are_those_of_the_table(schemas: Schemas) -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "id", "type": ["int", "string"]}]}
    schemas.add(1, schema)
    values = [avro(1, schema, id=5), b"bad", None, avro(1, schema, id="text")]
    records = pa.RecordBatch.from_pylist(
        [{"partition": 0, "offset": at, "value": one} for at, one in enumerate(values)],
        schema=pa.schema([SCHEMA.field(name) for name in COLUMNS]),
    )
    place = [("_partition", pa.int32()), ("_offset", pa.int64())]
    table = pa.schema([*place, ("id", pa.int64())])
    good = RegistryRows("avro", table, schemas.registry, table)
    bad = RegistryRows("avro", table, schemas.registry, LETTERS, letters=True)
    (rows,), (letters,) = good([records]), bad([records])
    assert rows.schema == table
    assert rows.to_pylist() == [{"_partition": 0, "_offset": 2, "id": None}]
    told = letters.select(["offset", "reason"]).to_pylist()
    assert told == [
        {"offset": 0, "reason": OTHER_TYPE},
        {"offset": 1, "reason": NO_HEADER},
        {"offset": 3, "reason": OTHER_TYPE},
    ]
