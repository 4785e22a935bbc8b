"""Spark's types for the Arrow types that the pipeline uses."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from chronik.pipeline.decode import HEADERS

_TYPES: tuple[tuple[pa.DataType, DataType], ...] = (
    (pa.binary(), BinaryType()),
    (pa.string(), StringType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.float64(), DoubleType()),
    (pa.bool_(), BooleanType()),
    (pa.timestamp("us", tz="UTC"), TimestampType()),
    (
        HEADERS,
        ArrayType(
            StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        ),
    ),
)


def spark_type(kind: pa.DataType) -> DataType:
    """Spark's type for one of the types that the pipeline uses."""
    known = next((spark for arrow, spark in _TYPES if arrow == kind), None)
    return from_arrow_type(kind) if known is None else known


def spark_schema(schema: pa.Schema) -> StructType:
    """A whole schema."""
    return StructType([StructField(one.name, spark_type(one.type)) for one in schema])
