"""Names and schemas: what a variant's schema says, a table's columns, and its name."""

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from chronik.pipeline.json_table import arrow_schema, fields_in, fields_of, table_fields
from chronik.pipeline.warehouse import table_name


def test_a_variants_schema_is_read() -> None:
    nested = "ARRAY<OBJECT<x: BIGINT, y: STRING>>"
    told = f"OBJECT<a: BIGINT, `b, <c`: STRING, d: DECIMAL(3,1), e: {nested}, f: VOID>"
    found = {one.name: one.dataType.simpleString() for one in fields_of(told).fields}
    assert found == {"a": "bigint", "b, <c": "string", "d": "double", "e": "string"}


@pytest.mark.parametrize("told", ["", "VOID", "VARIANT", "OBJECT<>", "ARRAY<BIGINT>"])
def test_no_object_has_no_fields(told: str) -> None:
    assert fields_of(told) == StructType()


def test_columns_have_the_same_types_in_spark_and_arrow() -> None:
    fields = StructType([StructField("id", LongType()), StructField("new", StringType())])
    schema = arrow_schema(fields)
    assert fields_in(schema) == fields
    assert {name: str(kind) for name, kind in table_fields(schema).items()} == {
        "id": "int64",
        "new": "string",
    }


def test_a_table_has_a_name_that_sql_can_say() -> None:
    assert table_name("shop.orders-v2") == "shop_orders_v2"
