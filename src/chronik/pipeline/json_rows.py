"""Rows of a JSON table straight from records in memory: the ingest's own parser, without Spark."""

from typing import Any, Final

import pyarrow as pa

from chronik.pipeline.json_columns import Fields, JsonColumns, Judged

PLACE: Final = {
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
}
"""Columns of every JSON table and what they are in the log."""


def rows(records: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """The good records, as rows of a table with this schema, or with all fields that they have."""
    fields, judged = _judged(records, schema)
    columns: dict[str, Any] = {name: records.column(source) for name, source in PLACE.items()}
    columns |= {name: judged.columns[name] for name in fields}
    good = pa.table(columns).filter(judged.reasons.is_null())
    return good if schema is None else good.select(schema.names)


def letters(records: pa.Table, schema: pa.Schema) -> pa.Table:
    """The bad records with their reasons; `schema` is that of the topic's table."""
    _, judged = _judged(records, schema)
    names = ("partition", "offset", "timestamp", "key", "value")
    told = records.select(names).append_column("reason", judged.reasons)
    return told.filter(judged.reasons.is_valid())


def _judged(records: pa.Table, schema: pa.Schema | None) -> tuple[Fields, Judged]:
    """Every record once; fields that the table does not have yet are left out."""
    values: Any = records.column("value").combine_chunks()
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    fixed = {one.name: one.type for one in schema or () if one.name not in PLACE}
    types = JsonColumns(fixed, frozenset(PLACE))
    judged = types.judge(values)
    if schema is not None:
        return fixed, judged
    if types.widened:  # what was read before a column got wider is read again
        types = JsonColumns(types.fields, frozenset(PLACE))
        judged = types.judge(values)
    return types.fields, judged
