"""Schemas as text: what a variant's schema says, and how a table's columns grow."""

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from chronik.pipeline.json_table import arrow_schema, fields_in, fields_of, merged
from chronik.pipeline.warehouse import table_name


def test_a_variants_schema_is_read() -> None:
    nested = "ARRAY<OBJECT<x: BIGINT, y: STRING>>"
    told = f"OBJECT<a: BIGINT, `b, <c`: STRING, d: DECIMAL(3,1), e: {nested}, f: VOID>"
    found = {one.name: one.dataType.simpleString() for one in fields_of(told).fields}
    assert found == {"a": "bigint", "b, <c": "string", "d": "double", "e": "string"}


@pytest.mark.parametrize("told", ["", "VOID", "VARIANT", "OBJECT<>", "ARRAY<BIGINT>"])
def test_no_object_has_no_fields(told: str) -> None:
    assert fields_of(told) == StructType()


def test_columns_are_only_added() -> None:
    table = StructType([StructField("id", LongType())])
    found = StructType([StructField("ID", StringType()), StructField("new", StringType())])
    grown = merged(table, found)
    assert [one.name for one in grown.fields] == ["id", "new"]
    assert fields_in(arrow_schema(grown)) == grown


def test_a_table_has_a_name_that_sql_can_say() -> None:
    assert table_name("shop.orders-v2") == "shop_orders_v2"
