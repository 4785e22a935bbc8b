"""Given records, expected rows: the functions from DataFrame to DataFrame."""

from typing import Any

import pytest

from chronik.pipeline import dlq_table, json_table

pytestmark = [pytest.mark.integration, pytest.mark.spark]
SCHEMA = "partition int, offset bigint, timestamp timestamp, key binary, value binary"


def records(spark: Any, *values: bytes | None) -> Any:
    rows = [(0, offset, None, None, value) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, SCHEMA)


def test_fields_become_typed_columns(spark: Any) -> None:
    given = records(
        spark,
        b'{"id": 1, "price": 1.5, "ok": true, "name": "a", "tags": [1, 2], "at": {"x": 1}}',
        b'{"id": 2, "price": 2, "odd name`": "b"}',
        None,
    )
    fields = json_table.inferred(given)
    rows = json_table.rows(json_table.judged(given, fields), fields)
    assert {one.name: one.dataType.simpleString() for one in fields.fields} == {
        "id": "bigint",
        "price": "double",
        "ok": "boolean",
        "name": "string",
        "tags": "string",
        "at": "string",
        "odd name`": "string",
    }
    found = [row.asDict() for row in rows.orderBy("_offset").collect()]
    assert [(r["_offset"], r["id"], r["price"], r["name"], r["odd name`"]) for r in found] == [
        (0, 1, 1.5, "a", None),
        (1, 2, 2.0, None, "b"),
        (2, None, None, None, None),
    ]
    assert (found[0]["tags"], found[0]["at"], found[0]["ok"]) == ("[1,2]", '{"x":1}', True)


def test_what_is_no_object_of_the_tables_types_is_a_dead_letter(spark: Any) -> None:
    bad = [b"oops", b"5", b"[1]", b'[{"id": 1}]', b"", b'{"id": 1', b'{"id": 1} x', b"null"]
    fields = json_table.inferred(records(spark, b'{"id": 1}'))
    values = [b'{"id": 1}', *bad, b"\xff\xfe", b'{"id": "text"}', b'{"id": 1.5}', b"{}"]
    judged = json_table.judged(records(spark, *values), fields)
    good = [row["_offset"] for row in json_table.rows(judged, fields).collect()]
    letters = {bytes(row.value): row.reason for row in dlq_table.rows(judged).collect()}
    assert good == [0, 12]
    assert {letters[one] for one in bad[:5]} == {"the value is not a JSON object"}
    assert letters[b"\xff\xfe"] == "the value is not UTF-8"
    assert letters[b'{"id": "text"}'] == "a field has another type than its column"
    assert letters[b'{"id": 1.5}'] == "a field has another type than its column"
    assert len(letters) == 11


def test_a_field_of_several_types_is_kept_as_text(spark: Any) -> None:
    given = records(spark, b'{"a": 1}', b'{"a": "x"}', b'{"a": {"b": 2}}', b"not json")
    fields = json_table.inferred(given)
    rows = json_table.rows(json_table.judged(given, fields), fields)
    assert sorted(row.a for row in rows.collect()) == ["1", "x", '{"b":2}']


def test_numbers_that_no_column_can_hold_are_kept_as_text(spark: Any) -> None:
    given = records(spark, b'{"a": 123456789012345678901}')
    fields = json_table.inferred(given)
    rows = json_table.rows(json_table.judged(given, fields), fields)
    assert [row.a for row in rows.collect()] == ["123456789012345678901"]
