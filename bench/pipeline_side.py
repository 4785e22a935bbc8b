"""One contestant of pipeline.py: a Spark session that does what the lines on its input say.

    pipeline_side.py chronik|kafka JARS

A line is a JSON object {"case", "bootstrap", "topic", "folder"}; the answer is one, too. Both
sides have the same settings; only where the records come from differs.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from chronik.pipeline.ingest import ingest_once
from chronik.pipeline.raw_table import COLUMNS
from chronik.pipeline.session import session

MASTER = "local[2]"
MEMORY = "1g"

Task = dict[str, Any]


class Kafka:
    """Spark's own JVM connector."""

    FORMAT = "kafka"

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def read(self, task: Task, columns: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.read.format(self.FORMAT).options(**options, **self.options(columns))
        reader = reader.option("kafka.bootstrap.servers", task["bootstrap"])
        return reader.option("subscribe", task["topic"]).load()

    def options(self, columns: str | None) -> dict[str, str]:
        """What a job adds that needs only these columns."""
        return {}

    def count(self, task: Task) -> Any:
        """What a job writes that asks how many records there are."""
        return self.read(task, "partition").count()

    def count_all(self, task: Task) -> Any:
        """The same by a job that does not say which columns it needs."""
        return self.read(task).count()

    def aggregate(self, task: Task) -> Any:
        """Records, bytes and the time of the last one per partition."""
        frame = self.read(task, "partition,value,timestamp").groupBy("partition")
        return self.shown(
            frame.agg(F.count("*"), F.sum(F.length("value")), F.max("timestamp").cast("string"))
        )

    def by_key(self, task: Task) -> Any:
        """Records and bytes per key; the ten with the most bytes."""
        frame = self.read(task, "key,value").groupBy("key")
        found = frame.agg(F.count("*").alias("n"), F.sum(F.length("value")).alias("bytes"))
        return self.shown(found.orderBy(F.desc("bytes"), "key").limit(10))

    def table(self, task: Task) -> Any:
        """The topic as parquet files."""
        frame = self.read(task, includeHeaders="true").select(*COLUMNS)
        frame.write.parquet(task["folder"])
        return None

    def shown(self, frame: DataFrame) -> list[str]:
        return sorted(str(row) for row in frame.collect())


class Chronik(Kafka):
    """`format("chronik")`, and ingest for the table."""

    FORMAT = "chronik"

    def options(self, columns: str | None) -> dict[str, str]:
        """A job says what it needs; the connector has no such option and makes every column."""
        return {"columns": columns} if columns else {}

    def table(self, task: Task) -> Any:
        """The topic as an Iceberg table: files and their commit."""
        ingest_once(task["bootstrap"], [task["topic"]], task["folder"], spark=self.spark)


def started(kind: str, jars: Path) -> SparkSession:
    conf = {"spark.driver.memory": MEMORY}
    if kind == "kafka":
        conf["spark.jars"] = ",".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    return session(MASTER, app=f"bench {kind}", quick=False, conf=conf)


def main() -> None:
    # What Spark prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kind, jars = sys.argv[1:]
    spark = started(kind, Path(jars))
    side = (Kafka if kind == "kafka" else Chronik)(spark)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        work: Callable[[Task], Any] = getattr(side, task["case"])
        begun = time.perf_counter()
        result = work(task)
        seconds = time.perf_counter() - begun
        print(json.dumps({"seconds": seconds, "result": result}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
