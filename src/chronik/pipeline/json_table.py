"""One row per record whose value is a JSON object: a typed column per field, and its place.

Types: boolean, bigint, double and string; objects, arrays and fields of several types are kept as
their JSON text. Columns are only ever added. A value that is no JSON object, or in which a field
has another type than the table's column, is a bad record and goes to the dead letter table.

Rows are made twice, by two parsers: ingest has Arrow's (`json_columns`), SQL over the log and the
proof have Spark's, so that the proof does not repeat what it judges.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from chronik.pipeline.decode import SCHEMA
from chronik.pipeline.dlq_table import REASON
from chronik.pipeline.json_columns import (
    NOT_JSON,
    NOT_OBJECT,
    NOT_UTF8,
    OTHER_TYPE,
    Fields,
    JsonColumns,
)
from chronik.pipeline.json_rows import PLACE

ARROW_PLACE = pa.schema(
    [pa.field(name, SCHEMA.field(source).type) for name, source in PLACE.items()]
)
_CORRUPT = "_corrupt"
_FIELDS = "_fields"
_TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "BOOLEAN": (BooleanType(), pa.bool_()),
    "BIGINT": (LongType(), pa.int64()),
    "DOUBLE": (DoubleType(), pa.float64()),
    "STRING": (StringType(), pa.string()),
}
_LONG_DIGITS = 18
_FIELD = re.compile(r"(`(?:[^`]|``)*`|[^:`]+): (.*)", re.DOTALL)
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
"""JSON and nothing else, as Arrow's parser has it."""


def judged(records: DataFrame, fields: StructType) -> DataFrame:
    """The records with their parsed fields, and the reason why one is bad (null: it is good)."""
    text = F.col("value").cast("string")
    wanted = StructType([*fields.fields, StructField(_CORRUPT, StringType())])
    parsed = F.from_json(text, wanted, {"columnNameOfCorruptRecord": _CORRUPT} | _STRICT)
    return records.withColumn(_FIELDS, parsed).withColumn(REASON, _reason(text))


def _reason(text: Column) -> Column:
    parsed = F.col(_FIELDS)
    # Spark's parser stops after the first value; in an array, what follows it is looked at.
    array = F.concat(F.lit("["), text, F.lit(",0]"))
    one = F.coalesce(F.json_array_length(array) == 2, F.lit(False))
    fails = parsed.isNull() | parsed[_CORRUPT].isNotNull() | ~one
    is_object = one & F.try_parse_json(text).isNotNull()
    return (
        F.when(F.col("value").isNull(), F.lit(None))
        .when(~F.is_valid_utf8(text), NOT_UTF8)
        .when(~_looks_like_object(text), NOT_OBJECT)
        .when(fails & is_object, OTHER_TYPE)
        .when(fails, NOT_JSON)
    )


def _looks_like_object(text: Column) -> Column:
    return F.is_valid_utf8(text) & text.rlike(r"^\s*\{") & text.rlike(r"\}\s*$")


def rows(judged_records: DataFrame, fields: StructType) -> DataFrame:
    """The table's rows: the good ones of `judged`."""
    return judged_records.where(F.col(REASON).isNull()).select(*columns(fields))


def columns(fields: StructType) -> list[Column]:
    """The table's columns from those of `judged`."""
    place = [F.col(source).alias(name) for name, source in PLACE.items()]
    return place + [F.col(_FIELDS)[one.name].alias(one.name) for one in fields.fields]


# -- the schema


def inferred(records: DataFrame) -> StructType:
    """The fields of all values, in the types of this table; one pass over the records."""
    text = F.col("value").cast("string")
    # Other values than objects would make the common type of all VARIANT.
    variant = F.when(_looks_like_object(text), F.try_parse_json(text))
    told = records.agg(F.schema_of_variant_agg(variant)).collect()[0][0]
    return fields_of(told or "")


def fields_of(told: str) -> StructType:
    """The fields of a variant's schema: OBJECT<a: BIGINT, b: STRING>."""
    if not (told.startswith("OBJECT<") and told.endswith(">")):
        return StructType()
    found = []
    for part in _top_level(told[len("OBJECT<") : -1]):
        matched = _FIELD.fullmatch(part)
        if matched is None:
            continue
        name, kind = _unquoted(matched[1]), matched[2]
        if kind != "VOID" and name not in PLACE:
            found.append(StructField(name, _spark_type(kind)))
    return StructType(found)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _spark_type(kind: str) -> DataType:
    whole = re.fullmatch(r"DECIMAL\((\d+),0\)", kind)
    if whole and int(whole[1]) > _LONG_DIGITS:
        return StringType()  # neither a bigint nor a double can hold it
    if kind.startswith("DECIMAL") or kind in {"DOUBLE", "FLOAT"}:
        return DoubleType()
    return _TYPES.get(kind, _TYPES["STRING"])[0]


def _top_level(text: str) -> list[str]:
    """Splits at the commas that are not inside <...>, (...) or backticks."""
    parts, depth, quoted, begin = [], 0, False, 0
    for at, char in enumerate(text):
        if char == "`":
            quoted = not quoted
        elif not quoted and char in "<(":
            depth += 1
        elif not quoted and char in ">)":
            depth -= 1
        elif not quoted and depth == 0 and char == ",":
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()] if text[begin:].strip() else parts


def arrow_schema(fields: StructType) -> pa.Schema:
    """The table's schema for Arrow and Iceberg."""
    kinds = {spark.typeName(): arrow for spark, arrow in _TYPES.values()}
    typed = [pa.field(one.name, kinds[one.dataType.typeName()]) for one in fields.fields]
    return pa.schema([*ARROW_PLACE, *typed])


def fields_in(schema: pa.Schema) -> StructType:
    """The fields of a table from its Arrow schema."""
    kinds = {str(arrow): spark for spark, arrow in _TYPES.values()}
    found = [
        StructField(one.name, kinds[str(one.type).removeprefix("large_")])
        for one in schema
        if one.name not in PLACE
    ]
    return StructType(found)


# -- within a task


class JsonShape:
    """Rows by Arrow's parser."""

    columns = (*PLACE.values(), "value")

    def __init__(self, fixed: Mapping[str, pa.DataType]) -> None:
        self._columns = JsonColumns(fixed, frozenset(PLACE))

    @property
    def new(self) -> Fields:
        return self._columns.new

    @property
    def widened(self) -> bool:
        return self._columns.widened

    def rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        judged_values = self._columns.judge(batch.column("value"))
        place = {name: batch.column(source) for name, source in PLACE.items()}
        return pa.RecordBatch.from_pydict(place | judged_values.columns), judged_values.reasons


@dataclass(frozen=True)
class JsonMode:
    """For the executors: the columns that the table has."""

    fixed: Fields

    def shape(self) -> JsonShape:
        return JsonShape(self.fixed)


def table_fields(schema: pa.Schema) -> Fields:
    """The fields of a table as Arrow types."""
    return {one.name: one.type for one in arrow_schema(fields_in(schema)) if one.name not in PLACE}
