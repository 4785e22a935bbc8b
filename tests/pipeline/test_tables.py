"""Given records, expected rows: the functions from DataFrame to DataFrame, next to Arrow's."""

import json
from typing import Any

import pyarrow as pa
import pytest

from chronik.pipeline import dlq_table, json_table
from chronik.pipeline.decode import SCHEMA as DECODED
from chronik.pipeline.json_columns import BIGINT, BOOLEAN, DOUBLE, STRING, Fields

pytestmark = [pytest.mark.integration, pytest.mark.spark]
SCHEMA = "partition int, offset bigint, timestamp timestamp, key binary, value binary"
FIXED: Fields = {"id": BIGINT, "price": DOUBLE, "ok": BOOLEAN, "name": STRING, "odd name`": STRING}
VALUES: list[bytes | None] = [
    b'{"id": 1, "price": 1.5, "ok": true, "name": "a", "more": [1]}',
    b'{"id": 2, "price": 2, "odd name`": "b", "name": null}',
    None,
    b"{}",
    *(b"oops", b"5", b"[1]", b'[{"id": 1}]', b"", b'{"id": 1', b'{"id": 1} x', b"null"),
    *(b"\xff\xfe", b'{"id": "text"}', b'{"id": 1.5}', b'{"id": true}', b'{"ok": 1}'),
    *(b"{'id': 1}", b'{"price": NaN}', b'{"price": "NaN"}', b'{"id": 1,}', b'{"id": 01}'),
    *(b'{"id": 1}{"id": 2}', b'{"name": "a\nb"}', b'{"name": "x", "name": "y"}'),
    *(b'{"name": 1}', b'{"name": true}', b'{"name": [1, "b"]}', b'{"name": {"x" : 2.5}}'),
    *(b'\n{ "name" : "x" }\n', b'{"NAME": "other"}', b'{"id": 9223372036854775808}'),
    *(b'{"price": 1e3}', b'{"price": -0.0}', b'{"id": -0}', b'{"price": 12345678901234567890}'),
    *(b'{"id": 1},{"id": 2}', b'{"id": 1}}', b'{"id": 1}]}'),
    b'{"name": "\\u00e4\\n\\ud83d\\ude00"}',
    json.dumps({"name": "x" * 10_000}).encode(),
]


def test_spark_and_arrow_make_the_same_rows_and_refuse_the_same_records(spark: Any) -> None:
    rows = [(0, offset, None, None, value) for offset, value in enumerate(VALUES)]
    records = spark.createDataFrame(rows, SCHEMA)
    fields = json_table.fields_in(pa.schema(list(FIXED.items())))
    judged = json_table.judged(records, fields)
    good = {
        row["_offset"]: {name: row[name] for name in FIXED}
        for row in json_table.rows(judged, fields).collect()
    }
    bad = {row.offset: row.reason for row in dlq_table.rows(judged).collect()}

    source = pa.RecordBatch.from_pylist(
        [{"partition": 0, "offset": at, "value": value} for at, value in enumerate(VALUES)],
        schema=pa.schema([DECODED.field(name) for name in json_table.JsonShape.columns]),
    )
    table, reasons = json_table.JsonShape(FIXED).rows(source)
    ours = dict(enumerate(reasons.to_pylist()))
    assert {offset: reason for offset, reason in ours.items() if reason} == bad
    found = {
        row["_offset"]: {name: row[name] for name in FIXED}
        for row in table.to_pylist()
        if ours[row["_offset"]] is None
    }
    assert found == good
    assert len(good) + len(bad) == len(VALUES)
