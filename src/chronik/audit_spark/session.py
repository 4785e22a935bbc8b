"""The Spark session of an audit: small enough for a laptop, any master by its URL."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from chronik.pipeline.session import session

SMALL_EVENTS = 5_000_000
"""Below this the JVM's quick compiler is done before the thorough one has begun."""
_SETTINGS = {
    # With two Python workers and the driver below 4 GB; the tables spill to disk.
    "spark.driver.memory": "1800m",
    # The stages are many and their sizes known: planning them again takes longer than it saves.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


def audit_session(
    master: str = "local[*]", events: int = 0, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one for about so many events."""
    settings = _SETTINGS | dict(conf or {})
    quick = events < SMALL_EVENTS
    return session(master, app="chronik audit", quick=quick, conf=settings, knows_format=False)


FEW_ROWS = 20_000
MANY_ROWS = 2_000_000
"""From here on tables are divided; below, one partition needs no shuffle."""


def plan_for(spark: SparkSession, rows: int) -> None:
    """Few rows take one partition and no compiler: compiling all stages would take longer."""
    few = rows < FEW_ROWS
    partitions = 1 if rows < MANY_ROWS else max(4, 2 * spark.sparkContext.defaultParallelism)
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    spark.conf.set("spark.sql.codegen.wholeStage", str(not few).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if few else "FALLBACK")


def kept_whole(frame: DataFrame) -> DataFrame:
    """A small table in one partition, computed once: joins with it need no shuffle."""
    return frame.repartition(1).localCheckpoint()
