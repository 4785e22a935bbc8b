"""JSON values to columns: given values, expected rows, by Arrow's parser and by Python's."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronik.pipeline import json_columns
from chronik.pipeline.json_columns import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    NOT_JSON,
    NOT_OBJECT,
    NOT_UTF8,
    OTHER_TYPE,
    STRING,
    Fields,
    JsonColumns,
    merged,
)


def judge(*values: bytes | None, fixed: Fields | None = None) -> tuple[JsonColumns, Any, Any]:
    """The columns, rows as dicts, and reasons."""
    columns = JsonColumns(fixed or {}, frozenset({"_offset"}))
    judged = columns.judge(pa.array(values, pa.binary()))
    rows = [
        {name: column[at].as_py() for name, column in judged.columns.items()}
        for at in range(len(values))
    ]
    return columns, rows, judged.reasons.to_pylist()


def test_fields_become_typed_columns() -> None:
    columns, rows, reasons = judge(
        b'{"id": 1, "price": 1.5, "ok": true, "name": "a", "when": "2024-01-01T00:00:00"}',
        b'{"id": 2, "price": 2, "odd name`": "b", "nothing": null, "_offset": 5}',
        None,
        b"{}",
    )
    assert columns.new == {
        "id": BIGINT,
        "price": DOUBLE,
        "ok": BOOLEAN,
        "name": STRING,
        "when": STRING,
        "odd name`": STRING,
    }
    assert [(r["id"], r["price"], r["when"], r["odd name`"]) for r in rows] == [
        (1, 1.5, "2024-01-01T00:00:00", None),
        (2, 2.0, None, "b"),
        (None, None, None, None),
        (None, None, None, None),
    ]
    assert reasons == [None] * 4


def test_objects_and_arrays_are_kept_as_their_text() -> None:
    columns, rows, _ = judge('{"tags": [1, 2.5, "ä"], "at": {"x": 1, "y": null}}'.encode())
    assert columns.new == {"tags": STRING, "at": STRING}
    assert rows == [{"tags": '[1,2.5,"ä"]', "at": '{"x":1,"y":null}'}]


def test_a_field_of_several_types_is_kept_as_text() -> None:
    _, rows, reasons = judge(b'{"a": 1}', b'{"a": "x"}', b'{"a": {"b": 2}}', b"not json")
    assert [row["a"] for row in rows] == ["1", "x", '{"b":2}', None]
    assert reasons == [None, None, None, NOT_OBJECT]


def test_numbers_that_no_column_can_hold_are_kept_as_text() -> None:
    columns, rows, _ = judge(b'{"a": 123456789012345678901, "b": 1e30}')
    assert columns.new == {"a": STRING, "b": DOUBLE}
    assert rows == [{"a": "123456789012345678901", "b": 1e30}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"oops", NOT_OBJECT),
        (b"5", NOT_OBJECT),
        (b'[{"id": 1}]', NOT_OBJECT),
        (b"", NOT_OBJECT),
        (b"null", NOT_OBJECT),
        (b'{"id": 1', NOT_OBJECT),
        (b'{"id": 1} x', NOT_OBJECT),
        (b"\xff\xfe", NOT_UTF8),
        (b'{"name": "\xff"}', NOT_UTF8),
        (b'{"id": 1}{"id": 2}', NOT_JSON),
        (b'{"id": 1,}', NOT_JSON),
        (b"{'id': 1}", NOT_JSON),
        (b'{"id": NaN}', NOT_JSON),
        (b'{"price": NaN}', NOT_JSON),
        (b'{"name": "a\nb"}', NOT_JSON),
        (b'{"id": "text"}', OTHER_TYPE),
        (b'{"id": 1.5}', OTHER_TYPE),
        (b'{"id": true}', OTHER_TYPE),
        (b'{"id": 9223372036854775808}', OTHER_TYPE),
        (b'{"price": "1"}', OTHER_TYPE),
    ],
)
def test_what_is_no_object_of_the_tables_types_is_bad_and_its_neighbours_are_not(
    value: bytes, reason: str
) -> None:
    fixed: Fields = {"id": BIGINT, "price": DOUBLE, "name": STRING}
    good = b'{"id": 7, "price": 3, "name": "n"}'
    _, rows, reasons = judge(good, value, good, fixed=fixed)
    assert reasons == [None, reason, None]
    assert rows[0] == rows[2] == {"id": 7, "price": 3.0, "name": "n"}
    assert set(rows[1].values()) == {None}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b'{"name": 1}', "1"),
        (b'{"name": true}', "true"),
        (b'\n{\n "name" : "x" }\n', "x"),
        (b'{"name": "x", "name": "y"}', "y"),
        (b'{"name": "\\ud800"}', "?"),
        (b'{"NAME": 5, "name": "z"}', "z"),
    ],
)
def test_unusual_but_good(value: bytes, name: str) -> None:
    columns, rows, reasons = judge(value, fixed={"name": STRING})
    assert (rows, reasons, columns.new) == ([{"name": name}], [None], {})


def test_a_type_that_widens_after_rows_were_handed_out_is_told() -> None:
    columns = JsonColumns({}, frozenset())
    columns.judge(pa.array([b'{"a": 1}']))
    assert not columns.widened
    columns.judge(pa.array([b'{"a": 1.5}']))
    assert (columns.widened, columns.new) == (True, {"a": DOUBLE})


def test_new_columns_of_two_tasks_have_one_type() -> None:
    one: Fields = {"a": BIGINT, "b": STRING, "c": BOOLEAN}
    other: Fields = {"a": DOUBLE, "B": BIGINT, "c": BIGINT, "d": BOOLEAN}
    assert merged(one, other) == {"a": DOUBLE, "b": STRING, "c": STRING, "d": BOOLEAN}


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
OBJECTS = st.dictionaries(st.sampled_from(["a", "b"]), LEAVES | st.lists(LEAVES, max_size=1))
TEXTS = OBJECTS.map(lambda one: json.dumps(one).encode()) | st.binary(max_size=4) | st.none()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXTS, max_size=4))
def test_arrow_and_python_give_the_same_rows(values: list[bytes | None]) -> None:
    together = judge(*values)
    alone = JsonColumns(together[0].new, frozenset({"_offset"}))
    judged = alone._slow(pa.array(values, pa.binary()))
    if together[0].widened or not values:
        return
    rows = [
        {name: column[at].as_py() for name, column in judged.columns.items()}
        for at in range(len(values))
    ]
    assert (rows, judged.reasons.to_pylist()) == together[1:]


def test_one_bad_record_costs_its_piece_not_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    loaded = json_columns._loaded

    def counted(value: bytes | None) -> Any:
        looked_at.append(value)
        return loaded(value)

    monkeypatch.setattr(json_columns, "_loaded", counted)
    values = [b'{"a": %d}' % number for number in range(10_000)]
    values[5_000] = b"bad"
    _, rows, reasons = judge(*values)
    assert [at for at, reason in enumerate(reasons) if reason] == [5_000]
    assert [row["a"] for row in rows[4_999:5_002]] == [4_999, None, 5_001]
    assert len(looked_at) == json_columns.PIECE_ROWS
